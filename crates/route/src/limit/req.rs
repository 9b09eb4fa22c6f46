//! A leaky bucket: so many a second, a few more wait or pass at once, as nginx's `limit_req` and APISIX's `limit-req`.

use super::{Keys, STATE_MAX};

/// A limiter by rate. The state of a key is the time at which all that it was permitted has leaked away at the rate.
#[derive(Debug)]
pub struct Req(Keys);

impl Req {
    /// Room for so many keys at a time.
    pub fn new(keys: usize) -> Self {
        Self(Keys::new(keys))
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
            if wait > most || empty > STATE_MAX { (None, None) } else { (Some(empty), Some(wait)) }
        };
        self.0.change(key, |state| state.saturating_add(step).saturating_sub(now), next).1
    }
}
