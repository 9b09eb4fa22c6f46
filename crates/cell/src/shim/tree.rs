//! The app and everything that it forked: its memory, and its end.

use crate::kernel;
use crate::launch::{HowEnded, Launch};
use crate::procfs;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill as send, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// Which child ended, and how; `None` for anything that is no end.
pub(super) fn how(status: WaitStatus) -> Option<(Pid, HowEnded)> {
    match status {
        WaitStatus::Exited(pid, code) => Some((pid, HowEnded::Code(code))),
        WaitStatus::Signaled(pid, signal, _) => Some((pid, HowEnded::Signal(signal as i32))),
        _ => None,
    }
}

/// Kills the app's group, its user's processes where the user is its own, and every descendant, again and again until none is
/// left. Orphans cannot slip away: this process is their subreaper. Says how the app itself ended, if it was seen here.
pub(super) fn kill(launch: &Launch, app: Pid) -> Option<HowEnded> {
    let mut app_ended = None;
    // A process in an uninterruptible sleep dies only when that ends; the bound keeps the shim from waiting for ever.
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut pause = Duration::from_micros(200);
    loop {
        let _ = killpg(app, Signal::SIGKILL);
        if let Some(user) = launch.user {
            kernel::kill_user(user);
        }
        for pid in procfs::descendants(std::process::id()) {
            if let Ok(pid) = i32::try_from(pid) {
                let _ = send(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Err(Errno::ECHILD) => return app_ended,
                Ok(WaitStatus::StillAlive) => break,
                Ok(status) => {
                    app_ended = how(status).filter(|(pid, _)| *pid == app).map(|(_, how)| how).or(app_ended)
                }
                Err(Errno::EINTR) => {}
                Err(_) => return app_ended,
            }
        }
        if Instant::now() >= deadline {
            return app_ended;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// Fastest growth that is reckoned with, bytes a second.
const GROWTH: u64 = 1 << 30;
/// Longest pause between two looks: so long may an app grow unseen that did not grow before.
const LONGEST: Duration = Duration::from_millis(250);
/// Growth between two looks that makes the next one come sooner.
const NOTEWORTHY: u64 = 1 << 20;
/// Descendants are looked for again this often; between, only known ones are measured.
const LOOK: Duration = Duration::from_secs(2);

/// Watches the memory of the tree. An address-space limit would break runtimes that reserve much and use little (Java, Go, Node).
pub(super) struct MemoryWatch {
    limit: u64,
    due: Instant,
    used: u64,
    known: Vec<u32>,
    looked: Option<Instant>,
}

impl MemoryWatch {
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, due: Instant::now(), used: 0, known: Vec::new(), looked: None }
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Whether the tree is over its limit; looks only when due.
    pub(super) fn is_over(&mut self, app: Pid) -> bool {
        let now = Instant::now();
        if now < self.due {
            return false;
        }
        let resident = |pids: &[u32]| pids.iter().filter_map(|pid| procfs::resident(*pid)).sum::<u64>();
        let mut used = resident(&self.known);
        if self.looked.is_none_or(|at| now - at >= LOOK) || used > self.limit {
            self.known = procfs::descendants(std::process::id());
            if self.known.is_empty() {
                self.known.push(app.as_raw().unsigned_abs());
            }
            self.looked = Some(now);
            used = resident(&self.known);
        }
        // Forked workers share pages, which the plain sum counts once for each: only the exact figure may kill.
        let over = used > self.limit && procfs::tree_memory(&self.known) > self.limit;
        self.due = now + pause(self.limit, self.used, used);
        self.used = used;
        over
    }
}

/// Of a growing tree: how long it cannot reach its limit. Of one that stands still: as long as may be, since most do most of the time.
fn pause(limit: u64, before: u64, used: u64) -> Duration {
    let room = limit.saturating_sub(used);
    let is_growing = used > before.saturating_add(NOTEWORTHY);
    if !is_growing && used <= limit {
        return LONGEST;
    }
    Duration::from_millis(room.saturating_mul(1000) / GROWTH).clamp(Duration::from_millis(25), LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_rare_while_there_is_room_and_frequent_near_the_limit() {
        let ms = |limit_mib: u64, before: u64, used: u64| {
            pause(limit_mib << 20, before << 20, used << 20).as_millis()
        };
        assert_eq!(ms(8192, 0, 100), 250);
        assert_eq!(ms(128, 0, 64), 62);
        assert_eq!(ms(128, 64, 64), 250);
        assert_eq!(ms(128, 64, 127), 25);
        assert_eq!(ms(128, 129, 129), 25);
    }
}
