//! Building releases on a cell.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towpath_types::health::HealthCheck;
use towpath_types::{AppRef, Digest, ErrorCode, Millis, OperationId};

/// What to build. The source is fetched from, and the artifact is sent to, the managers' blob endpoint
/// (`GET /internal/v1/sources/<digest>`, `PUT /internal/v1/artifacts/<digest>`), with the cell's token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageJob {
    /// The operation that it belongs to; output goes to its subject.
    pub operation: OperationId,
    /// The app.
    pub app: AppRef,
    /// Digest of the uploaded source (of the canonical tar inside the stored zstd stream).
    pub source: Digest,
    /// Recipe to use; `None` = detect.
    pub builder: Option<String>,
    /// Start command; `None` = the recipe's.
    pub command: Option<String>,
    /// Environment of the build.
    pub env: BTreeMap<String, String>,
    /// Longest time.
    pub timeout: Millis,
}

/// What a build says. `seq` counts from 1, so that a gap is seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageEvent {
    /// Position.
    pub seq: u64,
    /// What happened.
    pub event: StageOutput,
}

/// One happening in a build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum StageOutput {
    /// A step begins, for example `Installing Python packages`.
    Step {
        /// For people.
        title: String,
    },
    /// A line that a tool printed.
    Line {
        /// The line without its end, at most 4 KiB, valid UTF-8.
        text: String,
    },
    /// Sent every second while nothing else is, so that silence means loss.
    Alive,
    /// It worked.
    Done(StageResult),
    /// It did not.
    Failed {
        /// Stable code.
        code: ErrorCode,
        /// For people.
        message: String,
    },
}

/// What a build made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StageResult {
    /// Recipe that was used.
    pub builder: String,
    /// Digest of the stored artifact.
    pub artifact: Digest,
    /// Its size in bytes.
    pub artifact_bytes: u64,
    /// Start command.
    pub command: String,
    /// Environment that the recipe adds.
    pub env: BTreeMap<String, String>,
    /// The recipe's health check.
    pub health: HealthCheck,
}

impl WireMessage for StageEvent {
    const NAME: &'static str = "staging.event";
}
