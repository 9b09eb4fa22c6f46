//! `proxy-cache`: responses are kept and given again.

use super::Settings;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where responses are kept.
    pub cache_strategy: Strategy,
    /// Name of the part of the cache; its responses are apart from those of other names.
    #[schemars(length(min = 1, max = 100))]
    pub cache_zone: String,
    /// What makes two requests the same: texts and `$variables`.
    #[schemars(length(min = 1), inner(regex(pattern = r"(^[^\$].+$|^\$[0-9a-zA-Z_]+$)")))]
    pub cache_key: Vec<String>,
    /// Statuses of responses that are kept.
    #[schemars(length(min = 1), inner(range(min = 200, max = 599)))]
    pub cache_http_status: BTreeSet<u16>,
    /// Methods of requests that are answered from the cache; `POST` is refused, because a key has no body in it.
    #[schemars(length(min = 1))]
    pub cache_method: BTreeSet<Method>,
    /// Whether clients see neither `Cache-Control` nor `Expires`.
    pub hide_cache_headers: bool,
    /// Whether `Cache-Control` of requests counts, and responses that say nothing of their freshness are not kept.
    pub cache_control: bool,
    /// A request for which one of these is neither empty nor `0` goes past the cache.
    #[schemars(length(min = 1), inner(regex(pattern = r"(^[^\$].+$|^\$[0-9a-zA-Z_]+$)")))]
    pub cache_bypass: Option<Vec<String>>,
    /// A response is not kept if one of these is neither empty nor `0`.
    #[schemars(length(min = 1), inner(regex(pattern = r"(^[^\$].+$|^\$[0-9a-zA-Z_]+$)")))]
    pub no_cache: Option<Vec<String>>,
    /// Seconds for which a response is fresh that does not say so itself.
    #[schemars(range(min = 1))]
    pub cache_ttl: u64,
    /// Whether each consumer has a part of the cache for itself.
    pub consumer_isolation: bool,
    /// Whether responses with `Set-Cookie` are kept (in memory only).
    pub cache_set_cookie: bool,
    /// Longest body that is kept, bytes.
    #[schemars(range(min = 1))]
    pub max_resp_body_size: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_strategy: Strategy::Disk,
            cache_zone: "disk_cache_one".to_owned(),
            cache_key: vec!["$host".to_owned(), "$request_uri".to_owned()],
            cache_http_status: [200, 301, 404].into(),
            cache_method: [Method::Get, Method::Head].into(),
            hide_cache_headers: false,
            cache_control: false,
            cache_bypass: None,
            no_cache: None,
            cache_ttl: 300,
            consumer_isolation: true,
            cache_set_cookie: false,
            max_resp_body_size: 64 << 20,
        }
    }
}

/// Where responses are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// In files.
    Disk,
    /// In memory.
    Memory,
}

/// A method whose responses can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        for (n, part) in self.cache_key.iter().enumerate().filter(|(_, part)| *part == "$request_method") {
            let why = format!("{part:?} cannot be part of a key: GET and HEAD have one response");
            faults.push(Fault::new(format!("cache_key[{n}]"), why));
        }
        if self.cache_method.contains(&Method::Post) {
            let why = "POST cannot be cached: its body is not part of the key; leave it out";
            faults.push(Fault::new("cache_method", why));
        }
        for status in self.cache_http_status.iter().filter(|status| matches!(**status, 206 | 304)) {
            let why = format!("{status} stands for a part of a response, which is not kept; leave it out");
            faults.push(Fault::new("cache_http_status", why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn post_is_refused_by_name() {
        let of = |methods: &[&str]| {
            let config: Config = serde_json::from_value(serde_json::json!({"cache_method": methods})).unwrap();
            let mut faults = Vec::new();
            config.check(&mut faults);
            faults.len()
        };
        assert_eq!((of(&["GET", "HEAD"]), of(&["GET", "POST"])), (0, 1));
    }
}
