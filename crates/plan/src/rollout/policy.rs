//! How carefully a rollout goes.

use crate::placement::starts::StartLimits;

/// Figures of a rollout. Durations in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct RolloutPolicy {
    /// Instances above the wanted count while versions change, as a share of the count (at least one), 0..=1.
    pub surge: f64,
    /// Longest wait for a draining instance's requests.
    pub drain_ms: u64,
    /// Silence of a cell after which its instances are replaced elsewhere.
    pub lost_ms: u64,
    /// Added to an instance's start time-out for fetching and unpacking its release.
    pub prepare_ms: u64,
    /// Crashes before the first success that make a new version fail.
    pub crashes: u32,
    /// How long an instance may be unhealthy before it is replaced.
    pub unhealthy_ms: u64,
    /// Pause before the second replacement of a broken instance; doubles up to `replace_max_ms`.
    pub replace_ms: u64,
    /// Longest pause between replacements.
    pub replace_max_ms: u64,
    /// Quiet time after which the pauses begin from the start.
    pub replace_reset_ms: u64,
    /// Memory that may be promised to a cell's instances, as a multiple of what it has.
    pub overcommit: f64,
    /// Instances that one manager starts in a second, over time.
    pub starts_per_second: f64,
    /// Those of them that take the place of instances on lost cells.
    pub replaced_per_second: f64,
    /// Instances that a cell may be starting at the same time.
    pub starts_per_cell: u32,
}

impl Default for RolloutPolicy {
    fn default() -> Self {
        Self {
            surge: 0.25,
            drain_ms: 30_000,
            lost_ms: 20_000,
            prepare_ms: 60_000,
            crashes: 3,
            unhealthy_ms: 60_000,
            replace_ms: 10_000,
            replace_max_ms: 300_000,
            replace_reset_ms: 600_000,
            overcommit: 2.0,
            starts_per_second: 250.0,
            replaced_per_second: 50.0,
            starts_per_cell: 16,
        }
    }
}

impl RolloutPolicy {
    /// Checks everything; the error lists all that is wrong, each with its field.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        if !(0.0..=1.0).contains(&self.surge) {
            wrong.push("rollout.surge: has to be between 0 and 1".to_owned());
        }
        if !(self.overcommit.is_finite() && self.overcommit >= 0.1) {
            wrong.push("rollout.overcommit: has to be a number of at least 0.1".to_owned());
        }
        if self.lost_ms < 6_000 {
            wrong.push("rollout.lost: has to be at least 6s, since cells announce every 2s".to_owned());
        }
        if self.crashes == 0 {
            wrong.push("rollout.crashes: has to be at least 1".to_owned());
        }
        for (field, rate) in
            [("starts_per_second", self.starts_per_second), ("replaced_per_second", self.replaced_per_second)]
        {
            if !(rate.is_finite() && rate >= 0.1) {
                wrong.push(format!("rollout.{field}: has to be a number of at least 0.1"));
            }
        }
        if self.starts_per_cell == 0 {
            wrong.push("rollout.starts_per_cell: has to be at least 1".to_owned());
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// The figures of starting.
    pub fn start_limits(&self) -> StartLimits {
        StartLimits {
            per_second: self.starts_per_second,
            replaced_per_second: self.replaced_per_second,
            per_cell: self.starts_per_cell,
        }
    }

    /// Instances above `count` that may run while versions change.
    pub fn surge_of(&self, count: u32) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32 fits")]
        let share = (f64::from(count) * self.surge).ceil() as u32;
        share.max(1)
    }
}
