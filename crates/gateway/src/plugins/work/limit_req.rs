//! `limit-req`: so many requests in a second for each value of a key, evenly (a leaky bucket).

use super::counters::Counters;
use super::limit_key::LimitKey;
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::limit_req::Config;

/// See the module.
pub(in crate::plugins) struct LimitReq {
    config: Arc<Config>,
    key: LimitKey,
    counted: Arc<Counters<Bucket>>,
}

/// What is in the bucket of one value of the key.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::plugins) struct Bucket {
    /// Requests above the rate.
    excess: f64,
    last_ns: u64,
}

impl Bucket {
    /// One more, if it fits in: how long it waits, in seconds.
    fn take(&mut self, now: u64, rate: f64, burst: f64) -> Option<f64> {
        let excess = if self.last_ns == 0 {
            0.0
        } else {
            let passed = now.saturating_sub(self.last_ns) as f64 / 1e9;
            (self.excess - rate * passed + 1.0).max(0.0)
        };
        // A hair above is the arithmetic's, not the client's.
        if excess > burst + 1e-9 {
            return None;
        }
        *self = Self { excess, last_ns: now.max(1) };
        Some(excess / rate)
    }

    fn is_empty(&self, now: u64, rate: f64) -> bool {
        self.excess - rate * (now.saturating_sub(self.last_ns) as f64 / 1e9) + 1.0 <= 0.0
    }
}

impl LimitReq {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let counted = scope.plugins.states.kept(
            &format!("{}/limit-req", scope.from),
            clock::now_ns(),
            Counters::default,
        );
        Self { key: LimitKey::of_conn(config.key_type, &config.key), config: config.clone(), counted }
    }
}

impl Plugin for LimitReq {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let key = self.key.value(&request.vars());
        let (now, rate) = (clock::now_ns(), self.config.rate);
        let wait = self.counted.with(
            &key,
            |bucket| bucket.is_empty(now, rate),
            |bucket| bucket.take(now, rate, self.config.burst),
        );
        match (wait, &self.config.rejected_msg) {
            (None, Some(message)) => Step::answer(Answer::error_msg(self.config.rejected_code, message)),
            (None, None) => Step::answer(Answer::status(self.config.rejected_code)),
            (Some(wait), _) if wait < 0.001 || self.config.nodelay => Step::Next,
            (Some(wait), _) => Step::pause(Duration::try_from_secs_f64(wait).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_above_the_rate_wait_and_those_above_the_burst_are_refused() {
        const S: u64 = 1_000_000_000;
        let mut bucket = Bucket::default();
        let mut take = |at: u64| bucket.take(1000 * S + at, 10.0, 2.0);
        assert_eq!(take(0), Some(0.0));
        assert_eq!(take(0), Some(0.1));
        assert_eq!(take(0), Some(0.2));
        assert_eq!(take(0), None);
        assert_eq!(take(0), None, "a refused one does not count");
        assert_eq!(take(S / 10), Some(0.2));
        assert_eq!(take(10 * S), Some(0.0));
    }
}
