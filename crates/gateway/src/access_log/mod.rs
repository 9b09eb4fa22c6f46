//! The access log: every finished request as one JSON object a line.
//!
//! A worker writes lines into a buffer of its own and hands the buffer over when it is full, or a few times a second.
//! The bounded queue of buffers leads to one writing thread. When that is behind, buffers are dropped and counted:
//! a slow disk never slows a request.

mod line;
mod writer;

pub(crate) use line::{AccessLine, put_address, put_hex, put_number};
pub(crate) use writer::{LogWriter, start};

use crate::metrics::WorkerMetrics;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

/// A buffer is handed over at this size.
const BUFFER_BYTES: usize = 64 * 1024;
/// Buffers that may wait for the writer.
const QUEUE: usize = 64;

/// One worker's end of the log.
pub(crate) struct LogBuffer {
    lines: Vec<u8>,
    count: u64,
    full: Option<SyncSender<Vec<u8>>>,
    empty: Arc<std::sync::Mutex<Receiver<Vec<u8>>>>,
    metrics: Arc<WorkerMetrics>,
}

impl LogBuffer {
    /// Adds a line. Costs no system call.
    pub(crate) fn add(&mut self, line: &AccessLine<'_>) {
        if self.full.is_none() {
            return;
        }
        line.write(&mut self.lines);
        self.count += 1;
        if self.lines.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Adds a line that is written already.
    pub(crate) fn add_text(&mut self, line: &str) {
        if self.full.is_none() {
            return;
        }
        self.lines.extend_from_slice(line.as_bytes());
        self.lines.push(b'\n');
        self.count += 1;
        if self.lines.len() >= BUFFER_BYTES {
            self.flush();
        }
    }

    /// Hands over what there is.
    pub(crate) fn flush(&mut self) {
        let Some(full) = &self.full else { return };
        if self.lines.is_empty() {
            return;
        }
        let next = self.empty.try_lock().ok().and_then(|empty| empty.try_recv().ok()).unwrap_or_default();
        match full.try_send(std::mem::replace(&mut self.lines, next)) {
            Ok(()) => {}
            Err(TrySendError::Full(lines) | TrySendError::Disconnected(lines)) => {
                self.metrics.log_dropped.add(self.count);
                self.lines = lines;
                self.lines.clear();
            }
        }
        self.count = 0;
    }
}

impl Drop for LogBuffer {
    fn drop(&mut self) {
        self.flush();
    }
}
