//! `routes`.

use super::text::{Address, Condition, Host, Labels, Switch};
use super::{RawPlugins, Timeout, Upstream};
use crate::{Fault, Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use towpath_route::RuleSpec;
use towpath_types::AppRef;

/// A route: which requests it is for, what is done with them, where they go.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("allOf" = json!([
    {"oneOf": [{"required": ["uri"]}, {"required": ["uris"]}]},
    {"not": {"required": ["host", "hosts"]}},
    {"not": {"required": ["remote_addr", "remote_addrs"]}},
    {"anyOf": [{"required": ["plugins"]}, {"required": ["plugin_config_id"]}, {"required": ["upstream"]},
        {"required": ["upstream_id"]}, {"required": ["service_id"]}]}
])))]
pub struct Route {
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
    /// Path: exact, with `*` at the end for a prefix, with `:name` for a segment.
    #[schemars(length(min = 1, max = 4096))]
    pub uri: Option<String>,
    /// Several paths.
    #[schemars(length(min = 1), inner(length(min = 1, max = 4096)), extend("uniqueItems" = true))]
    pub uris: Option<Vec<String>>,
    /// Among routes that match equally well the higher wins.
    #[serde(default)]
    pub priority: i64,
    /// Methods; all when absent or empty.
    #[schemars(extend("uniqueItems" = true))]
    pub methods: Option<Vec<Method>>,
    /// Host; `*.example.com` for one label.
    pub host: Option<Host>,
    /// Several hosts.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub hosts: Option<Vec<Host>>,
    /// Address or network of the client.
    pub remote_addr: Option<Address>,
    /// Several addresses or networks.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub remote_addrs: Option<Vec<Address>>,
    /// Overrides the upstream's.
    pub timeout: Option<Timeout>,
    /// Conditions on variables: `[["arg_name", "==", "json"], …]`.
    pub vars: Option<Condition>,
    /// Plugins by name.
    pub plugins: Option<RawPlugins>,
    /// Plugins from a plugin configuration, under those of the route.
    pub plugin_config_id: Option<Id>,
    /// Where requests go, in place.
    pub upstream: Option<Upstream>,
    /// The service that the route is of.
    pub service_id: Option<Id>,
    /// Where requests go, by id.
    pub upstream_id: Option<Id>,
    /// Whether WebSocket upgrades pass.
    pub enable_websocket: Option<bool>,
    /// 1 = serves, 0 = does not.
    #[serde(default)]
    pub status: Switch,
}

/// A method that a route can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "they are HTTP's")]
pub enum Method {
    Get,
    Post,
    Put,
    Delete,
    Patch,
    Head,
    Options,
    Connect,
    Trace,
    Purge,
}

impl Method {
    /// As it stands in a request.
    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            Method::Patch => "PATCH",
            Method::Head => "HEAD",
            Method::Options => "OPTIONS",
            Method::Connect => "CONNECT",
            Method::Trace => "TRACE",
            Method::Purge => "PURGE",
        }
    }
}

impl Route {
    /// Every path.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.uri.iter().chain(self.uris.iter().flatten()).map(String::as_str)
    }

    /// Every host of its own.
    pub fn own_hosts(&self) -> impl Iterator<Item = &Host> {
        self.host.iter().chain(self.hosts.iter().flatten())
    }

    /// Every client address or network.
    pub fn remotes(&self) -> impl Iterator<Item = &Address> {
        self.remote_addr.iter().chain(self.remote_addrs.iter().flatten())
    }

    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        match (&self.uri, &self.uris) {
            (None, None) => faults.push(Fault::new("uri", "is missing: give uri or uris")),
            (Some(_), Some(_)) => faults.push(Fault::new("uris", "must not stand beside uri")),
            _ => {}
        }
        if self.host.is_some() && self.hosts.is_some() {
            faults.push(Fault::new("hosts", "must not stand beside host"));
        }
        if self.remote_addr.is_some() && self.remote_addrs.is_some() {
            faults.push(Fault::new("remote_addrs", "must not stand beside remote_addr"));
        }
        self.check_paths(faults);
        self.check_place(faults);
        let anything = self.plugins.is_some()
            || self.plugin_config_id.is_some()
            || self.upstream.is_some()
            || self.upstream_id.is_some()
            || self.service_id.is_some();
        if !anything {
            faults.push(Fault::new("", "does nothing: give upstream, upstream_id, service_id or plugins"));
        }
        if let Some(upstream) = &self.upstream {
            if self.upstream_id.is_some() {
                faults.push(Fault::new("upstream_id", "must not stand beside upstream"));
            }
            let mut inner = Vec::new();
            upstream.check(&mut inner);
            if !upstream.scheme.fits(false) {
                inner.push(Fault::new("scheme", upstream.scheme.misfit(false)));
            }
            faults.extend(inner.into_iter().map(|fault| fault.below("upstream")));
        }
    }

    fn check_paths(&self, faults: &mut Vec<Fault>) {
        let several =
            self.uris.iter().flatten().enumerate().map(|(index, path)| (format!("uris[{index}]"), path));
        for (field, path) in self.uri.iter().map(|path| ("uri".to_owned(), path)).chain(several) {
            if !path.starts_with('/') && path != "*" {
                faults.push(Fault::new(field, format!("{path:?} must begin with /")));
            } else if let Some(at) = path.find('*')
                && at + 1 != path.len()
            {
                faults.push(Fault::new(
                    field,
                    format!("{path:?} has a * before its end: only the end of a path can be open"),
                ));
            }
        }
    }

    /// What the routing table would refuse, where nothing else was found.
    fn check_place(&self, faults: &mut Vec<Fault>) {
        let paths: Vec<&str> = self.paths().collect();
        if paths.is_empty() {
            return;
        }
        let mut rule = RuleSpec::new("a", &paths, AppRef::of_upstream("none"));
        rule.hosts = self.own_hosts().map(|host| host.as_str().to_owned()).collect();
        for wrong in towpath_route::check::rule(&rule) {
            let field = match (wrong.field.strip_prefix("paths"), wrong.field.strip_prefix("hosts")) {
                (Some(_), _) if self.uri.is_some() => "uri".to_owned(),
                (Some(at), _) => format!("uris{at}"),
                (_, Some(_)) if self.host.is_some() => "host".to_owned(),
                _ => wrong.field,
            };
            if faults.iter().all(|fault| fault.path != field) {
                faults.push(Fault::new(field, wrong.message));
            }
        }
    }
}
