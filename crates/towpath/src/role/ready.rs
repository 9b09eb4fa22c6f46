//! The ready file: tells scripts the real addresses once everything is up.

use crate::exit::{Failure, Outcome};
use serde::Serialize;
use std::path::Path;

/// Its content, as JSON. What a role does not have is absent.
#[derive(Debug, Default, Serialize)]
pub(super) struct Ready {
    /// Process id.
    pub(super) pid: u32,
    /// `up`, `manager`, `gateway` or `cell`.
    pub(super) role: &'static str,
    /// URL of the gateway's first listener.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) gateway: Option<String>,
    /// URL of the API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) api: Option<String>,
    /// URL of the gateway's metrics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metrics: Option<String>,
    /// File with the operator's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token_file: Option<String>,
    /// File with the cells' token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cell_token_file: Option<String>,
    /// Own files.
    pub(super) data_dir: String,
}

impl Ready {
    /// Writes the file in one step.
    pub(super) fn write(&self, file: &Path) -> Outcome {
        let failed = |error: &std::io::Error| Failure::io(format!("ready file {}", file.display()), error);
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let draft = file.with_file_name(name);
        std::fs::write(&draft, text).map_err(|error| failed(&error))?;
        std::fs::rename(&draft, file).map_err(|error| failed(&error))
    }
}
