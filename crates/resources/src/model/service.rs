//! `services`.

use super::text::{Host, Labels};
use super::{RawPlugins, Upstream};
use crate::{Fault, Id};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// What several routes have in common.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = json!({"required": ["upstream", "upstream_id"]})))]
pub struct Service {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Plugins by name, under those of routes.
    pub plugins: Option<RawPlugins>,
    /// Where requests go, in place.
    pub upstream: Option<Upstream>,
    /// Where requests go, by id.
    pub upstream_id: Option<Id>,
    /// Whether WebSocket upgrades pass, where the route does not say.
    pub enable_websocket: Option<bool>,
    /// Hosts of its routes that have none of their own.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<Host>>,
}

impl Service {
    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        for (at, host) in self.hosts.iter().flatten().enumerate() {
            if let Err(why) = towpath_route::check::host(&host.as_str().to_ascii_lowercase()) {
                faults.push(Fault::new(format!("hosts[{at}]"), why));
            }
        }
        if let Some(upstream) = &self.upstream {
            if self.upstream_id.is_some() {
                faults.push(Fault::new("upstream_id", "must not stand beside upstream"));
            }
            let mut inner = Vec::new();
            upstream.check(&mut inner);
            faults.extend(inner.into_iter().map(|fault| fault.below("upstream")));
        }
    }
}
