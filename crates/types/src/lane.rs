//! Where the lane of a request is read, and what happens to an unknown one.

use crate::LaneName;
use serde::{Deserialize, Serialize};

/// What an unknown or malformed lane tag does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum LaneMode {
    /// The request goes to base, and the response says so.
    #[default]
    Permissive,
    /// The request is answered 503 with an error code.
    Strict,
}

/// How a space reads lane tags. Sources are tried in the order of the fields; the first valid name wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LanePolicy {
    /// What an unknown tag does.
    pub mode: LaneMode,
    /// Request header with the tag.
    pub header: String,
    /// Cookie with the tag.
    pub cookie: String,
    /// Query parameter with the tag.
    pub query: String,
    /// Whether `<lane>--<app>.<domain>` names a lane.
    pub host_label: bool,
    /// Whether the `towpath.lane` member of W3C `baggage` is believed from any client (else only from instances).
    pub trust_baggage: bool,
}

impl Default for LanePolicy {
    fn default() -> Self {
        Self {
            mode: LaneMode::Permissive,
            header: "towpath-lane".into(),
            cookie: "towpath_lane".into(),
            query: "towpath_lane".into(),
            host_label: true,
            trust_baggage: false,
        }
    }
}

/// Sends part of a route's requests into a lane by rule: a gray release.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EntryRule {
    /// The lane that a matching request enters.
    pub lane: LaneName,
    /// Header conditions, all of which must hold.
    #[serde(default)]
    pub headers: Vec<HeaderMatch>,
    /// Share of the matching requests, 0..=100, chosen by `hash_by`.
    #[serde(default = "hundred")]
    pub percent: f32,
    /// What keeps one client on one side.
    #[serde(default)]
    pub hash_by: HashBy,
}

fn hundred() -> f32 {
    100.0
}

/// One condition on a request header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeaderMatch {
    /// Header name, case-insensitive.
    pub name: String,
    /// The value that it must have; absent = any value.
    #[serde(default)]
    pub value: Option<String>,
}

/// What a hash is taken of. `None` of the named thing in a request falls back to the client's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum HashBy {
    /// The client's address.
    #[default]
    Address,
    /// A request header.
    Header(String),
    /// A cookie.
    Cookie(String),
    /// A query parameter.
    Query(String),
    /// Path and query.
    Uri,
    /// A variable of the request, named as in conditions: `http_x_user`, `consumer_name`.
    Var(String),
    /// A text with variables in it: `$http_x_user$arg_id`.
    Vars(String),
}
