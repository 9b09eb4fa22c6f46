//! A bounded number of places, of which nobody gets more than half: so one noisy org leaves some to the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The places.
#[derive(Debug, Clone)]
pub(crate) struct Shares {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by: HashMap<String, usize>,
}

/// A place; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Share {
    taken: Arc<Mutex<Taken>>,
    who: String,
}

impl Shares {
    /// So many.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    /// A place for one of these, if there is one left for it.
    pub(crate) fn take(&self, who: &str) -> Option<Share> {
        let mut taken = lock(&self.taken);
        let own = taken.by.get(who).copied().unwrap_or_default();
        if taken.all >= self.most || own >= self.most.div_ceil(2) {
            return None;
        }
        taken.all += 1;
        *taken.by.entry(who.to_owned()).or_default() += 1;
        Some(Share { taken: self.taken.clone(), who: who.to_owned() })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        taken.all -= 1;
        if let Some(own) = taken.by.get_mut(&self.who) {
            *own -= 1;
            if *own == 0 {
                taken.by.remove(&self.who);
            }
        }
    }
}

fn lock(taken: &Mutex<Taken>) -> MutexGuard<'_, Taken> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_more_than_half() {
        let shares = Shares::new(10);
        let noisy: Vec<_> = (0..100).filter_map(|_| shares.take("noisy")).collect();
        assert_eq!(noisy.len(), 5);
        let mut others: Vec<_> = (0..100).filter_map(|n| shares.take(&format!("org-{n}"))).collect();
        assert_eq!(others.len(), 5);
        others.pop();
        assert!(shares.take("noisy").is_none());
        let one = shares.take("quiet").unwrap();
        assert!(shares.take("other").is_none());
        drop((noisy, others, one));
        assert!(lock(&shares.taken).by.is_empty() && lock(&shares.taken).all == 0);
    }
}
