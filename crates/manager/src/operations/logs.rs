//! Reading instances' log lines from their cells.

use crate::core::Core;
use crate::core::keys::GroupRef;
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use towpath_bus::BusError;
use towpath_types::spec::InstanceVersion;
use towpath_types::{CellId, InstanceId};
use towpath_wire::cell::{CellCommand, CellReply};
use towpath_wire::log::{LogLine, LogQuery};
use towpath_wire::{DecodeError, decode, encode, subject};

/// Lines that a failure's report has.
const LINES: usize = 50;
/// Longest wait for a cell's answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Why log lines could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LogError {
    /// The cell did not answer.
    #[error("its cell does not answer")]
    Bus(#[from] BusError),
    /// The cell's answer is not readable.
    #[error("its cell's answer is not readable")]
    Answer(#[from] DecodeError),
    /// The cell has no such log.
    #[error("{0}")]
    Refused(String),
}

/// Asks a cell for the last lines of an instance; `follow` lets it publish further ones for that long.
pub(crate) async fn read(
    core: &Core,
    cell: CellId,
    instance: InstanceId,
    tail: usize,
    follow: Duration,
) -> Result<Vec<LogLine>, LogError> {
    let follow_ms = u64::try_from(follow.as_millis()).unwrap_or(u64::MAX);
    let command = CellCommand::Logs(LogQuery { instance, tail, follow_ms });
    let payload = encode(&command).into();
    let answer = core.bus.request(&subject::cell_command(cell), payload, PATIENCE).await?;
    match decode::<CellReply>(&answer)? {
        CellReply::Log { lines } => Ok(lines),
        CellReply::Accepted => Ok(Vec::new()),
        CellReply::Outdated { .. } => Err(LogError::Refused("the cell obeys a newer manager".into())),
        CellReply::Refused { message, .. } => Err(LogError::Refused(message)),
    }
}

/// SHA-256 over texts, as hex.
pub(crate) fn fingerprint(texts: &[String]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text.as_bytes());
    }
    towpath_types::Digest::from_bytes(hash.finalize().into()).hex()
}

/// The last lines of the instance because of which a version failed; else those of the newest instance of the version.
pub(crate) async fn failed_lines(
    core: &Core,
    group: &GroupRef,
    version: Option<InstanceVersion>,
) -> Vec<String> {
    let Some(cached) = core.cache.group(group) else { return Vec::new() };
    let casualties = cached.status.casualties.iter().rev().map(|casualty| (casualty.instance, casualty.cell));
    let running = core
        .group_instances(group)
        .into_iter()
        .filter(|(_, _, runs)| version.is_none_or(|version| *runs == version))
        .map(|(instance, cell, _)| (instance, cell));
    for (instance, cell) in casualties.chain(running).take(6) {
        match read(core, cell, instance, LINES, Duration::ZERO).await {
            Ok(lines) if !lines.is_empty() => return lines.into_iter().map(|line| line.text).collect(),
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, %instance, "the log of a failed instance could not be read")
            }
        }
    }
    Vec::new()
}
