//! Errors of the services as one line.

use super::ports;
use crate::config::Settings;
use crate::exit::{Exit, Failure};
use std::error::Error;
use towpath_cell::CellError;
use towpath_gateway::GatewayError;
use towpath_manager::ManagerError;
use towpath_store::StoreError;
use towpath_telemetry::chain;

/// Any error, with all its causes.
pub(super) fn any(what: &str, error: &(dyn Error + 'static)) -> Failure {
    Failure::new(Exit::Failed, format!("{what}: {}", one_line(&chain(error))))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Why the gateway did not start.
pub(super) fn gateway(error: &GatewayError, settings: &Settings) -> Failure {
    match error {
        GatewayError::Listen { address, source } => {
            ports::refused(*address, ports::flag_of(settings, *address), source)
        }
        other => any("the gateway did not start", other),
    }
}

/// A part of the running gateway has died of a bug of ours.
pub(super) fn dead_part(part: &str) -> Failure {
    Failure::hinted(
        Exit::Failed,
        format!("{part} of the gateway has died; this is a bug in Towpath"),
        "start it again; the log has more",
    )
}

/// A background task of the cell ends again and again.
pub(super) fn dead_part_of_cell(part: &str) -> Failure {
    Failure::hinted(
        Exit::Failed,
        format!("the {part} of the cell ends again and again; what runs is left running"),
        "start it again; the log has more",
    )
}

/// Why the manager did not start. `flag` says another API address.
pub(super) fn manager(error: &ManagerError, flag: &str) -> Failure {
    match error {
        ManagerError::Listen { address, source } => ports::refused(*address, flag, source),
        other => any("the manager did not start", other),
    }
}

/// Why the cell did not start.
pub(super) fn cell(error: &CellError) -> Failure {
    match error {
        CellError::InUse(dir) => Failure::hinted(
            Exit::Conflict,
            format!("the cell's directory {} is in use by another process", dir.display()),
            "stop that one, or choose another with --data-dir",
        ),
        other => any("the cell did not start", other),
    }
}

/// Why the store was not opened.
pub(super) fn store(what: &str, error: &StoreError) -> Failure {
    let hint = match error {
        StoreError::Unavailable { .. } => "is it running, and may this user use it?",
        StoreError::Corrupt(_) => "it is not touched; restore a backup, or move it away",
        _ => return any(what, error),
    };
    Failure::hinted(Exit::Unavailable, format!("{what}: {}", one_line(&chain(error))), hint)
}
