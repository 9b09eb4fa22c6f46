//! What happened, in order: its hash tells whether two runs were the same, its end is shown when one fails.

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hasher;
use tokio::time::Instant;

/// Lines that are kept.
const KEPT: usize = 400;

/// The record of a run.
pub(super) struct Trace {
    start: Instant,
    hash: fnv::Hash,
    lines: VecDeque<String>,
    count: u64,
}

impl Trace {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), hash: fnv::Hash::default(), lines: VecDeque::new(), count: 0 }
    }

    pub(super) fn note(&mut self, what: fmt::Arguments<'_>) {
        let at = self.start.elapsed();
        let line = format!("{:>9.3} {what}", at.as_secs_f64());
        self.hash.write(line.as_bytes());
        self.count += 1;
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(line);
    }

    /// Hash of all lines and their number.
    pub(super) fn digest(&self) -> String {
        format!("{:016x}-{}", self.hash.finish(), self.count)
    }

    pub(super) fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// A hash that is the same in every build and on every machine.
mod fnv {
    /// FNV-1a, 64 bits.
    pub(super) struct Hash(u64);

    impl Default for Hash {
        fn default() -> Self {
            Self(0xcbf2_9ce4_8422_2325)
        }
    }

    impl std::hash::Hasher for Hash {
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }
}
