//! What the process trees of instances use.

use crate::driver::Usage;
use crate::launch::Started;
use crate::procfs;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use towpath_types::InstanceId;

/// Counters of the look before, by instance. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Sampler {
    before: Arc<Mutex<HashMap<InstanceId, Counters>>>,
}

#[derive(Debug, Clone, Copy)]
struct Counters {
    at: Instant,
    /// Start of the app: counters of an earlier start do not mix with it.
    start: u64,
    ticks: u64,
    io: u64,
}

impl Sampler {
    /// Looks at every process once, however many instances there are.
    pub(super) fn sample(&self, instances: &[(InstanceId, Started)]) -> HashMap<InstanceId, Usage> {
        if instances.is_empty() {
            return HashMap::new();
        }
        let stats = procfs::all_stats();
        let roots: Vec<u32> = instances.iter().map(|(_, started)| started.shim.pid).collect();
        let trees = procfs::tree_in(&stats, &roots);
        let per_second = procfs::ticks_per_second();
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let mut usages = HashMap::new();
        for (instance, started) in instances {
            let Some(tree) = trees.get(&started.shim.pid) else { continue };
            // Reaped children's time is in their parent's, so that the shim itself belongs to the sum.
            let ticks = tree.iter().filter_map(|pid| stats.get(pid)).map(|stat| stat.ticks).sum();
            let apps: Vec<u32> = tree.iter().copied().filter(|pid| *pid != started.shim.pid).collect();
            let io = apps.iter().filter_map(|pid| procfs::block_io(*pid)).sum();
            let now = Counters { at: Instant::now(), start: started.app.start, ticks, io };
            let mut usage = Usage { memory: procfs::tree_memory(&apps), ..Usage::default() };
            if let Some(then) = before.insert(*instance, now).filter(|then| then.start == now.start) {
                (usage.cores, usage.io) = rates(then, now, per_second);
            }
            usages.insert(*instance, usage);
        }
        usages
    }

    pub(super) fn forget(&self, instance: InstanceId) {
        self.before.lock().unwrap_or_else(PoisonError::into_inner).remove(&instance);
    }
}

/// Cores and bytes a second between two looks. A process that vanished may take its counters with it: never below zero.
#[expect(clippy::cast_precision_loss, reason = "rates need no more than 52 bits")]
fn rates(then: Counters, now: Counters, ticks_per_second: u64) -> (f64, f64) {
    let seconds = now.at.saturating_duration_since(then.at).as_secs_f64();
    if seconds <= 0.0 {
        return (0.0, 0.0);
    }
    let ticks = now.ticks.saturating_sub(then.ticks) as f64;
    (ticks / ticks_per_second.max(1) as f64 / seconds, now.io.saturating_sub(then.io) as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn rates_are_per_second_and_never_negative() {
        let at = Instant::now();
        let then = Counters { at, start: 1, ticks: 100, io: 1000 };
        let now = Counters { at: at + Duration::from_secs(2), start: 1, ticks: 300, io: 500 };
        assert_eq!(rates(then, now, 100), (1.0, 0.0));
        assert_eq!(rates(then, then, 100), (0.0, 0.0));
    }
}
