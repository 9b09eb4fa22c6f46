//! The way of log lines to standard error: a bounded queue and a thread of its own.
//!
//! Whoever logs never waits and never fails: a reader that does not read, a full disk or a closed pipe cost lines, which are
//! counted, and nothing else.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

/// Most lines that wait.
const WAITING: usize = 8_192;

enum Entry {
    Line(Vec<u8>),
    Flush(SyncSender<()>),
}

/// A queue of lines with a thread that writes them.
#[derive(Debug)]
pub(crate) struct Outlet {
    entries: SyncSender<Entry>,
    dropped: &'static AtomicU64,
}

impl Outlet {
    /// The one of the process, to standard error.
    pub(crate) fn stderr() -> &'static Self {
        static OUTLET: OnceLock<Outlet> = OnceLock::new();
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        OUTLET.get_or_init(|| Self::start(io::stderr(), WAITING, &DROPPED))
    }

    fn start(to: impl Write + Send + 'static, waiting: usize, dropped: &'static AtomicU64) -> Self {
        let (entries, queue) = sync_channel(waiting);
        // Without the thread the queue is closed, and lines are dropped.
        let _ = std::thread::Builder::new().name("log".into()).spawn(move || write_all(&queue, to, dropped));
        Self { entries, dropped }
    }

    /// Hands a line over, or drops it where too many wait.
    pub(crate) fn send(&self, line: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.entries.try_send(Entry::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was sent is written, at most for so long.
    pub(crate) fn flush(&self, wait: Duration) {
        let (done, written) = sync_channel(1);
        let end = Instant::now() + wait;
        let mut entry = Entry::Flush(done);
        while let Err(TrySendError::Full(back)) = self.entries.try_send(entry) {
            if Instant::now() >= end {
                return;
            }
            entry = back;
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = written.recv_timeout(end.saturating_duration_since(Instant::now()));
    }
}

fn write_all(queue: &Receiver<Entry>, mut to: impl Write, dropped: &AtomicU64) {
    while let Ok(entry) = queue.recv() {
        match entry {
            Entry::Line(line) => {
                let lost = dropped.swap(0, Ordering::Relaxed);
                if lost > 0 {
                    let _ = writeln!(to, "({lost} log lines were dropped: nobody took them in time)");
                }
                let _ = to.write_all(&line);
            }
            Entry::Flush(done) => {
                let _ = to.flush();
                let _ = done.try_send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Condvar, Mutex};

    /// A writer that stands still until it is let go.
    #[derive(Clone, Default)]
    struct Gate(Arc<(Mutex<Written>, Condvar)>);

    #[derive(Default)]
    struct Written {
        open: bool,
        bytes: Vec<u8>,
    }

    impl Gate {
        fn open(&self) {
            self.0.0.lock().unwrap().open = true;
            self.0.1.notify_all();
        }
    }

    impl Write for Gate {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut state = self.0.1.wait_while(self.0.0.lock().unwrap(), |state| !state.open).unwrap();
            state.bytes.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_reader_that_does_not_read_costs_lines_and_nobody_waits() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let gate = Gate::default();
        let outlet = Outlet::start(gate.clone(), 4, &DROPPED);
        for n in 0..100 {
            outlet.send(format!("line {n}\n").into_bytes());
        }
        gate.open();
        outlet.flush(Duration::from_secs(10));
        outlet.send(b"later\n".to_vec());
        outlet.flush(Duration::from_secs(10));
        let text = String::from_utf8(gate.0.0.lock().unwrap().bytes.clone()).unwrap();
        assert!(text.contains("line 0\n") && text.ends_with("later\n"), "{text}");
        assert!(text.contains("log lines were dropped"), "{text}");
    }

    #[test]
    fn a_writer_that_fails_harms_nobody() {
        static DROPPED: AtomicU64 = AtomicU64::new(0);
        let outlet = Outlet::start(Broken, 4, &DROPPED);
        outlet.send(b"line\n".to_vec());
        outlet.flush(Duration::from_secs(10));
        outlet.send(b"line\n".to_vec());
        outlet.flush(Duration::from_secs(10));
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0);
    }
}
