//! `_meta`, which every plugin's configuration can have.

use crate::model::Condition;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// What can be said of the use of any plugin.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Meta {
    /// Whether it is left out.
    pub disable: bool,
    /// Its answer when it refuses a request, instead of its own.
    pub error_response: Option<ErrorResponse>,
    /// Its place in the order, instead of the plugin's own.
    pub priority: Option<i32>,
    /// It runs only for requests that meet these conditions, as in `vars` of a route.
    pub filter: Option<Condition>,
}

/// An answer: text, or a JSON object.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ErrorResponse {
    /// Sent as it is.
    Text(String),
    /// Sent as JSON.
    Json(Map<String, Value>),
}
