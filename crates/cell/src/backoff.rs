//! When an instance that ended by itself is started again.

use crate::settings::RestartSettings;
use std::time::Duration;

/// The decision after an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Restart {
    /// Ends in a row, this one included.
    pub(crate) crashes: u32,
    /// Pause before the next start.
    pub(crate) pause: Duration,
    /// Whether this is a crash loop.
    pub(crate) loops: bool,
}

/// Decides after an end: `crashes` in a row before it, and how long it had been healthy when it ended. The first restart is at
/// once, later pauses double; `jitter` (0..1) moves each by up to a tenth either way, so that neighbours do not start in step.
pub(crate) fn plan_restart(
    settings: &RestartSettings,
    crashes: u32,
    healthy: Duration,
    jitter: f64,
) -> Restart {
    let crashes = if healthy >= settings.healthy_reset { 1 } else { crashes.saturating_add(1) };
    let doublings = crashes.saturating_sub(2).min(20);
    let pause = match crashes {
        0 | 1 => Duration::ZERO,
        _ => settings
            .first
            .saturating_mul(1 << doublings)
            .min(settings.max)
            .mul_f64(0.9 + 0.2 * jitter.clamp(0.0, 1.0)),
    };
    Restart { crashes, pause, loops: crashes >= settings.loop_crashes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_health_makes_them_short_again() {
        let settings = RestartSettings::default();
        let after = |crashes| plan_restart(&settings, crashes, Duration::ZERO, 0.5);
        let pauses: Vec<u64> = (0..9).map(|n| after(n).pause.as_secs()).collect();
        assert_eq!(pauses, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(!after(3).loops && after(4).loops);
        assert_eq!(after(u32::MAX).pause, Duration::from_secs(60));
        let healthy = plan_restart(&settings, 9, Duration::from_secs(30), 0.5);
        assert_eq!(healthy, Restart { crashes: 1, pause: Duration::ZERO, loops: false });
        assert_eq!(plan_restart(&settings, 1, Duration::ZERO, 1.0).pause, Duration::from_millis(1100));
    }
}
