//! Time as the manager uses it: it never goes back, whatever the machine's clock does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// A clock that runs on the monotonic clock from a wall time that was read once (or set from the store's clock when the
/// manager joins). With tokio's paused time it stands still, and moves as tests move it.
#[derive(Debug)]
pub struct Clock {
    origin: Instant,
    wall_at_origin_ms: AtomicU64,
}

impl Clock {
    /// Starts at the machine's wall time.
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self {
            origin: Instant::now(),
            wall_at_origin_ms: AtomicU64::new(u64::try_from(wall).unwrap_or_default()),
        }
    }

    /// Milliseconds since this clock was started. Never goes back.
    pub fn uptime_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Milliseconds since 1970, by the store's clock as it was when the manager joined. Runs evenly from there.
    pub fn now_ms(&self) -> u64 {
        self.wall_at_origin_ms.load(Ordering::Relaxed).saturating_add(self.uptime_ms())
    }

    /// Takes over the store's clock.
    pub fn set_now(&self, now_ms: u64) {
        self.wall_at_origin_ms.store(now_ms.saturating_sub(self.uptime_ms()), Ordering::Relaxed);
    }
}
