//! Log lines of what goes on happening: the first at once, then one a minute.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

/// Least time between two lines.
const INTERVAL_MS: u64 = 60_000;

/// Says when there may be a line.
#[derive(Debug, Default)]
pub struct Seldom {
    next_ms: u64,
    left_out: u64,
}

impl Seldom {
    /// Nothing has happened yet.
    pub const fn new() -> Self {
        Self { next_ms: 0, left_out: 0 }
    }

    /// It has happened (again). `Some` = say so, and that so many were left out since the last time.
    pub fn now(&mut self, now_ms: u64) -> Option<u64> {
        if now_ms < self.next_ms {
            self.left_out += 1;
            return None;
        }
        self.next_ms = now_ms + INTERVAL_MS;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Likewise for a place in the code that has no state of its own: a `static` there.
#[derive(Debug)]
pub struct SeldomHere(Mutex<Seldom>);

impl SeldomHere {
    /// Nothing has happened yet.
    #[expect(clippy::new_without_default, reason = "only a constant function can make a static")]
    pub const fn new() -> Self {
        Self(Mutex::new(Seldom::new()))
    }

    /// It has happened (again). `Some` = say so, with this behind it: empty, or ` (and 12 more)`.
    pub fn now(&self) -> Option<String> {
        static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
        let now_ms = u64::try_from(BEGAN.elapsed().as_millis()).unwrap_or(u64::MAX);
        let left_out = self.0.lock().unwrap_or_else(PoisonError::into_inner).now(now_ms)?;
        Some(if left_out == 0 { String::new() } else { format!(" (and {left_out} more)") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_then_one_a_minute_with_the_number_of_the_others() {
        let mut seldom = Seldom::default();
        assert_eq!(seldom.now(5), Some(0));
        assert_eq!((seldom.now(6), seldom.now(60_000)), (None, None));
        assert_eq!(seldom.now(60_005), Some(2));
        assert_eq!(seldom.now(120_005), Some(0));
    }

    #[test]
    fn a_place_in_the_code_is_told_once() {
        static HERE: SeldomHere = SeldomHere::new();
        assert_eq!(HERE.now(), Some(String::new()));
        assert_eq!(HERE.now(), None);
    }
}
