//! `file-logger`: a line for each request in a file. One thread writes all of them.

use super::logger::{self, Teller};
use crate::plugins::Plugin;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use towpath_resources::plugins::file_logger::Config;
use towpath_route::vars::Expr;

/// Most lines, and bytes, that wait for the disk; further ones are dropped.
const WAITING: usize = 16 * 1024;
const WAITING_BYTES: usize = 32 << 20;

/// See the module.
pub(in crate::plugins) struct FileLogger {
    teller: Teller,
    only: Option<Expr>,
    path: Arc<Path>,
    files: Arc<Files>,
}

/// Lines on their way to the thread that writes them; it ends with its last logger.
pub(in crate::plugins) struct Files {
    lines: SyncSender<(Arc<Path>, String)>,
    waiting: Arc<AtomicUsize>,
}

impl Files {
    fn open() -> Self {
        let (lines, written) = sync_channel(WAITING);
        let waiting = Arc::<AtomicUsize>::default();
        let left = waiting.clone();
        let spawned =
            std::thread::Builder::new().name("towpath-gw-file".into()).spawn(move || write(&written, &left));
        if let Err(error) = spawned {
            tracing::error!(%error, "the thread of log files cannot be started");
        }
        Self { lines, waiting }
    }

    fn put(&self, path: &Arc<Path>, line: String) -> bool {
        let bytes = line.len();
        let room = self.waiting.fetch_add(bytes, Relaxed) + bytes <= WAITING_BYTES;
        let put = room && self.lines.try_send((path.clone(), line)).is_ok();
        if !put {
            self.waiting.fetch_sub(bytes, Relaxed);
        }
        put
    }
}

/// Files are opened anew for each burst of lines, so that they may be moved away.
fn write(lines: &Receiver<(Arc<Path>, String)>, waiting: &AtomicUsize) {
    while let Ok((path, line)) = lines.recv() {
        let mut bytes = line.len();
        let mut texts = BTreeMap::from([(path, line)]);
        while bytes < 1 << 20
            && let Ok((path, line)) = lines.try_recv()
        {
            bytes += line.len();
            texts.entry(path).or_default().push_str(&line);
        }
        for (path, text) in texts {
            let file = File::options().create(true).append(true).open(&path);
            if let Err(error) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
                tracing::error!(path = %path.display(), %error, "a log file cannot be written");
            }
        }
        waiting.fetch_sub(bytes, Relaxed);
    }
}

impl FileLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "file-logger", FileLogger);
        let format = metadata.as_deref().and_then(|metadata| metadata.log_format.as_ref());
        let extra = metadata.as_deref().and_then(|metadata| metadata.log_format_extra.as_ref());
        Self {
            teller: Teller::new(&config.told, format, extra),
            only: config.r#match.as_ref().map(|only| only.0.clone()),
            path: PathBuf::from(&config.path).into(),
            files: scope.plugins.states.get("log files", Files::open),
        }
    }
}

impl Plugin for FileLogger {
    logger::watches!();

    fn log(&self, vars: &Vars<'_>) {
        if self.only.as_ref().is_some_and(|only| !only.holds(vars)) {
            return;
        }
        if !self.files.put(&self.path, format!("{}\n", self.teller.entry(vars))) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}
