//! So many in any window, estimated from two fixed ones: the last one counts by the share of it that the window still covers.

use super::{Limits, New, Part, Stake, Taken};
use crate::MS;
use std::sync::Arc;

const BITS: u32 = 20;
const MASK: u64 = (1 << BITS) - 1;

/// A limiter by sliding windows. Limits up to 1,048,575 are exact; larger ones count as that.
#[derive(Debug)]
pub struct Sliding(Part);

impl Sliding {
    /// The limiter of this name.
    pub fn new(limits: &Arc<Limits>, name: &str) -> Self {
        Self(Part::new(limits, "sliding", name))
    }

    /// The key of a text; `sort` = which one of several limits under one name. Windows of different lengths are different
    /// limits.
    pub fn key(&self, sort: u64, text: &[u8]) -> u64 {
        self.0.key(sort, text)
    }

    /// Takes `cost` of `limit` in the last `window_ms`, or nothing if that would be too much.
    pub fn take(&self, now: u64, key: u64, limit: u64, window_ms: u64, cost: u64) -> Taken {
        let (now_ms, length, limit) = (now / MS, window_ms.max(1), limit.min(MASK));
        let (window, rest) = ((now_ms / length) & MASK, length - now_ms % length);
        // the last and the present count of a state, as it stands in this window
        let counts = |state: Option<u64>| {
            let state = state.unwrap_or_default();
            let (at, last, count) = (state >> (2 * BITS), state >> BITS & MASK, state & MASK);
            match window.wrapping_sub(at) & MASK {
                0 => (last, count),
                1 => (count, 0),
                // another worker is a moment ahead
                behind if behind == MASK => (last, count),
                _ => (0, 0),
            }
        };
        let next = |state: Option<u64>| {
            let (last, count) = counts(state);
            let still = (u128::from(last) * u128::from(rest)).div_ceil(u128::from(length)) as u64;
            let used = count + still;
            match used.checked_add(cost).filter(|sum| *sum <= limit) {
                Some(sum) => {
                    let taken = Taken { allowed: true, remaining: limit - sum, reset_ms: rest };
                    let state = window << (2 * BITS) | last << BITS | (count + cost);
                    // what is counted now still counts in the next window
                    let stake = Stake::new((now_ms + rest).saturating_add(length), sum, limit);
                    (Some(New { state, stake }), taken)
                }
                None => {
                    (None, Taken { allowed: false, remaining: limit.saturating_sub(used), reset_ms: rest })
                }
            }
        };
        self.0.limits.counts.change(key, now_ms, next).1
    }
}
