//! `file-logger`: a line for each request in a file.

use super::entry::Form;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use crate::plugins::{Phase, Phases, Plugin};
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use towpath_resources::plugins::PluginMetadata;
use towpath_resources::plugins::file_logger::Config;
use towpath_route::vars::Expr;

/// Most lines that wait for the disk; further ones are dropped.
const WAITING: usize = 16 * 1024;

/// See the module.
pub(in crate::plugins) struct FileLogger {
    form: Form,
    only: Option<Expr>,
    lines: Arc<Lines>,
}

/// Lines on their way to a thread that writes them; it ends with this.
pub(in crate::plugins) struct Lines(SyncSender<String>);

impl Lines {
    fn open(path: PathBuf) -> Self {
        let (lines, written) = sync_channel(WAITING);
        let spawned =
            std::thread::Builder::new().name("towpath-gw-file".into()).spawn(move || write(&path, &written));
        if let Err(error) = spawned {
            tracing::error!(%error, "a thread for a log file cannot be started");
        }
        Self(lines)
    }
}

/// The file is opened anew for each burst of lines, so that it may be moved away.
fn write(path: &PathBuf, lines: &Receiver<String>) {
    while let Ok(first) = lines.recv() {
        let mut text = first;
        while text.len() < 1 << 20
            && let Ok(line) = lines.try_recv()
        {
            text.push_str(&line);
        }
        let file = File::options().create(true).append(true).open(path);
        if let Err(error) = file.and_then(|mut file| file.write_all(text.as_bytes())) {
            tracing::error!(path = %path.display(), %error, "a log file cannot be written");
        }
    }
}

impl FileLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = match scope.plugins.metadata.get("file-logger") {
            Some(PluginMetadata::FileLogger(metadata)) => Some(metadata),
            _ => None,
        };
        let form =
            Form::of(config.log_format.as_ref(), metadata.and_then(|metadata| metadata.log_format.as_ref()));
        let name = format!("file-logger {}", config.path);
        let lines = scope.plugins.states.get(&name, || Lines::open(PathBuf::from(&config.path)));
        Self { form, only: config.r#match.as_ref().map(|only| only.0.clone()), lines }
    }
}

impl Plugin for FileLogger {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Log])
    }

    fn log(&self, vars: &Vars<'_>) {
        if self.only.as_ref().is_none_or(|only| only.holds(vars)) {
            let _ = self.lines.0.try_send(format!("{}\n", self.form.entry(vars)));
        }
    }
}
