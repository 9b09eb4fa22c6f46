//! `response-rewrite`: the client gets another status, other headers, another body.

use super::Settings;
use super::values::{Scalar, check_header, check_headers, check_vars};
use crate::Fault;
use base64::Engine;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Status.
    #[schemars(range(min = 200, max = 598))]
    pub status_code: Option<u16>,
    /// Body.
    pub body: Option<String>,
    /// Whether `body` is in base64.
    pub body_base64: bool,
    /// Headers that are set, added, removed.
    pub headers: Option<Headers>,
    /// Only responses that meet these conditions.
    pub vars: Option<Vec<Value>>,
    /// Replacements in the body; not beside `body`.
    #[schemars(length(min = 1))]
    pub filters: Option<Vec<Filter>>,
    /// Bodies that are longer pass as they are, bytes.
    #[schemars(range(min = 1))]
    pub max_resp_body_size: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            status_code: None,
            body: None,
            body_base64: false,
            headers: None,
            vars: None,
            filters: None,
            max_resp_body_size: 67_108_864,
        }
    }
}

/// What is done to headers: by verbs, or (older) a map of headers to set.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Headers {
    /// By verbs; they are done in the order add, set, remove.
    Verbs(Verbs),
    /// Headers to set; an empty text removes.
    Set(BTreeMap<String, Scalar>),
}

/// Verbs.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Verbs {
    /// `Name: value`, beside those that are there.
    #[schemars(length(min = 1))]
    pub add: Option<Vec<String>>,
    /// Instead of those that are there.
    pub set: Option<BTreeMap<String, Scalar>>,
    /// Away.
    #[schemars(length(min = 1))]
    pub remove: Option<Vec<String>>,
}

/// A replacement in the body.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// What is looked for.
    #[schemars(length(min = 1))]
    pub regex: String,
    /// How often.
    #[serde(default)]
    pub scope: Scope,
    /// What is put in its place, with `$1`.
    pub replace: String,
    /// `i` = in any case; `j`, `o` and `u` are taken and mean nothing here.
    #[serde(default = "jo")]
    #[schemars(regex(pattern = r"^[ijouxsmDJUad]*$"))]
    pub options: String,
}

/// How often something is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The first time.
    #[default]
    Once,
    /// Each time.
    Global,
}

fn jo() -> String {
    "jo".to_owned()
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.body.is_some() && self.filters.is_some() {
            faults.push(Fault::new("filters", "must not stand beside body"));
        }
        if self.body_base64 && let Some(body) = &self.body
            && base64::engine::general_purpose::STANDARD.decode(body.trim()).is_err()
        {
            faults.push(Fault::new("body", "is not in base64, which body_base64 says it is"));
        }
        if let Some(vars) = &self.vars {
            check_vars("vars", vars, faults);
        }
        for (n, filter) in self.filters.iter().flatten().enumerate() {
            if let Err(why) = towpath_route::vars::pattern(&filter.regex, false) {
                faults.push(Fault::new(format!("filters[{n}].regex"), why));
            }
            if let Some(other) = filter.options.chars().find(|option| !"ijou".contains(*option)) {
                let message = format!("{other:?} is not done: of PCRE's options i, j, o and u are taken");
                faults.push(Fault::new(format!("filters[{n}].options"), message));
            }
        }
        match &self.headers {
            Some(Headers::Set(map)) => check_headers("headers", map, faults),
            Some(Headers::Verbs(verbs)) => {
                for (n, line) in verbs.add.iter().flatten().enumerate() {
                    let path = format!("headers.add[{n}]");
                    match line.split_once(':') {
                        Some((name, value)) => {
                            check_header(&path, name.trim(), &[value.trim().to_owned()], faults);
                        }
                        None => faults.push(Fault::new(path, "is no header: write Name: value")),
                    }
                }
                verbs.set.iter().for_each(|map| check_headers("headers.set", map, faults));
                for (n, name) in verbs.remove.iter().flatten().enumerate() {
                    check_header(&format!("headers.remove[{n}]"), name, &[], faults);
                }
            }
            None => {}
        }
    }
}
