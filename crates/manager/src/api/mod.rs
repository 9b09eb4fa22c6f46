//! The REST API: what people, their tools and cells ask of the platform.
//!
//! Invariants: every endpoint is in one table of permissions (`access`) and in the OpenAPI document that is made from the handlers; every
//! error is a problem document with a stable code; a panicking handler ends its own request alone; hard state is changed
//! by compare-and-set, never by last read.
//!
//! Must not: decide anything about instances (it writes what is wanted, and tells what is).

mod accept;
mod access;
mod apisix;
mod apps;
mod attempts;
mod audit;
mod auth;
mod body;
mod callers;
mod calls;
mod cells;
mod edge;
mod explain;
mod first_tokens;
mod forward;
mod groups;
mod guarded;
mod instances;
mod lanes;
mod lately;
mod login;
mod logins;
mod logs;
mod managers;
mod members;
mod operations;
mod orgs;
mod page;
mod passwords;
pub mod problem;
mod query;
mod quota;
mod reading;
mod releases;
mod retention;
mod router;
mod routes;
mod secrets;
mod server;
mod sources;
mod sse;
mod status;
mod store_probe;
mod strict;
mod tokens;
mod trail;
mod users;
mod validate;
mod variables;
mod view;
mod writing;

pub use retention::remove_ended;
pub use router::openapi;
pub use server::{ApiServer, start};
pub use view::OperationView;

use crate::blobs::{BlobLimits, Blobs};
use crate::core::Core;
pub use crate::core::changes::ChangeLimits;
use crate::operations::Operations;
use std::sync::Arc;

/// Limits of the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiLimits {
    /// Of uploads.
    pub blobs: BlobLimits,
    /// Requests without a valid token that an address may send in a minute; further ones are answered with 429.
    pub failed_auth_per_minute: u32,
    /// Proxies in front of the API: what they say about their clients' addresses is believed.
    pub trusted_proxies: Vec<towpath_types::NetBlock>,
    /// Wrong passwords that are taken for one user in a minute; further logins are answered with 429.
    pub wrong_per_user_per_minute: u32,
    /// Wrong passwords that are taken from one address in a minute.
    pub wrong_per_address_per_minute: u32,
    /// Right ones of one user in a minute.
    pub right_per_user_per_minute: u32,
    /// Sessions of one user; a further one ends the oldest.
    pub sessions_per_user: usize,
    /// Entries of the audit log that are kept of each org, and of the platform, at most.
    pub audit_entries: usize,
    /// Entries about their own logins and passwords that are kept of each user at most, beside those.
    pub audit_logins_per_user: usize,
    /// How long they are kept at most.
    pub audit_days: u32,
    /// Connections at once; further ones wait.
    pub connections: usize,
    /// Changes that run and wait.
    pub changes: ChangeLimits,
    /// Longest time for a request's head.
    pub head: std::time::Duration,
}

impl Default for ApiLimits {
    fn default() -> Self {
        Self {
            blobs: BlobLimits::default(),
            failed_auth_per_minute: 20,
            trusted_proxies: Vec::new(),
            wrong_per_user_per_minute: 10,
            wrong_per_address_per_minute: 30,
            right_per_user_per_minute: 30,
            sessions_per_user: 50,
            audit_entries: 100_000,
            audit_logins_per_user: 1_000,
            audit_days: 365,
            connections: 4096,
            changes: ChangeLimits::default(),
            head: std::time::Duration::from_secs(10),
        }
    }
}

/// What handlers share.
#[derive(Clone)]
pub(crate) struct ApiState {
    pub(crate) core: Arc<Core>,
    pub(crate) blobs: Blobs,
    pub(crate) operations: Arc<Operations>,
    /// Other managers, as places of blobs.
    pub(crate) peers: Arc<crate::peers::Peers>,
    /// Requests that may be on their way to other managers.
    pub(crate) forwards: crate::core::shares::Shares,
    /// Requests without a valid token, by address.
    pub(crate) failures: Arc<attempts::Attempts<std::net::IpAddr>>,
    /// Logins and their limits.
    pub(crate) logins: Arc<logins::Logins>,
    pub(crate) passwords: Arc<passwords::Passwords>,
    /// Tokens that were made a moment ago.
    pub(crate) lately: Arc<lately::Lately>,
    /// Changes that count towards a quota, one at a time of each org.
    pub(crate) turns: Arc<quota::Turns>,
    /// Where this API is reached.
    pub(crate) url: String,
    pub(crate) probe: Arc<store_probe::StoreProbe>,
    pub(crate) documents: Arc<router::Documents>,
    /// Becomes `true` when the API stops: streams end then.
    pub(crate) ending: tokio::sync::watch::Receiver<bool>,
}
