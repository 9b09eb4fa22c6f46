//! From single probes to a verdict.

use std::time::{Duration, Instant};
use towpath_types::health::HealthCheck;

/// What is known of an instance's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not ready yet.
    Starting,
    /// It has never become ready in the permitted time.
    StartFailed,
    /// Healthy.
    Ready,
    /// Fails its checks.
    Unhealthy,
    /// Has failed them for so long that it should be started anew.
    Hopeless,
}

/// The history that a verdict needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Health {
    began: Instant,
    ready_since: Option<Instant>,
    failures: u32,
    unhealthy_since: Option<Instant>,
}

impl Health {
    /// Of an instance that starts now.
    pub(crate) fn starting(now: Instant) -> Self {
        Self { began: now, ready_since: None, failures: 0, unhealthy_since: None }
    }

    /// Of an adopted instance that was ready.
    pub(crate) fn ready(now: Instant) -> Self {
        Self { ready_since: Some(now), ..Self::starting(now) }
    }

    /// How long it has been healthy without a break.
    pub(crate) fn healthy_for(&self, now: Instant) -> Duration {
        match (self.ready_since, self.unhealthy_since) {
            (Some(since), None) => now.saturating_duration_since(since),
            _ => Duration::ZERO,
        }
    }

    /// Takes the result of a probe.
    pub(crate) fn judge(&mut self, check: &HealthCheck, passed: bool, now: Instant) -> Verdict {
        if passed {
            self.failures = 0;
            if self.ready_since.is_none() || self.unhealthy_since.is_some() {
                self.ready_since = Some(now);
            }
            self.unhealthy_since = None;
            return Verdict::Ready;
        }
        let too_long =
            |since: Instant| now.saturating_duration_since(since) >= check.start_timeout.duration();
        if self.ready_since.is_none() {
            return if too_long(self.began) { Verdict::StartFailed } else { Verdict::Starting };
        }
        self.failures = self.failures.saturating_add(1);
        if self.failures < check.failures.max(1) {
            return Verdict::Ready;
        }
        // A sick instance gets as long to recover as a new one gets to start.
        let since = *self.unhealthy_since.get_or_insert(now);
        if too_long(since) { Verdict::Hopeless } else { Verdict::Unhealthy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::Millis;

    #[test]
    fn verdicts_follow_the_probes() {
        let check = HealthCheck { failures: 2, start_timeout: Millis::secs(10), ..HealthCheck::default() };
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut health = Health::starting(start);
        assert_eq!(health.judge(&check, false, at(9)), Verdict::Starting);
        assert_eq!(Health::starting(start).judge(&check, false, at(10)), Verdict::StartFailed);
        assert_eq!(health.judge(&check, true, at(10)), Verdict::Ready);
        assert_eq!(health.judge(&check, false, at(15)), Verdict::Ready);
        assert_eq!(health.healthy_for(at(16)), Duration::from_secs(6));
        assert_eq!(health.judge(&check, false, at(20)), Verdict::Unhealthy);
        assert_eq!(health.healthy_for(at(20)), Duration::ZERO);
        assert_eq!(health.judge(&check, false, at(29)), Verdict::Unhealthy);
        assert_eq!(health.judge(&check, false, at(30)), Verdict::Hopeless);
        assert_eq!(health.judge(&check, true, at(31)), Verdict::Ready);
        assert_eq!(health.healthy_for(at(32)), Duration::from_secs(1));
        assert_eq!(health.judge(&check, false, at(33)), Verdict::Ready);
    }
}
