//! What a gateway works with: routes, upstreams and consumers with all that they refer to put in.

use crate::model::{Address, Host, Labels, Method, Node, Timeout, Upstream};
use crate::plugins::{Meta, PluginConfig, PluginCredential};
use crate::{Id, Key};
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;
use towpath_route::vars::Expr;
use towpath_types::{AppName, AppRef, LaneName, OrgName, SpaceName, SpaceRef};

/// A route, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The route's id.
    pub id: Id,
    /// Its name for people.
    pub name: Option<String>,
    /// Among routes that match equally well the higher wins.
    pub priority: i64,
    /// Its hosts, or its service's; empty = any.
    pub hosts: Vec<Host>,
    /// Its paths; at least one.
    pub paths: Vec<PathPattern>,
    /// Its methods; empty = any.
    pub methods: Vec<Method>,
    /// Clients; empty = any.
    pub remote: Vec<Address>,
    /// Conditions on variables.
    pub vars: Option<Expr>,
    /// Overrides the upstream's.
    pub timeout: Option<Timeout>,
    /// Whether WebSocket upgrades pass.
    pub websocket: bool,
    /// Where requests go.
    pub target: Target,
    /// Route over plugin configuration over service, in the order in which they run; those with `_meta.disable` are in it.
    pub plugins: Vec<PluginUse>,
    /// The service that it is of.
    pub service: Option<Id>,
    /// That service's name for people.
    pub service_name: Option<String>,
    /// Labels.
    pub labels: Labels,
}

/// The paths of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathPattern {
    /// This path.
    Exact(String),
    /// All that begin so.
    Prefix(String),
    /// With `:name` for a segment; a `*` at the end takes the rest.
    Parameters(String),
}

impl PathPattern {
    /// The pattern that `text` of a document means.
    pub fn of(text: &str) -> Self {
        match text.strip_suffix('*') {
            _ if text.contains("/:") => PathPattern::Parameters(text.to_owned()),
            Some("") => PathPattern::Prefix("/".to_owned()),
            Some(prefix) => PathPattern::Prefix(prefix.to_owned()),
            None => PathPattern::Exact(text.to_owned()),
        }
    }
}

/// Where the requests of a route go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// To an upstream, see [`crate::Changed::upstreams`].
    Upstream(UpstreamKey),
    /// To an app of this platform, by way of the upstream that names it.
    App {
        /// The app.
        app: AppRef,
        /// The lane of requests that have none.
        lane: Option<LaneName>,
        /// The upstream.
        upstream: UpstreamKey,
    },
    /// Nowhere: a plugin answers.
    Nowhere,
}

/// Which upstream: `<id>`, or `routes/<id>`, `services/<id>`, `stream_routes/<id>` for one that stands in such a resource,
/// with `/<name>` behind it for one that stands in a plugin of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamKey(Arc<str>);

impl UpstreamKey {
    /// The upstream with an id of its own.
    pub fn by_id(id: &Id) -> Self {
        Self(id.as_str().into())
    }

    /// The one that stands in `owner`.
    pub fn inside(owner: &Key) -> Self {
        Self(owner.to_string().into())
    }

    /// The one that stands in the configuration of `plugin` in `owner`, by its name there.
    pub fn inside_plugin(owner: &Key, plugin: &str, name: &str) -> Self {
        Self(format!("{owner}/{plugin}/{name}").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UpstreamKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An upstream, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedUpstream {
    /// Which.
    pub key: UpstreamKey,
    /// The resource that it is, or stands in.
    pub owner: Key,
    /// What serves.
    pub serves: Serves,
    /// All that it says.
    pub spec: Arc<Upstream>,
    /// Certificate and key that nodes are shown, PEM.
    pub client_certificate: Option<Arc<(String, String)>>,
}

/// What serves the requests of an upstream.
#[derive(Debug, Clone, PartialEq)]
pub enum Serves {
    /// These; each has a port, given or of the scheme.
    Nodes(Vec<Node>),
    /// What DNS says of this name.
    Dns(String),
    /// An app.
    App {
        /// The app.
        app: AppRef,
        /// The lane of requests that have none.
        lane: Option<LaneName>,
    },
}

/// A stream route, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedStream {
    /// The id.
    pub id: Id,
    /// All that it says.
    pub spec: Arc<crate::model::StreamRoute>,
    /// Where connections go.
    pub target: Target,
    /// Its plugins over its service's.
    pub plugins: Vec<PluginUse>,
}

/// A consumer, resolved.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedConsumer {
    /// The user name.
    pub name: Id,
    /// Its group.
    pub group: Option<Id>,
    /// What proves who it is: its own, and those of its credentials with their ids.
    pub credentials: Vec<(Option<Id>, PluginCredential)>,
    /// Its plugins over its group's. They go over those of a route, see [`merge`].
    pub plugins: Vec<PluginUse>,
    /// Labels.
    pub labels: Labels,
}

/// A global rule, resolved. Rules run one after the other, before the plugins of routes.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedRule {
    /// The id.
    pub id: Id,
    /// Its plugins.
    pub plugins: Vec<PluginUse>,
}

/// A plugin where it is used.
#[derive(Debug, Clone, PartialEq)]
pub struct PluginUse {
    /// The plugin.
    pub name: &'static str,
    /// Its place in the order: the higher goes first.
    pub priority: i32,
    /// Its configuration.
    pub config: PluginConfig,
    /// `_meta`.
    pub meta: Meta,
    /// The resource in which it stands.
    pub from: Source,
}

/// The resource in which something stands.
pub type Source = Key;

/// Plugins after merging.
pub type Merged = Vec<PluginUse>;

/// `over` and those of `under` that are not in `over` by name, in the order in which they run. A configuration is replaced as a whole.
///
/// The order of resources is consumer, consumer group, route, plugin configuration, service.
pub fn merge(over: &[PluginUse], under: &[PluginUse]) -> Merged {
    let mut merged = over.to_vec();
    merged.extend(under.iter().filter(|below| over.iter().all(|above| above.name != below.name)).cloned());
    order(&mut merged);
    merged
}

pub(crate) fn order(uses: &mut [PluginUse]) {
    uses.sort_by_key(|plugin| (Reverse(plugin.priority), plugin.name));
}

/// The app that the text names: `shop` in the default space, or `org/space/shop`.
pub(crate) fn app_of(text: &str) -> Result<AppRef, String> {
    let (org, space, app) = match text.split('/').collect::<Vec<_>>().as_slice() {
        [app] => ("default", "default", *app),
        [org, space, app] => (*org, *space, *app),
        _ => return Err(format!("{text:?} is no app: give its name, or org/space/name")),
    };
    let wrong = |what: &str, part: &str| format!("{part:?} is no name of {what}");
    let org: OrgName = org.parse().map_err(|_| wrong("an org", org))?;
    let space: SpaceName = space.parse().map_err(|_| wrong("a space", space))?;
    let app: AppName = app.parse().map_err(|_| wrong("an app", app))?;
    Ok(AppRef::new(&SpaceRef { org, space }, app))
}
