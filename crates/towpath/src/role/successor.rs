//! Another process takes over from a gateway: how it is started, and how it begins.

use crate::config::Settings;
use crate::exit::{Exit, Failure, Outcome, reason};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::{Child, Command};
use tokio::signal::unix::{Signal, SignalKind, signal};
use towpath_gateway::{TakeOver, TakeOverError};

/// The flag with which a process takes over.
const FLAG: &str = "--take-over";

/// Asks the gateway that runs with the same data directory for its listeners. It serves on until this process does.
pub(super) fn take_over(settings: &Settings) -> Outcome<TakeOver> {
    let dir = settings.data_dir.join("gateway");
    TakeOver::ask(&dir).map_err(|error| {
        let shown = settings.data_dir.display();
        match error {
            TakeOverError::Nobody => Failure::hinted(
                Exit::Conflict,
                format!("there is no running gateway to take over in {shown}"),
                format!("start it without {FLAG}"),
            ),
            TakeOverError::Refused(why) => {
                Failure::new(Exit::Conflict, format!("the gateway that runs in {shown} refuses: {why}"))
            }
            TakeOverError::Failed(error) => {
                let why = reason(&error);
                Failure::new(
                    Exit::Failed,
                    format!("the gateway that runs in {shown} does not hand over: {why}"),
                )
            }
        }
    })
}

/// Where the binary is found again: as it was called, since a link may lead to another one by then.
fn binary() -> std::io::Result<PathBuf> {
    let called = PathBuf::from(std::env::args_os().next().unwrap_or_default());
    if called.components().count() > 1 {
        return std::path::absolute(called);
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&paths).map(|dir| dir.join(&called)).find(|path| path.is_file()) {
        Some(found) if !called.as_os_str().is_empty() => Ok(found),
        _ => std::env::current_exe(),
    }
}

/// Starts the binary anew when SIGUSR2 asks for it.
pub(super) struct Successor {
    asked: Signal,
    /// Where this binary was when it was started: what is there now may be another.
    binary: PathBuf,
    started: Option<Child>,
}

impl Successor {
    /// Begins to listen for the signal.
    pub(super) fn new() -> Outcome<Self> {
        let failed = |error: &std::io::Error| Failure::io("cannot listen for SIGUSR2", error);
        Ok(Self {
            asked: signal(SignalKind::user_defined2()).map_err(|error| failed(&error))?,
            binary: binary().map_err(|error| failed(&error))?,
            started: None,
        })
    }

    /// Starts processes when it is asked to. Never ends: one that takes over is seen by what it takes.
    pub(super) async fn run(&mut self) {
        loop {
            let Some(child) = &mut self.started else {
                if self.asked.recv().await.is_none() {
                    std::future::pending::<()>().await;
                }
                self.start();
                continue;
            };
            tokio::select! {
                ended = child.wait() => {
                    let status = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
                    tracing::error!(%status, "the new process ended before it took over; this one goes on");
                    self.started = None;
                }
                Some(()) = self.asked.recv() => {
                    tracing::warn!("SIGUSR2: a new process is starting already");
                }
            }
        }
    }

    fn start(&mut self) {
        let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        if !arguments.iter().any(|argument| argument == FLAG) {
            arguments.push(FLAG.into());
        }
        tracing::info!(binary = %self.binary.display(), "SIGUSR2: starting a process that takes over");
        match Command::new(&self.binary).args(arguments).stdin(Stdio::null()).spawn() {
            Ok(child) => self.started = Some(child),
            Err(error) => {
                tracing::error!(%error, binary = %self.binary.display(), "no process can be started; this one goes on");
            }
        }
    }
}
