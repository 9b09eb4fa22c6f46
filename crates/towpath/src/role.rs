//! The roles: settings → lock → services → wait for a signal → drain.

mod banner;
mod cluster;
mod failures;
mod layout;
mod lock;
mod ports;
mod ready;
mod services;
mod settings;
mod signals;
mod up;

use crate::cli::role::{Flags, RoleArgs};
use crate::config::{Role, Settings};
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::{ColorChoice, Format, Screen};
use signals::Signals;
use std::path::PathBuf;
use towpath_telemetry::LogFormat;

/// What a role runs with.
struct Run {
    settings: Settings,
    ready_file: Option<PathBuf>,
    screen: Screen,
}

/// Runs a role until it is told to end.
pub(crate) fn run(role: Role, args: &RoleArgs, flags: Flags, color: ColorChoice) -> Outcome {
    let (settings, file) = settings::load(role, args, flags)?;
    let screen = Screen::new(color, Format::Table);
    if args.check {
        let from = file.map_or_else(String::new, |file| format!(" ({})", file.display()));
        return screen.line(format!("The settings of towpath {}{from} are fine", role.name()));
    }
    let format = if settings.log_json { LogFormat::Json } else { LogFormat::Text };
    towpath_telemetry::init(format, &settings.log)
        .map_err(|error| Failure::new(Exit::Usage, format!("log: {error}")))?;
    let _lock = lock::lock(&settings.data_dir)?;
    ports::check(role, &settings)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("towpath")
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    let run = Run { settings, ready_file: args.ready_file.clone(), screen };
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
    outcome
}
