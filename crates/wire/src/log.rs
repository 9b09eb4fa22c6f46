//! Log lines of instances.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use towpath_types::InstanceId;

/// Which lines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogQuery {
    /// The instance.
    pub instance: InstanceId,
    /// The last so many lines; at most 10,000.
    pub tail: usize,
    /// Publish further lines on [`crate::subject::instance_log`] for this long; repeat the query to go on. 0 = no.
    pub follow_ms: u64,
}

/// Where a line came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogSource {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
    /// The cell itself, about the instance.
    Cell,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// When it was read, cell clock, milliseconds since 1970.
    pub at_ms: u64,
    /// From where.
    pub source: LogSource,
    /// The line without its end, valid UTF-8, at most 16 KiB.
    pub text: String,
}

/// Followed lines, in order. `seq` counts lines of the instance, so that a gap is seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogChunk {
    /// The instance.
    pub instance: InstanceId,
    /// Number of the first line here.
    pub seq: u64,
    /// The lines.
    pub lines: Vec<LogLine>,
}

impl WireMessage for LogChunk {
    const NAME: &'static str = "log.chunk";
}
