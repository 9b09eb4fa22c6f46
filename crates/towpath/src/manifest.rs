//! What a directory says of the app in it: `towpath.toml`, else Cloud Foundry's `manifest.yml`; a `Procfile` gives the
//! command if they do not.
//!
//! Everything in a file is either used, refused by name and line, or (foreign formats only) said to be ignored.

pub(crate) mod cloudfoundry;
mod environment;
mod health;
pub(crate) mod load;
mod procfile;
mod route;
mod towpath;
mod upstream;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use towpath_types::health::HealthCheck;
use towpath_types::spec::Limits;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppName, LaneName, Millis};

pub(crate) use environment::check_variable;
pub(crate) use route::{RouteWish, parse_route};
pub(crate) use towpath::BUILDERS;

/// One app as its manifest describes it. `None` = not said.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Manifest {
    /// Name of the app.
    pub(crate) name: Option<AppName>,
    /// Lane to push to.
    pub(crate) lane: Option<LaneName>,
    /// Wanted instances.
    pub(crate) instances: Option<u32>,
    /// Limits of each instance.
    pub(crate) limits: Limits,
    /// Start command.
    pub(crate) command: Option<String>,
    /// Recipe that builds it.
    pub(crate) builder: Option<String>,
    /// Health check.
    pub(crate) health: Option<HealthCheck>,
    /// Environment.
    pub(crate) env: BTreeMap<String, String>,
    /// Variables that have to be set as secrets before a push.
    pub(crate) secrets: BTreeSet<String>,
    /// Further addresses.
    pub(crate) routes: Vec<RouteWish>,
    /// Protocol of the app's port.
    pub(crate) protocol: Option<Protocol>,
    /// From SIGTERM to SIGKILL.
    pub(crate) grace: Option<Millis>,
    /// Balancing, limits in time, retries.
    pub(crate) upstream: Option<UpstreamSpec>,
    /// Directory with the app, if it is not the one of the manifest.
    pub(crate) path: Option<PathBuf>,
    /// What was read but has no effect, one line each: `manifest.yml:7: stack: …`.
    pub(crate) ignored: Vec<String>,
}
