//! From the app's pipes into log segments, at a bounded rate.

use super::Why;
use crate::launch::Mode;
use crate::logs::{Bucket, LogWriter, MAX_LINE};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout};
use std::time::{Duration, Instant};
use towpath_wire::log::LogSource;

/// Size of one read, and of the pipe where the kernel permits.
const CHUNK: usize = 64 << 10;
/// Bytes a second that are taken out of the pipes at most; an app that writes faster waits. Bounds the shim's CPU time.
const DRAIN_RATE: u64 = 256 << 20;
/// Longest rest after a turn of reading.
const LONGEST_REST: Duration = Duration::from_millis(100);
/// An unfinished line is written after so long.
const PARTIAL_AGE: Duration = Duration::from_secs(1);
/// How often dropped lines are confessed.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// Both streams of an app, and where they go.
pub(super) struct Outputs {
    streams: Vec<Stream>,
    log: Option<LogWriter>,
    /// What may still be kept.
    keep: Bucket,
    /// What may still be read.
    drain: Bucket,
    /// While lines are being dropped, a turn of reading is followed by a rest as long: half a core at most goes into
    /// throwing output away, however slow the machine or this build of the shim.
    rests_until: Option<Instant>,
    dropped: Dropped,
    buffer: Vec<u8>,
}

struct Stream {
    pipe: Option<File>,
    source: LogSource,
    partial: Vec<u8>,
    partial_since: Option<Instant>,
    /// The rest of a line whose beginning was dropped.
    skips_line: bool,
}

#[derive(Default)]
struct Dropped {
    lines: u64,
    bytes: u64,
    since: Option<Instant>,
}

impl Outputs {
    /// Opens the log. Nothing is read yet.
    pub(super) fn open(mode: &Mode) -> Result<Self, Why> {
        let (log, bounds) = match mode {
            Mode::Instance { logs, bounds, .. } => {
                let log =
                    LogWriter::open(logs, *bounds).map_err(|e| format!("the log cannot be written: {e}"))?;
                (Some(log), *bounds)
            }
            Mode::Build => (None, crate::settings::LogSettings::default()),
        };
        let now = Instant::now();
        Ok(Self {
            streams: Vec::new(),
            keep: Bucket::new(bounds.rate_bytes, bounds.burst_bytes, now),
            drain: Bucket::new(DRAIN_RATE, DRAIN_RATE / 8, now),
            rests_until: None,
            buffer: if log.is_some() { vec![0; CHUNK] } else { Vec::new() },
            log,
            dropped: Dropped::default(),
        })
    }

    /// Takes the app's streams.
    pub(super) fn read_from(&mut self, out: Option<ChildStdout>, err: Option<ChildStderr>) {
        let out = out.map(|pipe| Stream::new(pipe.into(), LogSource::Stdout));
        let err = err.map(|pipe| Stream::new(pipe.into(), LogSource::Stderr));
        self.streams = out.into_iter().chain(err).collect();
    }

    /// Pipes worth waiting for now.
    pub(super) fn readable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let throttled = self.throttled_until(Instant::now()).is_some();
        self.streams
            .iter()
            .filter(move |_| !throttled)
            .filter_map(|s| s.pipe.as_ref())
            .map(|pipe| pipe.as_fd())
    }

    /// When something has to be done even if nothing comes.
    pub(super) fn due(&self) -> Option<Instant> {
        let partials = self.streams.iter().filter_map(|s| s.partial_since).map(|at| at + PARTIAL_AGE);
        let notice = self.dropped.since.map(|at| at + NOTICE_EVERY);
        partials.chain(notice).chain(self.throttled_until(Instant::now())).min()
    }

    /// When the pipes are worth reading again, if they are not now.
    fn throttled_until(&self, now: Instant) -> Option<Instant> {
        let empty = self.drain.is_empty(now).then(|| now + Duration::from_millis(5));
        self.rests_until.filter(|at| *at > now).max(empty)
    }

    /// Reads what is there and writes what is due.
    pub(super) fn pump(&mut self) {
        let Some(log) = &mut self.log else { return };
        let now = Instant::now();
        let at_ms = wall_clock_ms();
        self.drain.refill(now);
        self.keep.refill(now);
        for stream in &mut self.streams {
            let room = self.drain.level();
            let read = stream.read(&mut self.buffer, room, |chunk, stream| {
                stream.take(chunk, at_ms, now, log, &mut self.keep, &mut self.dropped);
            });
            self.drain.take(read);
            stream.write_old_partial(at_ms, now, log);
        }
        let ended = Instant::now();
        self.rests_until =
            self.dropped.since.map(|_| ended + ended.saturating_duration_since(now).min(LONGEST_REST));
        if self.dropped.since.is_some_and(|since| now.saturating_duration_since(since) >= NOTICE_EVERY) {
            self.dropped.confess(at_ms, log);
        }
        log.flush();
    }

    /// A line of the cell's own.
    pub(super) fn note(&mut self, text: &[u8]) {
        if let Some(log) = &mut self.log {
            log.write(wall_clock_ms(), LogSource::Cell, text);
            log.flush();
        }
    }

    /// Reads to the end of what the dead app left, within bounds, and writes everything out.
    pub(super) fn finish(&mut self) {
        self.pump();
        self.pump();
        let Some(log) = &mut self.log else { return };
        let at_ms = wall_clock_ms();
        for stream in &mut self.streams {
            stream.write_partial(at_ms, log);
        }
        self.dropped.confess(at_ms, log);
        log.flush();
    }
}

