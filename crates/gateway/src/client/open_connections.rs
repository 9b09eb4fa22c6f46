//! How many client connections the process has, and may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Shared by all workers; touched once when a connection comes and once when it goes.
#[derive(Debug, Clone)]
pub(crate) struct OpenConnections {
    now: Arc<AtomicUsize>,
    most: usize,
}

impl OpenConnections {
    /// None yet, at most so many.
    pub(crate) fn new(most: usize) -> Self {
        Self { now: Arc::default(), most }
    }

    /// Takes the place of one, if there is one.
    pub(crate) fn take_one(&self) -> bool {
        let more = |now: usize| (now < self.most).then_some(now + 1);
        self.now.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// The same while fewer than half of all places are taken: for clients whose address proves nothing.
    pub(crate) fn take_one_of_half(&self) -> bool {
        let more = |now: usize| (now < self.most / 2).then_some(now + 1);
        self.now.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Gives a place back.
    pub(crate) fn give_back(&self) {
        self.now.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_are_those_of_all_workers_together() {
        let one = OpenConnections::new(3);
        let other = one.clone();
        assert!(one.take_one() && one.take_one() && other.take_one());
        assert!(!one.take_one() && !other.take_one());
        one.give_back();
        assert!(other.take_one() && !one.take_one());
        assert!(!one.take_one_of_half(), "more than half are taken");
        let four = OpenConnections::new(4);
        assert!(
            four.take_one_of_half() && four.take_one_of_half() && !four.take_one_of_half() && four.take_one()
        );
    }
}
