//! Who may try to write while the store takes no writes: one at a time, after pauses that grow, and when it is back first one,
//! then two, then four at once.
//!
//! For work that nobody waits for (reconcilers). Without it each resource would try again by itself, so the larger the cluster
//! the harder a store would be hit that is just coming back. Requests of clients do not ask here: they fail at once, and what
//! becomes of them is noted.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// First and longest pause after a failure.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Shortest time after which one that was turned away comes again.
const AGAIN: Duration = Duration::from_millis(50);
/// So many at once need no care any more.
const MANY: u32 = 64;

#[derive(Debug)]
struct Inner {
    /// Until when nobody tries; `None` = the last write was made.
    shut_until: Option<Instant>,
    pause: Duration,
    /// So many may be inside at once.
    room: u32,
    inside: u32,
}

/// The gate of one manager.
#[derive(Debug)]
pub(crate) struct Gate(Mutex<Inner>);

impl Default for Gate {
    fn default() -> Self {
        Self(Mutex::new(Inner { shut_until: None, pause: PAUSE.0, room: MANY, inside: 0 }))
    }
}

/// Leave to write; ends when dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a>(&'a Gate);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        self.0.lock().inside -= 1;
    }
}

impl Gate {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leave to write now, or how long to wait before asking again: not the same for all.
    pub(crate) fn enter(&self) -> Result<Pass<'_>, Duration> {
        let mut inner = self.lock();
        let shut = inner.shut_until.map(|until| until.saturating_duration_since(Instant::now()));
        let room = if shut.is_some() { 1 } else { inner.room };
        let wait = shut.unwrap_or_default();
        if inner.inside < room && wait.is_zero() {
            inner.inside += 1;
            return Ok(Pass(self));
        }
        Err(wait.max(AGAIN) + inner.pause.mul_f64(fastrand::f64() * 2.0))
    }

    /// A write was made.
    pub(crate) fn note_made(&self) {
        let mut inner = self.lock();
        inner.shut_until = None;
        inner.pause = PAUSE.0;
        inner.room = (inner.room * 2).min(MANY);
    }

    /// The store took no write.
    pub(crate) fn note_refused(&self) {
        let (mut inner, now) = (self.lock(), Instant::now());
        // Several that were under way together are one failure.
        if inner.shut_until.is_some_and(|until| now < until) {
            return;
        }
        let again = inner.shut_until.is_some();
        inner.pause = if again { (inner.pause * 2).min(PAUSE.1) } else { PAUSE.0 };
        inner.room = 1;
        inner.shut_until = Some(now + inner.pause.mul_f64(0.75 + fastrand::f64() * 0.5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn while_the_store_takes_no_writes_attempts_are_few_whoever_wants_to() {
        let gate = Gate::default();
        let (mut attempts, begin) = (0, Instant::now());
        while begin.elapsed() < Duration::from_secs(30) {
            for _ in 0..1000 {
                let Ok(pass) = gate.enter() else { continue };
                attempts += 1;
                assert!(gate.enter().is_err() || attempts == 1, "one at a time");
                gate.note_refused();
                drop(pass);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // 0.1, 0.2, … 1.6 s, then every two seconds.
        assert!((15..=26).contains(&attempts), "{attempts}");
    }

    #[tokio::test(start_paused = true)]
    async fn when_it_takes_writes_again_they_become_more_one_by_one() {
        let gate = Gate::default();
        gate.note_refused();
        assert!(gate.enter().is_err());
        tokio::time::sleep(PAUSE.1).await;
        let mut sizes = Vec::new();
        for _ in 0..8 {
            let mut inside = Vec::new();
            while let Ok(pass) = gate.enter() {
                inside.push(pass);
            }
            sizes.push(inside.len());
            gate.note_made();
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 64]);
        gate.note_refused();
        tokio::time::sleep(PAUSE.1).await;
        let alone = gate.enter().unwrap();
        assert!(gate.enter().is_err());
        drop(alone);
    }

    #[test]
    fn who_is_turned_away_does_not_come_again_with_all_others() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let gate = Gate::default();
            gate.note_refused();
            let mut waits: Vec<Duration> = (0..100).map(|_| gate.enter().unwrap_err()).collect();
            waits.sort();
            assert!(waits[90] - waits[10] > PAUSE.0, "{:?} … {:?}", waits[10], waits[90]);
        });
    }
}