impl Stream {
    fn new(pipe: OwnedFd, source: LogSource) -> Self {
        // Without these the pipe is small, or a read may wait: the one costs speed; the other cannot happen for a pipe.
        let _ = fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
        let _ = fcntl(&pipe, FcntlArg::F_SETPIPE_SZ(4 * i32::try_from(CHUNK).unwrap_or(1 << 16)));
        let pipe = Some(File::from(pipe));
        Self { pipe, source, partial: Vec::new(), partial_since: None, skips_line: false }
    }

    /// Reads until the pipe is empty or `room` is used up; says how much.
    fn read(&mut self, buffer: &mut [u8], room: u64, mut each: impl FnMut(&[u8], &mut Self)) -> u64 {
        let mut total = 0;
        // A turn is bounded, so that one stream cannot keep the shim from signals and the other stream.
        while total < room.min(4 << 20) {
            let Some(pipe) = &mut self.pipe else { break };
            match pipe.read(buffer) {
                Ok(0) => self.pipe = None,
                Ok(n) => {
                    total += n as u64;
                    each(buffer.get(..n).unwrap_or_default(), self);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.pipe = None,
            }
        }
        total
    }

    fn take(
        &mut self,
        chunk: &[u8],
        at_ms: u64,
        now: Instant,
        log: &mut LogWriter,
        keep: &mut Bucket,
        dropped: &mut Dropped,
    ) {
        // Far over the rate, lines are not even cut: counting is all that is affordable.
        if dropped.since.is_some() && keep.level() < CHUNK as u64 {
            dropped.add(chunk, now);
            self.skips_line = chunk.last() != Some(&b'\n');
            self.partial.clear();
            self.partial_since = None;
            return;
        }
        for piece in chunk.split_inclusive(|b| *b == b'\n') {
            let is_whole = piece.last() == Some(&b'\n');
            if self.skips_line {
                dropped.bytes += piece.len() as u64;
                self.skips_line = !is_whole;
                continue;
            }
            self.partial.extend_from_slice(piece);
            if is_whole || self.partial.len() >= MAX_LINE {
                let cost = self.partial.len() as u64 + 20;
                if keep.level() < cost {
                    dropped.add(&self.partial, now);
                    self.skips_line = !is_whole;
                    self.partial.clear();
                } else {
                    keep.take(cost);
                    self.write_partial(at_ms, log);
                }
                self.partial_since = None;
            } else {
                self.partial_since.get_or_insert(now);
            }
        }
    }

    fn write_old_partial(&mut self, at_ms: u64, now: Instant, log: &mut LogWriter) {
        if self.partial_since.is_some_and(|since| now.saturating_duration_since(since) >= PARTIAL_AGE) {
            self.write_partial(at_ms, log);
        }
    }

    fn write_partial(&mut self, at_ms: u64, log: &mut LogWriter) {
        for piece in self.partial.chunks(MAX_LINE) {
            log.write(at_ms, self.source, piece);
        }
        self.partial.clear();
        self.partial_since = None;
        if self.partial.capacity() > 4 * MAX_LINE {
            self.partial.shrink_to(MAX_LINE);
        }
    }
}

impl Dropped {
    fn add(&mut self, bytes: &[u8], now: Instant) {
        self.bytes += bytes.len() as u64;
        self.lines += bytes.iter().filter(|b| **b == b'\n').count() as u64;
        self.since.get_or_insert(now);
    }

    fn confess(&mut self, at_ms: u64, log: &mut LogWriter) {
        if self.since.is_some() {
            let text = format!(
                "{} lines ({} bytes) were dropped: the app logs faster than its limit",
                self.lines, self.bytes
            );
            log.write(at_ms, LogSource::Cell, text.as_bytes());
        }
        *self = Self::default();
    }
}

/// Only for log lines: everything else here runs on monotonic time.
fn wall_clock_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(0)
}
