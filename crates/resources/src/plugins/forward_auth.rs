//! `forward-auth`: a service of yours is asked whether the request may pass.

use super::Settings;
use super::values::{check_header, check_not_ours};
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where: `http://auth.example.com:8080/check`.
    #[schemars(regex(pattern = r"^https?://[^/?#\s]+[^#\s]*$"))]
    pub uri: String,
    /// Requests pass when the service cannot be asked.
    #[serde(default)]
    pub allow_degradation: bool,
    /// Status of the answer when the service cannot be asked.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200, max = 599))]
    pub status_on_error: u16,
    /// Verify the service's certificate.
    #[serde(default = "yes")]
    pub ssl_verify: bool,
    /// `POST` sends the request's body along.
    #[serde(default)]
    pub request_method: Method,
    /// Largest body that is sent along; larger ones get 413.
    #[serde(default = "most")]
    #[schemars(range(min = 1))]
    pub max_req_body_size: u64,
    /// Headers of the request that the service gets.
    #[serde(default)]
    pub request_headers: Vec<String>,
    /// More headers for the service; they may have variables.
    pub extra_headers: Option<BTreeMap<String, String>>,
    /// Headers of the service's answer that the upstream gets.
    #[serde(default)]
    pub upstream_headers: Vec<String>,
    /// Headers of the service's answer that a refused client gets.
    #[serde(default)]
    pub client_headers: Vec<String>,
    /// Milliseconds for the answer.
    #[serde(default = "three_seconds")]
    #[schemars(range(min = 1, max = 60000))]
    pub timeout: u64,
    /// Whether connections are kept.
    #[serde(default = "yes")]
    pub keepalive: bool,
    /// Milliseconds that one may be idle.
    #[serde(default = "minute")]
    #[schemars(range(min = 1000))]
    pub keepalive_timeout: u64,
    /// Most idle ones.
    #[serde(default = "five")]
    #[schemars(range(min = 1))]
    pub keepalive_pool: u32,
}

/// How the service is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Without body.
    #[default]
    Get,
    /// With the request's body.
    Post,
}

fn forbidden() -> u16 {
    403
}

fn yes() -> bool {
    true
}

fn most() -> u64 {
    67_108_864
}

fn three_seconds() -> u64 {
    3000
}

fn minute() -> u64 {
    60_000
}

fn five() -> u32 {
    5
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        let lists = [
            ("request_headers", &self.request_headers),
            ("upstream_headers", &self.upstream_headers),
            ("client_headers", &self.client_headers),
        ];
        for (path, names) in lists {
            for (n, name) in names.iter().enumerate() {
                check_header(&format!("{path}[{n}]"), name, &[], faults);
            }
        }
        for (n, name) in self.upstream_headers.iter().enumerate() {
            check_not_ours(&format!("upstream_headers[{n}]"), name, faults);
        }
        let kept = [
            ("keepalive", self.keepalive != yes()),
            ("keepalive_timeout", self.keepalive_timeout != minute()),
            ("keepalive_pool", self.keepalive_pool != five()),
        ];
        for (field, _) in kept.into_iter().filter(|(_, different)| *different) {
            faults.push(Fault::new(field, "does nothing: each question has a connection of its own; leave it out"));
        }
        for (name, value) in self.extra_headers.iter().flatten() {
            check_header(&format!("extra_headers.{name}"), name, std::slice::from_ref(value), faults);
        }
    }
}
