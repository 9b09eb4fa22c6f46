//! `file-logger`: a line for each request in a file.

use super::Settings;
use super::logs::{Format, Told};
use crate::Fault;
use crate::model::Condition;
use schemars::JsonSchema;
use serde::Deserialize;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Config {
    /// The file.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Only requests that meet these conditions.
    pub r#match: Option<Condition>,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.told.check(faults);
    }
}

/// Metadata.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Fields of a line, where the plugin's use does not say.
    pub log_format: Option<Format>,
    /// Fields beside all that is known, where the plugin's use does not say.
    pub log_format_extra: Option<Format>,
    /// Refused: every use says its own.
    pub path: Option<String>,
}

impl Settings for Metadata {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.path.is_some() {
            faults.push(Fault::new("path", "does nothing: every use of file-logger says its own path"));
        }
    }
}
