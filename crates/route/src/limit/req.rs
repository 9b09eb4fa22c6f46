//! A leaky bucket: so many a second, a few more wait or pass at once, as nginx's `limit_req` and APISIX's `limit-req`.

use super::{Limits, New, Part, STATE_MAX, Stake, ms_up};
use crate::MS;
use std::sync::Arc;

/// A limiter by rate. The state of a key is the time at which all that it was permitted has leaked away at the rate.
#[derive(Debug)]
pub struct Req(Part);

impl Req {
    /// The limiter of this name.
    pub fn new(limits: &Arc<Limits>, name: &str) -> Self {
        Self(Part::new(limits, "req", name))
    }

    /// The key of a text.
    pub fn key(&self, text: &[u8]) -> u64 {
        self.0.key(0, text)
    }

    /// Takes one request at `rate` a second, with up to `burst` in excess of it; nanoseconds that the request has to wait to
    /// keep the rate (a caller without delay ignores them), or `None` if it is one too many.
    pub fn take(&self, now: u64, key: u64, rate: f64, burst: f64) -> Option<u64> {
        let step = (1e9 / rate.max(1e-9)).ceil() as u64;
        let most = (burst.max(0.0) * step as f64).floor() as u64;
        let now = now.min(STATE_MAX / 2);
        let next = |state: Option<u64>| {
            let empty = state.map_or(now, |empty| empty.saturating_add(step)).max(now);
            let wait = empty - now;
            if wait > most || empty > STATE_MAX {
                return (None, None);
            }
            let leaked = empty.saturating_add(step);
            let stake = Stake::new(ms_up(leaked), ms_up(leaked - now), ms_up(most.saturating_add(step)));
            (Some(New { state: empty, stake }), Some(wait))
        };
        self.0.limits.counts.change(key, now / MS, next).1
    }
}
