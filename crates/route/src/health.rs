//! Health of a node by checks: what APISIX's `checks` mean, as a value that whoever probes and proxies tells what happened.
//!
//! Good reports count in a row and make the counts of bad ones zero; bad ones count by their kind and make the count of good
//! ones zero. A count that reaches its threshold turns the node over.

use crate::status::Statuses;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Thresholds of active or passive checks; 0 = this kind of report counts for nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Statuses that are good.
    pub good: Statuses,
    /// Good reports in a row that make healthy.
    pub successes: u8,
    /// Statuses that are bad; one that is neither says nothing.
    pub bad: Statuses,
    /// Bad statuses that make unhealthy.
    pub http_failures: u8,
    /// Failed connections that make unhealthy.
    pub tcp_failures: u8,
    /// Timeouts that make unhealthy.
    pub timeouts: u8,
}

impl Thresholds {
    /// APISIX's defaults of `checks.active`.
    pub fn active() -> Self {
        Self {
            good: Statuses::of(&[200, 302]),
            successes: 2,
            bad: Statuses::of(&[429, 404, 500, 501, 502, 503, 504, 505]),
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 3,
        }
    }

    /// APISIX's defaults of `checks.passive`.
    pub fn passive() -> Self {
        let good =
            [200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 306, 307, 308];
        Self {
            good: Statuses::of(&good),
            successes: 5,
            bad: Statuses::of(&[429, 500, 503]),
            http_failures: 5,
            tcp_failures: 2,
            timeouts: 7,
        }
    }
}

/// What happened to a probe or a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// An answer with this status.
    Status(u16),
    /// A connection was made, and nothing more was wanted (`type: tcp`).
    Connected,
    /// No connection, or it broke.
    Failed,
    /// No connection or answer in time.
    TimedOut,
}

/// What is known of a node. Lives as long as the node does, whatever is edited around it; lock-free.
#[derive(Debug, Default)]
pub struct Checker(AtomicU64);

/// Bits of the state: unhealthy (1), then four counts of eight bits.
const UNHEALTHY: u64 = 1 << 63;
const SUCCESSES: u32 = 0;
const HTTP: u32 = 8;
const TCP: u32 = 16;
const TIMEOUTS: u32 = 24;
const FAILURES: u64 = 0xffff_ff00;

/// What a report counts as, and its threshold.
fn count(report: Report, rules: &Thresholds) -> Option<(u32, u8)> {
    match report {
        Report::Status(status) if rules.good.contains(status) => Some((SUCCESSES, rules.successes)),
        Report::Status(status) if rules.bad.contains(status) => Some((HTTP, rules.http_failures)),
        Report::Status(_) => None,
        Report::Connected => Some((SUCCESSES, rules.successes)),
        Report::Failed => Some((TCP, rules.tcp_failures)),
        Report::TimedOut => Some((TIMEOUTS, rules.timeouts)),
    }
}

impl Checker {
    /// A node in this state, with nothing counted.
    pub fn new(healthy: bool) -> Self {
        Self(AtomicU64::new(if healthy { 0 } else { UNHEALTHY }))
    }

    /// Whether requests may go to the node.
    pub fn healthy(&self) -> bool {
        self.0.load(Relaxed) & UNHEALTHY == 0
    }

    /// Counts a report by the thresholds of the check that it is of; `Some` = the node turned over: it is healthy now, or not.
    pub fn report(&self, report: Report, rules: &Thresholds) -> Option<bool> {
        let (shift, threshold) = count(report, rules).filter(|(_, threshold)| *threshold > 0)?;
        let good = shift == SUCCESSES;
        let mut word = self.0.load(Relaxed);
        loop {
            let healthy = word & UNHEALTHY == 0;
            let sum = (word >> shift & 0xff) + 1;
            let turns = healthy != good && sum >= u64::from(threshold);
            let side = word & UNHEALTHY;
            let next = if turns {
                side ^ UNHEALTHY
            } else if healthy == good {
                side
            } else if good {
                side | sum << shift
            } else {
                word & FAILURES & !(0xff << shift) | sum << shift
            };
            if next == word {
                return None;
            }
            match self.0.compare_exchange_weak(word, next, Relaxed, Relaxed) {
                Ok(_) => return turns.then_some(good),
                Err(other) => word = other,
            }
        }
    }

