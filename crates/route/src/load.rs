//! JAE's load formula and the reported load of an endpoint.
//!
//! `host = w·cpu + w·mem + w·io`, `inst` likewise, `load = host_part·host + (1 − host_part)·inst` with the weights of
//! the upstream; by default 0.3 each for CPU and memory, 0 for I/O, 0.3 for the host.

use crate::change::ReportedLoad;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use towpath_types::upstream::LoadWeights;

/// Age at which a report counts as unknown: three intervals of the cells' announcements.
pub(crate) const REPORT_MAX_AGE_NS: u64 = 6_000_000_000;

fn share(x: f32) -> f32 {
    if x.is_nan() { 0.0 } else { x.clamp(0.0, 1.0) }
}

fn weight(x: f32) -> f32 {
    if x.is_finite() { x.max(0.0) } else { 0.0 }
}

/// The formula. Inputs outside 0..=1 are cut to it; weights below 0 count as 0.
pub(crate) fn formula(weights: &LoadWeights, load: &ReportedLoad) -> f32 {
    let (h, i) = (&load.host, &load.instance);
    let host = weight(weights.host_cpu) * share(h.cpu)
        + weight(weights.host_mem) * share(h.mem)
        + weight(weights.host_io) * share(h.io);
    let instance = weight(weights.inst_cpu) * share(i.cpu)
        + weight(weights.inst_mem) * share(i.mem)
        + weight(weights.inst_io) * share(i.io);
    let part = share(weights.host_part);
    part * host + (1.0 - part) * instance
}

/// What the formula gives when everything is at its limit.
pub(crate) fn formula_max(weights: &LoadWeights) -> f32 {
    let full = ReportedLoad {
        host: towpath_types::load::HostLoad { cpu: 1.0, mem: 1.0, io: 1.0 },
        instance: towpath_types::load::InstanceLoad { cpu: 1.0, mem: 1.0, io: 1.0 },
    };
    formula(weights, &full)
}

/// The last reported load, after the formula, with its time, in one word: upper half f32 bits, lower half
/// milliseconds (2^20 ns) + 1. 0 = never reported.
#[derive(Debug, Default)]
pub(crate) struct Reported(AtomicU64);

const TICK_BITS: u32 = 20;

fn tick(now: u64) -> u32 {
    (now >> TICK_BITS) as u32
}

impl Reported {
    pub(crate) fn set(&self, now: u64, load: f32) {
        let word = u64::from(load.to_bits()) << 32 | u64::from(tick(now).wrapping_add(1).max(1));
        self.0.store(word, Relaxed);
    }

    /// The load, unless there is no report or it is too old.
    pub(crate) fn get(&self, now: u64) -> Option<f32> {
        let word = self.0.load(Relaxed);
        let age = tick(now).wrapping_add(1).wrapping_sub(word as u32) as i32;
        let fresh = word != 0 && i64::from(age) << TICK_BITS <= REPORT_MAX_AGE_NS as i64;
        fresh.then(|| f32::from_bits((word >> 32) as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::load::{HostLoad, InstanceLoad};

    fn load(host: f32, instance: f32) -> ReportedLoad {
        ReportedLoad {
            host: HostLoad { cpu: host, mem: host, io: 1.0 },
            instance: InstanceLoad { cpu: instance, mem: instance, io: 1.0 },
        }
    }

    #[test]
    fn the_formula_is_the_published_one() {
        let weights = LoadWeights::default();
        assert!((formula(&weights, &load(1.0, 0.0)) - 0.3 * 0.6).abs() < 1e-6);
        assert!((formula(&weights, &load(0.0, 1.0)) - 0.7 * 0.6).abs() < 1e-6);
        assert!((formula(&weights, &load(0.5, 0.25)) - (0.3 * 0.3 + 0.7 * 0.15)).abs() < 1e-6);
        assert!((formula_max(&weights) - 0.6).abs() < 1e-6);
        assert_eq!(formula(&weights, &load(f32::NAN, -3.0)), 0.0);
    }

    #[test]
    fn reports_age() {
        let reported = Reported::default();
        assert_eq!(reported.get(0), None);
        reported.set(0, 0.25);
        assert_eq!(reported.get(0), Some(0.25));
        assert_eq!(reported.get(REPORT_MAX_AGE_NS - 5_000_000), Some(0.25));
        assert_eq!(reported.get(REPORT_MAX_AGE_NS + 5_000_000), None);
        reported.set(10_000_000_000, 0.5);
        assert_eq!(
            reported.get(9_000_000_000),
            Some(0.5),
            "a report from another worker's slightly later now"
        );
    }
}
