//! `cors`: which pages of other origins may use the responses.

use super::Settings;
use super::values::check_patterns;
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Origins, separated by commas; `*` = all, `**` = all, with credentials too.
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    pub allow_origins: String,
    /// Methods, separated by commas; `*` = all, `**` = all, with credentials too.
    pub allow_methods: String,
    /// Request headers, separated by commas; `*` = all, `**` = all that are asked for.
    pub allow_headers: String,
    /// Response headers that a page may read, separated by commas.
    pub expose_headers: Option<String>,
    /// Seconds for which a browser keeps this; -1 = not at all.
    pub max_age: i64,
    /// Whether cookies may come along.
    pub allow_credential: bool,
    /// Regular expressions of origins, instead of `allow_origins`.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub allow_origins_by_regex: Option<Vec<String>>,
    /// Names of origins in the plugin's metadata.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub allow_origins_by_metadata: Option<Vec<String>>,
    /// Origins that may see timings.
    #[schemars(regex(pattern = r"^(\*|\*\*|null|\w+://[^,]+(,\w+://[^,]+)*)$"))]
    pub timing_allow_origins: Option<String>,
    /// The same by regular expressions.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub timing_allow_origins_by_regex: Option<Vec<String>>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow_origins: "*".to_owned(),
            allow_methods: "*".to_owned(),
            allow_headers: "*".to_owned(),
            expose_headers: None,
            max_age: 5,
            allow_credential: false,
            allow_origins_by_regex: None,
            allow_origins_by_metadata: None,
            timing_allow_origins: None,
            timing_allow_origins_by_regex: None,
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.allow_credential {
            let stars = [
                ("allow_origins", self.allow_origins == "*"),
                ("allow_methods", self.allow_methods == "*"),
                ("allow_headers", self.allow_headers == "*"),
                ("expose_headers", self.expose_headers.as_deref() == Some("*")),
                ("timing_allow_origins", self.timing_allow_origins.as_deref() == Some("*")),
            ];
            for (field, _) in stars.into_iter().filter(|(_, star)| *star) {
                faults.push(Fault::new(field, "cannot be \"*\" when allow_credential is true"));
            }
        }
        check_patterns("allow_origins_by_regex", self.allow_origins_by_regex.iter().flatten(), faults);
        let timing = self.timing_allow_origins_by_regex.iter().flatten();
        check_patterns("timing_allow_origins_by_regex", timing, faults);
    }
}

/// Metadata.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Metadata {
    /// Origins by name.
    pub allow_origins: BTreeMap<String, String>,
}

impl Settings for Metadata {}
