//! `proxy-rewrite`: the request goes to the upstream with another path, host, method, other headers.

use super::Settings;
use super::values::{Scalars, check_header, check_not_ours, check_not_removed};
use crate::Fault;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The path that goes out, with variables: `/v2$uri`. A query in it goes before the client's.
    #[schemars(length(min = 1, max = 4096), regex(pattern = r"^/"))]
    pub uri: Option<String>,
    /// The method that goes out.
    pub method: Option<Method>,
    /// Pairs of a regular expression and what it is replaced by (`$1`): the first that matches counts.
    #[schemars(length(min = 2))]
    pub regex_uri: Option<Vec<String>>,
    /// The host that goes out.
    #[schemars(regex(pattern = r"^[0-9a-zA-Z\-.]+(:\d{1,5})?$"))]
    pub host: Option<String>,
    /// Headers that are set, added, removed.
    pub headers: Option<Headers>,
    /// Refused when true: paths are always normalised first.
    pub use_real_request_uri_unsafe: bool,
}

/// Methods that can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the methods")]
pub enum Method {
    Get,
    Post,
    Put,
    Head,
    Delete,
    Options,
    Mkcol,
    Copy,
    Move,
    Propfind,
    Lock,
    Unlock,
    Patch,
    Trace,
}

impl Method {
    /// As it is sent.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Head => "HEAD",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Mkcol => "MKCOL",
            Method::Copy => "COPY",
            Method::Move => "MOVE",
            Method::Propfind => "PROPFIND",
            Method::Lock => "LOCK",
            Method::Unlock => "UNLOCK",
            Method::Patch => "PATCH",
            Method::Trace => "TRACE",
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
    Set(BTreeMap<String, Scalars>),
}

/// Verbs.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Verbs {
    /// Beside those that are there.
    pub add: Option<BTreeMap<String, Scalars>>,
    /// Instead of those that are there.
    pub set: Option<BTreeMap<String, Scalars>>,
    /// Away.
    #[schemars(length(min = 1))]
    pub remove: Option<Vec<String>>,
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        let nothing = self.uri.is_none()
            && self.method.is_none()
            && self.regex_uri.is_none()
            && self.host.is_none()
            && self.headers.is_none();
        if self.use_real_request_uri_unsafe {
            let message = "is not done: paths are always normalised, so that no rule can be got round; leave it out";
            faults.push(Fault::new("use_real_request_uri_unsafe", message));
        }
        if nothing && !self.use_real_request_uri_unsafe {
            faults.push(Fault::new("uri", "is missing: give at least one of uri, regex_uri, method, host, headers"));
        }
        if let Some(pairs) = &self.regex_uri {
            if pairs.len() % 2 != 0 {
                faults.push(Fault::new("regex_uri", "has no replacement for its last expression"));
            }
            for (n, text) in pairs.iter().enumerate().step_by(2) {
                if let Err(why) = towpath_route::vars::pattern(text, false) {
                    faults.push(Fault::new(format!("regex_uri[{n}]"), why));
                }
            }
        }
        let check = |path: &str, map: &BTreeMap<String, Scalars>, faults: &mut Vec<Fault>| {
            for (name, values) in map {
                let path = format!("{path}.{name}");
                let texts = values.texts();
                check_header(&path, name, &texts, faults);
                if texts.iter().all(String::is_empty) {
                    check_not_removed(&path, name, faults);
                } else {
                    check_not_ours(&path, name, faults);
                }
            }
        };
        match &self.headers {
            Some(Headers::Set(map)) => check("headers", map, faults),
            Some(Headers::Verbs(verbs)) => {
                verbs.add.iter().for_each(|map| check("headers.add", map, faults));
                verbs.set.iter().for_each(|map| check("headers.set", map, faults));
                for (n, name) in verbs.remove.iter().flatten().enumerate() {
                    let path = format!("headers.remove[{n}]");
                    check_header(&path, name, &[], faults);
                    check_not_removed(&path, name, faults);
                }
            }
            None => {}
        }
    }
}