    /// When the next probe is due after one at `last`, by the intervals of healthy and of unhealthy nodes.
    pub fn next_probe(&self, last: u64, healthy_every: u64, unhealthy_every: u64) -> u64 {
        last.saturating_add(if self.healthy() { healthy_every } else { unhealthy_every })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules() -> Thresholds {
        Thresholds { successes: 2, http_failures: 3, tcp_failures: 2, timeouts: 2, ..Thresholds::active() }
    }

    fn after(checker: &Checker, reports: &[Report]) -> Vec<Option<bool>> {
        reports.iter().map(|report| checker.report(*report, &rules())).collect()
    }

    const GOOD: Report = Report::Status(200);
    const BAD: Report = Report::Status(500);
    const OTHER: Report = Report::Status(418);

    #[test]
    fn kinds_of_failures_count_apart_and_a_success_forgets_them() {
        let checker = Checker::new(true);
        assert_eq!(after(&checker, &[BAD, BAD, Report::Failed, Report::TimedOut, OTHER]), [None; 5]);
        assert_eq!(after(&checker, &[GOOD, BAD, BAD]), [None; 3]);
        assert_eq!(checker.report(BAD, &rules()), Some(false));
        assert!(!checker.healthy());
        assert_eq!(after(&checker, &[BAD, Report::Failed, GOOD, Report::TimedOut, GOOD, OTHER]), [None; 6]);
        assert_eq!(checker.report(Report::Connected, &rules()), Some(true));
        assert_eq!(after(&checker, &[Report::Failed, Report::Failed]), [None, Some(false)]);
    }

    #[test]
    fn a_threshold_of_zero_switches_a_kind_off() {
        let checker = Checker::new(true);
        let off = Thresholds { timeouts: 0, successes: 0, ..rules() };
        (0..300).for_each(|_| assert_eq!(checker.report(Report::TimedOut, &off), None));
        assert_eq!(checker.report(Report::Failed, &off), None);
        assert_eq!(checker.report(GOOD, &off), None, "does not count, so it forgets nothing");
        assert_eq!(checker.report(Report::Failed, &off), Some(false));
    }

    #[test]
    fn probes_follow_the_state() {
        let checker = Checker::new(false);
        assert_eq!(checker.next_probe(10, 5, 1), 11);
        after(&checker, &[GOOD, GOOD]);
        assert_eq!(checker.next_probe(10, 5, 1), 15);
    }

    proptest! {
        #[test]
        fn it_counts_like_a_reader_of_the_rules(reports in prop::collection::vec(0..5_u8, 0..300)) {
            let (checker, rules) = (Checker::new(true), rules());
            let (mut healthy, mut good, mut bad) = (true, 0, [0; 3]);
            for number in reports {
                let report = [GOOD, BAD, Report::Failed, Report::TimedOut, OTHER][usize::from(number)];
                let mut turned = None;
                if number == 0 {
                    (good, bad) = (good + 1, [0; 3]);
                    if !healthy && good >= rules.successes {
                        (healthy, turned, good) = (true, Some(true), 0);
                    }
                } else if number < 4 {
                    let limit = [rules.http_failures, rules.tcp_failures, rules.timeouts][usize::from(number - 1)];
                    let count = &mut bad[usize::from(number - 1)];
                    (good, *count) = (0, *count + 1);
                    if healthy && *count >= limit {
                        (healthy, turned, bad) = (false, Some(false), [0; 3]);
                    }
                }
                if healthy {
                    good = 0;
                } else {
                    bad = [0; 3];
                }
                prop_assert_eq!(checker.report(report, &rules), turned);
                prop_assert_eq!(checker.healthy(), healthy);
            }
        }
    }
}
