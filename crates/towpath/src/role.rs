//! The roles: settings → lock → services → wait for a signal → drain.

mod banner;
mod cluster;
mod failures;
mod files;
mod layout;
mod lock;
mod ports;
mod ready;
mod services;
mod settings;
mod signals;
mod successor;
mod supervisor;
mod up;

use crate::cli::role::{Flags, RoleArgs};
use crate::config::{Role, Settings};
use crate::exit::{Exit, Failure, Outcome};
use crate::resources_file::ResourcesFile;
use crate::screen::{ColorChoice, Format, Screen};
use signals::Signals;
use std::path::PathBuf;
use std::time::Duration;
use towpath_gateway::TakeOver;
use towpath_telemetry::{Held, LogFormat};

/// What a role runs with.
struct Run {
    settings: Settings,
    ready_file: Option<PathBuf>,
    /// Whether the data directory was made just now.
    fresh: bool,
    screen: Screen,
    /// The lock of the data directory.
    lock: lock::DataDirLock,
    /// What a running gateway has handed over.
    take_over: Option<TakeOver>,
    /// Holds the log back until the start screen is there, or the start takes long.
    log: Held,
}

/// A start that takes longer shows its log.
const PATIENCE: Duration = Duration::from_secs(2);

impl Run {
    /// Waits for a start; `None` = a signal came first.
    async fn start<T>(
        &self,
        signals: &mut Signals,
        start: impl Future<Output = Outcome<T>>,
    ) -> Outcome<Option<T>> {
        tokio::pin!(start);
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        let mut patient = true;
        loop {
            tokio::select! {
                started = &mut start => return started.map(Some),
                name = signals.next() => {
                    tracing::info!(signal = name, "ended while starting");
                    return Ok(None);
                }
                () = &mut patience, if patient => {
                    patient = false;
                    self.log.release();
                }
            }
        }
    }
}

/// Longest wait at the end for log lines to be taken.
const LAST_LINES: Duration = Duration::from_millis(500);

/// Runs a role until it is told to end. `take_over`: from the gateway that runs with the same data directory.
pub(crate) fn run(role: Role, args: &RoleArgs, flags: Flags, color: ColorChoice, take_over: bool) -> Outcome {
    let (mut settings, file) = settings::load(role, args, flags)?;
    let screen = Screen::new(color, Format::Table);
    let resources = settings.gateway.file.clone().map(ResourcesFile::new);
    if let Some(file) = &resources {
        // Later faults are told and the file from before serves on; at the start there is none from before.
        let documents = file.read().map_err(|lines| Failure { exit: Exit::Usage, lines, code: None })?;
        if args.check {
            let name =
                settings.gateway.file.as_deref().map_or_else(String::new, |file| file.display().to_string());
            for note in towpath_gateway::certificate_notes(&documents) {
                screen.line(format!("{name}: {note}"))?;
            }
            return screen.line(format!("{name} is fine: {} resources", documents.len()));
        }
    }
    if args.check {
        let problems = files::check(role, &settings);
        if !problems.is_empty() {
            return Err(problems.into());
        }
        let from = file.map_or_else(String::new, |file| format!(" ({})", file.display()));
        return screen.line(format!("The settings of towpath {}{from} are fine", role.name()));
    }
    let format = if settings.log_json { LogFormat::Json } else { LogFormat::Text };
    let log = towpath_telemetry::init_held(format, &settings.log, screen.paints_errors())
        .map_err(|error| Failure::new(Exit::Usage, format!("log: {error}")))?;
    let take_over = take_over.then(|| successor::take_over(&settings)).transpose()?;
    let lock = match &take_over {
        Some(taken) => lock::taken(&settings.data_dir, taken)?,
        None => lock::lock(&settings.data_dir)?,
    };
    if role == Role::Up {
        ports::fill_in(&mut settings);
    }
    if take_over.is_none() {
        ports::check(role, &settings)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("towpath")
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    let fresh = lock.fresh;
    let run = Run { settings, ready_file: args.ready_file.clone(), fresh, screen, lock, take_over, log };
    let outcome = runtime.block_on(async {
        let signals = Signals::new()?;
        match role {
            Role::Up => Box::pin(up::run(run, signals)).await,
            Role::Manager => Box::pin(cluster::manager(run, signals)).await,
            Role::Gateway => Box::pin(cluster::gateway(run, signals)).await,
            Role::Cell => Box::pin(cluster::cell(run, signals)).await,
        }
    });
    runtime.shutdown_background();
    towpath_telemetry::flush(LAST_LINES);
    outcome
}
