//! Passive health: the answers to requests are watched, and a node that fails too often in a row is taken out until an
//! active check finds it well again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::mpsc;
use towpath_resources::model::Passive;
use towpath_types::InstanceId;

/// What a request says of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// It answered with this status.
    Status(u16),
    /// No connection, or a broken one.
    Broken,
    /// No answer in time.
    Late,
}

/// A node that has failed too often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fallen {
    pub(crate) upstream: String,
    pub(crate) instance: InstanceId,
}

#[derive(Debug, Default)]
struct Counts {
    http: AtomicU32,
    tcp: AtomicU32,
    late: AtomicU32,
}

/// Watches the nodes of one upstream, shared by all workers.
#[derive(Debug)]
pub(crate) struct Watch {
    upstream: String,
    rules: Passive,
    counts: RwLock<HashMap<InstanceId, Arc<Counts>>>,
    tell: mpsc::UnboundedSender<super::Event>,
}

impl Watch {
    pub(crate) fn new(upstream: String, rules: Passive, tell: mpsc::UnboundedSender<super::Event>) -> Self {
        Self { upstream, rules, counts: RwLock::default(), tell }
    }

    /// When a node falls.
    pub(crate) fn rules(&self) -> &Passive {
        &self.rules
    }

    /// Takes note of what a request saw.
    pub(crate) fn note(&self, instance: InstanceId, sight: Sight) {
        let counts = self.counts_of(instance);
        let (count, most) = match sight {
            Sight::Status(status) if self.rules.unhealthy.http_statuses.contains(&status) => {
                (&counts.http, self.rules.unhealthy.http_failures)
            }
            Sight::Status(status) => {
                if self.rules.healthy.http_statuses.contains(&status) {
                    counts.http.store(0, Relaxed);
                    counts.tcp.store(0, Relaxed);
                    counts.late.store(0, Relaxed);
                }
                return;
            }
            Sight::Broken => (&counts.tcp, self.rules.unhealthy.tcp_failures),
            Sight::Late => (&counts.late, self.rules.unhealthy.timeouts),
        };
        if most > 0 && count.fetch_add(1, Relaxed) + 1 == u32::from(most) {
            let fallen = Fallen { upstream: self.upstream.clone(), instance };
            let _ = self.tell.send(super::Event::Fallen(fallen));
        }
    }

    /// The node is well again: it begins anew.
    pub(crate) fn forget(&self, instance: InstanceId) {
        self.counts.write().unwrap_or_else(PoisonError::into_inner).remove(&instance);
    }

    fn counts_of(&self, instance: InstanceId) -> Arc<Counts> {
        if let Some(known) = self.counts.read().unwrap_or_else(PoisonError::into_inner).get(&instance) {
            return known.clone();
        }
        self.counts.write().unwrap_or_else(PoisonError::into_inner).entry(instance).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_falls_once_after_so_many_failures_in_a_row() {
        let (tell, mut told) = mpsc::unbounded_channel();
        let watch = Watch::new("1".into(), Passive::default(), tell);
        let node = InstanceId(uuid::Uuid::from_u128(1));
        for _ in 0..4 {
            watch.note(node, Sight::Status(500));
        }
        watch.note(node, Sight::Status(200));
        for _ in 0..4 {
            watch.note(node, Sight::Status(500));
        }
        watch.note(node, Sight::Status(404));
        assert!(told.try_recv().is_err());
        for _ in 0..4 {
            watch.note(node, Sight::Status(500));
        }
        assert!(
            matches!(told.try_recv(), Ok(super::super::Event::Fallen(fallen)) if fallen.instance == node)
        );
        assert!(told.try_recv().is_err());
        watch.forget(node);
        watch.note(node, Sight::Broken);
        assert!(told.try_recv().is_err());
        watch.note(node, Sight::Broken);
        assert!(told.try_recv().is_ok());
    }
}
