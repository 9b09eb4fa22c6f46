//! How often somebody may try: counted by whatever is tried, in bounded memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What is counted of an address: it, or an IPv6 address's first 64 bits, since whoever has one has all that begin so.
pub(crate) fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        address => address,
    }
}

/// Counts attempts in windows that begin with the first one.
#[derive(Debug)]
pub(crate) struct Attempts<K> {
    permitted: u32,
    by_key: Mutex<HashMap<K, (Instant, u32)>>,
}

impl<K: Hash + Eq + Clone> Attempts<K> {
    /// The window.
    pub(crate) const WINDOW: Duration = Duration::from_secs(60);
    /// Keys remembered; beyond it the half with the fewest attempts is forgotten, so that many made-up keys do not push out
    /// one that somebody goes on trying.
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
                let mut counts: Vec<(u32, Instant)> =
                    map.values().map(|(since, count)| (*count, *since)).collect();
                counts.sort_unstable();
                let middle = counts.get(counts.len() / 2).copied().unwrap_or((0, now));
                map.retain(|_, (since, count)| (*count, *since) > middle);
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

    #[test]
    fn many_made_up_keys_do_not_reset_one_that_is_tried_again_and_again() {
        let attempts = Attempts::new(3);
        let now = Instant::now();
        for _ in 0..3 {
            assert_eq!(attempts.note(&u32::MAX, now), None);
        }
        for n in 0..20_000 {
            attempts.note(&n, now + Duration::from_millis(u64::from(n)));
        }
        assert!(attempts.used_up(&u32::MAX, now + Duration::from_secs(20)).is_some());
        assert!(attempts.by_key.lock().unwrap().len() <= Attempts::<u32>::KEYS);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address() {
        let of = |text: &str| counted(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!((of("192.0.2.7"), of("::ffff:192.0.2.7")), ("192.0.2.7".into(), "192.0.2.7".into()));
    }
}
