//! `stream_routes`.

use super::text::{Address, Host, Labels};
use super::{RawPlugins, Upstream};
use crate::{Fault, Id};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

/// A route for connections instead of requests.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("not" = json!({"required": ["upstream", "upstream_id"]})))]
pub struct StreamRoute {
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
    /// Address or network of the client.
    pub remote_addr: Option<Address>,
    /// Address that the client connected to.
    pub server_addr: Option<Address>,
    /// Port that the client connected to.
    #[schemars(range(min = 1, max = 65535))]
    pub server_port: Option<u16>,
    /// Server name that the client asks for in its TLS handshake; a wildcard stands for any number of labels.
    pub sni: Option<Host>,
    /// Where connections go, in place.
    pub upstream: Option<Upstream>,
    /// Where connections go, by id.
    pub upstream_id: Option<Id>,
    /// The service whose upstream it takes.
    pub service_id: Option<Id>,
    /// Plugins by name.
    pub plugins: Option<RawPlugins>,
}

impl StreamRoute {
    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        if let Some(upstream) = &self.upstream {
            if self.upstream_id.is_some() {
                faults.push(Fault::new("upstream_id", "must not stand beside upstream"));
            }
            let mut inner = Vec::new();
            upstream.check(&mut inner);
            if !upstream.scheme.fits(true) {
                inner.push(Fault::new("scheme", upstream.scheme.misfit(true)));
            }
            faults.extend(inner.into_iter().map(|fault| fault.below("upstream")));
        }
        if self.upstream.is_none() && self.upstream_id.is_none() && self.service_id.is_none() {
            faults.push(Fault::new("upstream", "is missing: give upstream, upstream_id or service_id"));
        }
    }
}
