//! How often somebody may try: counted by whatever is tried, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Counts attempts in windows that begin with the first one.
#[derive(Debug)]
pub(crate) struct Attempts<K> {
    permitted: u32,
    by_key: Mutex<HashMap<K, (Instant, u32)>>,
}

impl<K: Hash + Eq + Clone> Attempts<K> {
    /// The window.
    pub(crate) const WINDOW: Duration = Duration::from_secs(60);
    /// Keys remembered; beyond it the oldest half is forgotten.
    pub(crate) const KEYS: usize = 4096;

    /// Permits so many attempts per window.
    pub(crate) fn new(permitted: u32) -> Self {
        Self { permitted, by_key: Mutex::default() }
    }

    /// Notes an attempt; `Some` = too many, come back after that time.
    pub(crate) fn note(&self, key: &K, now: Instant) -> Option<Duration> {
        let mut map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= Self::KEYS && !map.contains_key(key) {
            map.retain(|_, (since, _)| now.duration_since(*since) < Self::WINDOW);
            if map.len() >= Self::KEYS {
                let mut starts: Vec<Instant> = map.values().map(|(since, _)| *since).collect();
                starts.sort_unstable();
                let middle = starts.get(starts.len() / 2).copied().unwrap_or(now);
                map.retain(|_, (since, _)| *since > middle);
            }
        }
        let (since, count) = map.entry(key.clone()).or_insert((now, 0));
        if now.duration_since(*since) >= Self::WINDOW {
            (*since, *count) = (now, 0);
        }
        *count = count.saturating_add(1);
        (*count > self.permitted).then(|| Self::WINDOW.saturating_sub(now.duration_since(*since)))
    }

    /// Whether the next attempt would be one too many; `Some` = come back after that time.
    pub(crate) fn used_up(&self, key: &K, now: Instant) -> Option<Duration> {
        let map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = map.get(key)?;
        let left = Self::WINDOW.saturating_sub(now.duration_since(*since));
        (*count >= self.permitted && !left.is_zero()).then_some(left)
    }

    /// An attempt that was no guess after all.
    pub(crate) fn forgive(&self, key: &K) {
        let mut map = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = map.get_mut(key) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_limited_by_key_and_the_map_is_bounded() {
        let attempts = Attempts::new(3);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(attempts.note(&1_u32, now), None);
        }
        assert!(attempts.used_up(&1_u32, now).is_some());
        assert!(attempts.note(&1, now).is_some());
        assert_eq!(attempts.used_up(&1, now + Attempts::<u32>::WINDOW), None);
        assert_eq!(attempts.note(&2, now), None);
        assert_eq!(attempts.note(&1, now + Attempts::<u32>::WINDOW), None);
        attempts.forgive(&1);
        for _ in 0..3 {
            assert_eq!(attempts.note(&1, now + Attempts::<u32>::WINDOW), None);
        }
        for n in 0..20_000 {
            attempts.note(&n, now);
        }
        assert!(attempts.by_key.lock().unwrap().len() <= Attempts::<u32>::KEYS);
    }
}
