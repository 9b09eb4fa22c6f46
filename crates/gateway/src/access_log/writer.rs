//! The one thread that writes the access log, and rotates it.

use super::{LogBuffer, QUEUE};
use crate::clock;
use crate::config::AccessLogConfig;
use crate::metrics::Registry;
use crate::vital::Vital;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use towpath_telemetry::Seldom;

/// Hands out buffers, and waits for the writing thread at the end.
pub(crate) struct LogWriter {
    full: Option<SyncSender<Vec<u8>>>,
    empty: Arc<Mutex<Receiver<Vec<u8>>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl LogWriter {
    /// The buffer of one worker.
    pub(crate) fn buffer(&self, registry: &Registry, worker: usize) -> LogBuffer {
        LogBuffer {
            lines: Vec::new(),
            count: 0,
            full: self.full.clone(),
            empty: self.empty.clone(),
            metrics: registry.worker(worker),
        }
    }

    /// Waits until all that was handed over is written. All buffers must be gone.
    pub(crate) fn finish(mut self) {
        self.full = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Opens the log and starts its writer.
pub(crate) fn start(config: &AccessLogConfig, data_dir: &Path, vital: &Vital) -> io::Result<LogWriter> {
    let (full, lines) = sync_channel::<Vec<u8>>(QUEUE);
    let (back, empty) = sync_channel(QUEUE);
    let empty = Arc::new(Mutex::new(empty));
    if !config.enabled {
        return Ok(LogWriter { full: None, empty, thread: None });
    }
    let mut target = Target::open(config, data_dir)?;
    let (mut warned, vital) = (Seldom::default(), vital.clone());
    let write_all = move || {
        for mut buffer in lines {
            if let Err(error) = target.write(&buffer)
                && let Some(left_out) = warned.now(clock::now_ms())
            {
                tracing::warn!(%error, left_out, "the access log cannot be written");
            }
            buffer.clear();
            let _ = back.try_send(buffer);
        }
    };
    let thread = std::thread::Builder::new()
        .name("towpath-log".into())
        .spawn(move || vital.watch_thread("the writer of the access log", write_all))?;
    Ok(LogWriter { full: Some(full), empty, thread: Some(thread) })
}

enum Target {
    Standard,
    File { file: File, path: PathBuf, bytes: u64, rotate: u64, keep: u32 },
}

impl Target {
    fn open(config: &AccessLogConfig, data_dir: &Path) -> io::Result<Self> {
        if config.file.as_deref() == Some(Path::new("-")) {
            return Ok(Self::Standard);
        }
        let path = config.file.clone().unwrap_or_else(|| data_dir.join("access.log"));
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self::File { file, path, bytes, rotate: config.rotate.0, keep: config.keep })
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Standard => io::stdout().lock().write_all(lines),
            Self::File { file, path, bytes, rotate, keep } => {
                if *bytes >= *rotate {
                    rotate_files(path, *keep)?;
                    *file = OpenOptions::new().create(true).append(true).open(&*path)?;
                    *bytes = 0;
                }
                *bytes += lines.len() as u64;
                file.write_all(lines)
            }
        }
    }
}

/// `access.log` becomes `access.log.1`, that becomes `access.log.2`, and so on; the last one goes.
fn rotate_files(path: &Path, keep: u32) -> io::Result<()> {
    let numbered = |n: u32| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{n}"));
        PathBuf::from(name)
    };
    if keep == 0 {
        return std::fs::remove_file(path);
    }
    for n in (1..keep).rev() {
        match std::fs::rename(numbered(n), numbered(n + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::rename(path, numbered(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::ByteSize;

    #[test]
    fn a_full_file_is_rotated_and_only_so_many_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let config = AccessLogConfig { rotate: ByteSize(10), keep: 2, ..AccessLogConfig::default() };
        let mut target = Target::open(&config, dir.path()).unwrap();
        for text in ["first line\n", "second line\n", "third line\n", "fourth line\n"] {
            target.write(text.as_bytes()).unwrap();
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("access.log"), "fourth line\n");
        assert_eq!(read("access.log.1"), "third line\n");
        assert_eq!(read("access.log.2"), "second line\n");
        assert!(!dir.path().join("access.log.3").exists());
    }
}
