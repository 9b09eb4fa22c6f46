//! Publishing new lines of an instance while somebody wants them.

use super::{Position, read_from};
use bytes::Bytes;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use towpath_bus::Bus;
use towpath_types::InstanceId;
use towpath_wire::log::{LogChunk, LogLine};
use towpath_wire::subject;

/// Longest lease that one query can take.
const LONGEST_LEASE: Duration = Duration::from_secs(300);
/// Pause between looks at a file.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Text in one message; well below the bus's limit, JSON escapes included.
const CHUNK_BYTES: usize = 128 << 10;

/// The instances whose logs are being followed, and until when.
#[derive(Clone)]
pub(crate) struct Followers {
    bus: Arc<dyn Bus>,
    leases: Arc<Mutex<HashMap<InstanceId, Instant>>>,
}

impl Followers {
    pub(crate) fn new(bus: Arc<dyn Bus>) -> Self {
        Self { bus, leases: Arc::default() }
    }

    /// Publishes lines after `from` for so long. When it is followed already, the lease is lengthened and the follower stays where
    /// it is: line numbers tell a listener what it has seen.
    pub(crate) fn follow(&self, instance: InstanceId, dir: PathBuf, from: Position, lease: Duration) {
        let until = Instant::now() + lease.min(LONGEST_LEASE);
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = leases.get(&instance).is_none();
        let entry = leases.entry(instance).or_insert(until);
        *entry = until.max(*entry);
        drop(leases);
        if is_new {
            tokio::spawn(self.clone().run(instance, dir, from));
        }
    }

    async fn run(self, instance: InstanceId, dir: PathBuf, mut at: Position) {
        let subject = subject::instance_log(instance);
        while self.is_wanted(instance) {
            let (path, from) = (dir.clone(), at);
            let Ok((lines, first, after)) = tokio::task::spawn_blocking(move || read_from(&path, from)).await
            else {
                break;
            };
            at = after;
            if lines.is_empty() {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            for chunk in chunks(instance, first, lines) {
                // A bus that is down loses lines; their numbers show it.
                let _ = self.bus.publish(&subject, Bytes::from(towpath_wire::encode(&chunk))).await;
            }
        }
    }

    /// Ends the lease in the same step in which it is found to be over, so that a new query never meets a dying follower.
    fn is_wanted(&self, instance: InstanceId) -> bool {
        let mut leases = self.leases.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = leases.get(&instance).is_some_and(|until| Instant::now() < *until);
        if !wanted {
            leases.remove(&instance);
        }
        wanted
    }
}

fn chunks(instance: InstanceId, first: u64, lines: Vec<LogLine>) -> Vec<LogChunk> {
    let mut chunks = vec![LogChunk { instance, seq: first, lines: Vec::new() }];
    let mut size = 0;
    for (seq, line) in (first..).zip(lines) {
        size += line.text.len() + 64;
        if size > CHUNK_BYTES {
            size = line.text.len() + 64;
            chunks.push(LogChunk { instance, seq, lines: Vec::new() });
        }
        if let Some(chunk) = chunks.last_mut() {
            chunk.lines.push(line);
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_wire::log::LogSource;

    #[test]
    fn chunks_are_small_and_numbered() {
        let line = LogLine { at_ms: 1, source: LogSource::Stdout, text: "x".repeat(16 << 10) };
        let instance = InstanceId::mint(1, [0; 10]);
        let chunks = chunks(instance, 10, vec![line; 20]);
        assert!(chunks.len() >= 3);
        let mut next = 10;
        for chunk in &chunks {
            assert_eq!(chunk.seq, next);
            next += chunk.lines.len() as u64;
            assert!(towpath_wire::encode(chunk).len() < towpath_bus::MAX_PAYLOAD / 2);
        }
        assert_eq!(next, 30);
    }
}
