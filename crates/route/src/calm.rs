//! Which apps are calm: no endpoint of them is ejected or ramps up. Few words for all apps together, so that they stay in
//! the cache; apps that share a word are disturbed together, which costs them the long way to an endpoint and nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WORDS: usize = 1024;

/// Until when the apps of each word are disturbed. Outlives versions of the table.
#[derive(Debug)]
pub(crate) struct Calm([AtomicU64; WORDS]);

impl Default for Calm {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; WORDS])
    }
}

impl Calm {
    /// Whether the app in this slot is calm.
    pub(crate) fn is(&self, slot: u32, now: u64) -> bool {
        self.0.get(slot as usize % WORDS).is_some_and(|until| until.load(Relaxed) <= now)
    }

    /// The app in this slot is disturbed until then.
    pub(crate) fn disturb(&self, slot: u32, until: u64) {
        if let Some(word) = self.0.get(slot as usize % WORDS) {
            word.fetch_max(until, Relaxed);
        }
    }
}
