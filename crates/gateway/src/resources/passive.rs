//! Passive health: the answers to requests are watched, and a node that fails too often is taken out until it is found well
//! again.

use super::probe::Judged;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc;
use towpath_resources::model::Passive;
use towpath_route::Statuses;
use towpath_route::health::{Checker, Report, Thresholds};
use towpath_types::InstanceId;

/// What is known of the nodes of an upstream, by checks of both kinds.
pub(super) type Checkers = HashMap<InstanceId, Arc<Checker>>;

/// Watches the nodes that an upstream has now, shared by all workers.
#[derive(Debug)]
pub(crate) struct Watch {
    upstream: String,
    thresholds: Thresholds,
    nodes: Checkers,
    tell: mpsc::UnboundedSender<super::Event>,
}

impl Watch {
    pub(super) fn new(
        upstream: &str,
        rules: &Passive,
        nodes: Checkers,
        tell: mpsc::UnboundedSender<super::Event>,
    ) -> Self {
        Self { upstream: upstream.to_owned(), thresholds: thresholds(rules), nodes, tell }
    }

    /// Takes note of what a request saw.
    pub(crate) fn note(&self, instance: InstanceId, report: Report) {
        let Some(checker) = self.nodes.get(&instance) else { return };
        if let Some(healthy) = checker.report(report, &self.thresholds) {
            let judged = Judged { upstream: self.upstream.clone(), instance };
            tracing::info!(upstream = %self.upstream, %instance, healthy, ?report, "requests changed a node's health");
            let _ = self.tell.send(super::Event::Judged(judged));
        }
    }
}

fn thresholds(rules: &Passive) -> Thresholds {
    let (good, bad) = (&rules.healthy, &rules.unhealthy);
    Thresholds {
        good: Statuses::of(&good.http_statuses),
        successes: good.successes,
        bad: Statuses::of(&bad.http_statuses),
        http_failures: bad.http_failures,
        tcp_failures: bad.tcp_failures,
        timeouts: bad.timeouts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_falls_once_and_an_edit_keeps_what_was_counted() {
        let (tell, mut told) = mpsc::unbounded_channel();
        let node = InstanceId(uuid::Uuid::from_u128(1));
        let nodes: Checkers = [(node, Arc::new(Checker::new(true)))].into();
        let watch = || Watch::new("1", &Passive::default(), nodes.clone(), tell.clone());
        let first = watch();
        (0..4).for_each(|_| first.note(node, Report::Status(500)));
        assert!(told.try_recv().is_err());
        watch().note(node, Report::Status(500));
        assert!(
            matches!(told.try_recv(), Ok(super::super::Event::Judged(judged)) if judged.instance == node)
        );
        first.note(InstanceId(uuid::Uuid::from_u128(2)), Report::Failed);
        assert!(told.try_recv().is_err() && !nodes[&node].healthy());
    }

    #[test]
    fn the_defaults_are_those_of_the_arithmetic() {
        assert_eq!(thresholds(&Passive::default()), Thresholds::passive());
        assert_eq!(super::super::probe::thresholds(&Default::default()), Thresholds::active());
    }
}
