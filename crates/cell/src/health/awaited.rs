//! Waiting for an app to listen on its port.

use super::listener::{Listener, Listeners};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// After so long without a listener the caller judges the instance.
const SLICE: Duration = Duration::from_millis(100);

/// So many instances may each be looked at every millisecond; more share the looks. One costs some 5 µs.
const AT_FULL_PACE: usize = 16;

/// The instances of a cell that are waited for at the moment.
#[derive(Clone, Default)]
pub(crate) struct Crowd(Arc<AtomicUsize>);

impl Crowd {
    fn enter(&self) -> InCrowd {
        self.0.fetch_add(1, Ordering::Relaxed);
        InCrowd(self.clone())
    }

    fn size(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

struct InCrowd(Crowd);

impl Drop for InCrowd {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What came of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// This one listens now.
    Listens(Listener),
    /// Nobody does yet.
    Silence,
    /// The kernel does not say.
    Unknown,
}

/// Waits a while for a listener at `at`, of an instance that was started at `since`.
pub(crate) async fn await_listener(at: SocketAddr, since: Instant, crowd: Crowd) -> Awaited {
    let Ok(listeners) = Listeners::open() else { return Awaited::Unknown };
    let _place = crowd.enter();
    let end = Instant::now() + SLICE;
    loop {
        match listeners.find(at) {
            Ok(Some(listener)) => return Awaited::Listens(listener),
            Ok(None) if Instant::now() >= end => return Awaited::Silence,
            Ok(None) => tokio::time::sleep(look_pause(since.elapsed(), crowd.size())).await,
            Err(_) => return Awaited::Unknown,
        }
    }
}

/// Pause between two looks: shortest while most apps begin to listen, and longer the more instances start at once.
fn look_pause(age: Duration, waiting: usize) -> Duration {
    let alone = match age.as_secs() {
        0..10 => 1,
        10..30 => 5,
        30..120 => 20,
        _ => 100,
    };
    let share = u32::try_from(waiting.div_ceil(AT_FULL_PACE)).unwrap_or(u32::MAX).max(1);
    Duration::from_millis(alone).saturating_mul(share)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn looks_are_rarer_with_age_and_in_a_crowd() {
        let ms = |age, waiting| look_pause(Duration::from_secs(age), waiting).as_millis();
        assert_eq!([ms(0, 1), ms(9, 16), ms(9, 17), ms(0, 160)], [1, 1, 2, 10]);
        assert_eq!([ms(10, 1), ms(30, 1), ms(120, 1), ms(10, 0)], [5, 20, 100, 5]);
    }

    #[tokio::test]
    async fn a_listener_ends_the_wait_and_silence_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let crowd = Crowd::default();
        let waited = await_listener(at, Instant::now(), crowd.clone()).await;
        assert!(matches!(waited, Awaited::Listens(_)), "{waited:?}");
        let waiting =
            tokio::spawn(await_listener("127.0.0.3:1".parse().unwrap(), Instant::now(), crowd.clone()));
        assert_eq!(waiting.await.unwrap(), Awaited::Silence);
        assert_eq!(crowd.size(), 0);
    }
}
