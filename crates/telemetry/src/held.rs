//! Log lines that wait for something else to be on the screen first.

use crate::outlet::Outlet;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

/// Most bytes that are held; with more, all is let go.
const MOST: usize = 256 * 1024;

/// Holds log lines until it is released or dropped.
#[derive(Debug)]
pub struct Held {
    lines: Lines,
}

impl Held {
    /// Nothing held yet.
    pub(crate) fn new() -> Self {
        Self { lines: Lines { waiting: Arc::new(Mutex::new(Some(Vec::new()))) } }
    }

    /// Lines go out at once.
    pub(crate) fn released() -> Self {
        Self { lines: Lines { waiting: Arc::new(Mutex::new(None)) } }
    }

    /// What the log is written to.
    pub(crate) fn writer(&self) -> Lines {
        self.lines.clone()
    }

    /// Writes what was held; from here on lines go out at once.
    pub fn release(&self) {
        self.lines.release();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.release();
    }
}

/// The log's writer. `None` = nothing is held any more.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    waiting: Arc<Mutex<Option<Vec<u8>>>>,
}

impl Lines {
    fn release(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lines) = waiting.take() {
            Outlet::stderr().send(lines);
        }
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let full = match waiting.as_mut() {
            None => {
                Outlet::stderr().send(bytes.to_vec());
                return Ok(bytes.len());
            }
            Some(lines) => {
                lines.extend_from_slice(bytes);
                lines.len() > MOST
            }
        };
        drop(waiting);
        if full {
            self.release();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wait_until_they_are_released() {
        let held = Held::new();
        let mut writer = held.writer();
        writer.write_all(b"").unwrap();
        assert!(writer.waiting.lock().unwrap().is_some());
        held.release();
        assert!(writer.waiting.lock().unwrap().is_none());
        let held = Held::new();
        let mut writer = held.writer();
        writer.write_all(&[b'\n'; 10]).unwrap();
        drop(held);
        assert!(writer.waiting.lock().unwrap().is_none(), "dropping releases too");
    }
}
