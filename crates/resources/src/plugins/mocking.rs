//! `mocking`: an invented answer instead of an upstream's.

use super::Settings;
use super::values::{Scalar, check_headers};
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("anyOf" = json!([{"required": ["response_example"]}, {"required": ["response_schema"]}])))]
pub struct Config {
    /// Seconds before the answer.
    pub delay: u32,
    /// Status.
    #[schemars(range(min = 100, max = 599))]
    pub response_status: u16,
    /// Content type: `application/json`, `text/plain`, `application/xml`, `text/xml`.
    pub content_type: String,
    /// Body; it may have variables.
    pub response_example: Option<String>,
    /// JSON Schema of a body that is made at random: `type`, `properties`, `items`, `example`.
    pub response_schema: Option<Map<String, Value>>,
    /// Whether `x-mock-by` says that it is invented.
    pub with_mock_header: bool,
    /// More headers; they may have variables.
    pub response_headers: Option<BTreeMap<String, Scalar>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            delay: 0,
            response_status: 200,
            content_type: "application/json;charset=utf8".to_owned(),
            response_example: None,
            response_schema: None,
            with_mock_header: true,
            response_headers: None,
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.response_example.is_none() && self.response_schema.is_none() {
            faults.push(Fault::new("response_example", "is missing: give response_example or response_schema"));
        }
        let kind = self.content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let known = ["application/json", "text/plain", "application/xml", "text/xml"];
        if self.response_example.is_none() && !known.contains(&kind.as_str()) {
            faults.push(Fault::new(
                "content_type",
                format!("{kind:?} cannot be made of a schema: give one of {}", known.join(", ")),
            ));
        }
        if let Some(headers) = &self.response_headers {
            check_headers("response_headers", headers, faults);
        }
    }
}
