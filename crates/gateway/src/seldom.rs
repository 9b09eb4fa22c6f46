//! Log lines of what goes on happening: the first at once, then one a minute.

/// Least time between two lines.
const INTERVAL_MS: u64 = 60_000;

/// Says when there may be a line.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    next_ms: u64,
    left_out: u64,
}

impl Seldom {
    /// It has happened (again). `Some` = say so, and that so many were left out since the last time.
    pub(crate) fn now(&mut self, now_ms: u64) -> Option<u64> {
        if now_ms < self.next_ms {
            self.left_out += 1;
            return None;
        }
        self.next_ms = now_ms + INTERVAL_MS;
        Some(std::mem::take(&mut self.left_out))
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
}
