//! `file-logger`: a line for each request in a file.

use super::Settings;
use crate::Fault;
use crate::model::Condition;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The file.
    #[schemars(length(min = 1))]
    pub path: String,
    /// Fields of a line, each a text with variables; absent = all that is known.
    pub log_format: Option<BTreeMap<String, Value>>,
    /// Only requests that meet these conditions.
    pub r#match: Option<Condition>,
}

impl Settings for Config {}

/// Metadata.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Fields of a line, where the plugin's use does not say.
    pub log_format: Option<BTreeMap<String, Value>>,
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
