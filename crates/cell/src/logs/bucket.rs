//! A token bucket whose clock is an argument.

use std::time::Instant;

/// So many a second in the long run, a burst after a quiet time.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: u64,
    burst: u64,
    level: u64,
    filled: Instant,
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(rate: u64, burst: u64, now: Instant) -> Self {
        Self { rate, burst, level: burst, filled: now }
    }

    /// Adds what time has brought.
    pub(crate) fn refill(&mut self, now: Instant) {
        let new = gained(self.rate, self.filled, now);
        // Fractions must not be lost when this is called often.
        if new > 0 {
            self.level = self.level.saturating_add(new).min(self.burst);
            self.filled = now;
        }
    }

    /// What is in it.
    pub(crate) fn level(&self) -> u64 {
        self.level
    }

    /// Whether nothing is, or will be after a refill now.
    pub(crate) fn is_empty(&self, now: Instant) -> bool {
        self.level == 0 && gained(self.rate, self.filled, now) == 0
    }

    /// Takes out so many, down to nothing.
    pub(crate) fn take(&mut self, n: u64) {
        self.level = self.level.saturating_sub(n);
    }
}

fn gained(rate: u64, from: Instant, to: Instant) -> u64 {
    let micros = u64::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u64::MAX);
    rate.saturating_mul(micros.min(60_000_000)) / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn it_fills_at_its_rate_up_to_the_burst_and_loses_no_fractions() {
        let start = Instant::now();
        let mut bucket = Bucket::new(100, 50, start);
        bucket.take(60);
        assert!(bucket.is_empty(start));
        for ms in 1..=100 {
            bucket.refill(start + Duration::from_millis(ms));
        }
        assert_eq!(bucket.level(), 10);
        bucket.refill(start + Duration::from_secs(3600));
        assert_eq!(bucket.level(), 50);
    }
}
