//! The routing table: one immutable value that a gateway swaps as a whole.

use crate::app::{App, AppSlot, Rule};
use crate::budget::RetryBudget;
use crate::calm::Calm;
use crate::change::{Change, Refused};
use crate::endpoint::Endpoint;
use crate::hash::hash_bytes;
use crate::host;
use crate::index::Index;
use crate::lane::Asked;
use crate::path;
use crate::routes::{Hit, Route, Routes};
use crate::rules::{Rule as RouteRule, rules_form};
use crate::source::SourceEntry;
use crate::space::{Space, SpaceSlot};
use crate::tag::Tag;
use crate::{entry, request::RequestView};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use towpath_types::lane::LanePolicy;
use towpath_types::upstream::UpstreamSpec;
use towpath_types::{AppRef, InstanceId, LaneName, Place};

/// Apps in one chunk of the list of apps.
pub(crate) const CHUNK: usize = 128;

/// The routing table of a gateway. A clone is one pointer.
#[derive(Debug, Clone)]
pub struct Table(pub(crate) Arc<Inner>);

#[derive(Debug, Clone)]
pub(crate) struct Inner {
    pub(crate) place: Place,
    pub(crate) base: LaneName,
    pub(crate) routes: Routes,
    /// Slots of spaces by name. A space keeps its slot for good.
    pub(crate) space_slots: Index<SpaceSlot>,
    pub(crate) spaces: Arc<Vec<Arc<Space>>>,
    /// Slots of apps by name. An app keeps its slot while anything speaks of it.
    pub(crate) app_slots: Index<AppSlot>,
    /// Apps by slot, in chunks so that a change copies one of them.
    pub(crate) apps: Arc<Vec<Arc<Vec<Option<App>>>>>,
    /// Slots that are free again.
    pub(crate) free: Arc<Vec<u32>>,
    pub(crate) sources: Index<Arc<SourceEntry>>,
    /// Which apps are calm.
    pub(crate) calm: Arc<Calm>,
    /// One copy of each lane's name, so that all pools of a lane share it.
    pub(crate) lanes: Arc<BTreeSet<LaneName>>,
}

/// Sizes of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Routes.
    pub routes: usize,
    /// Rules.
    pub rules: usize,
    /// Apps that were put.
    pub apps: usize,
    /// Spaces.
    pub spaces: usize,
    /// Endpoints, in whatever state.
    pub endpoints: usize,
}

/// A raw path (a query may follow) as rules and conditions see it: slashes, dots and escapes resolved, but for escaped slashes
/// and percent signs. `None` = it is too long for that, and no rule matches it.
pub fn matched_form(raw: &[u8]) -> Option<Cow<'_, [u8]>> {
    let (path, plain) = path::cut(raw);
    if plain {
        return Some(Cow::Borrowed(path));
    }
    let (mut buf, mut decoded) = ([0; path::PATH_MAX], [0; path::PATH_MAX]);
    rules_form(path::normalize(path, &mut buf)?, &mut decoded).map(|path| Cow::Owned(path.to_vec()))
}

/// A route that matches a request, with its app and space.
#[derive(Debug, Clone, Copy)]
pub struct Match<'t> {
    route: &'t Arc<Route>,
    rule: Option<(&'t Arc<RouteRule>, u16)>,
    has_entry: bool,
    slot: u32,
    pub(crate) app: &'t App,
    pub(crate) space: &'t Space,
    host_lane: HostLane,
}

/// The lane in the host's first label.
#[derive(Debug, Clone, Copy)]
enum HostLane {
    None,
    Malformed,
    Tag(Tag),
}

impl Table {
    /// An empty table for a gateway at `place`.
    pub fn new(place: Place) -> Self {
        let base = LaneName::base();
        Self(Arc::new(Inner {
            place,
            routes: Routes::new(),
            space_slots: Index::new(16),
            spaces: Arc::default(),
            app_slots: Index::new(256),
            apps: Arc::default(),
            free: Arc::default(),
            sources: Index::new(64),
            calm: Arc::default(),
            lanes: Arc::new(BTreeSet::from([base.clone()])),
            base,
        }))
    }

    /// Where the gateway stands.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// The table with the changes applied in their order, and the items that could not be used; an older version of
    /// such an item keeps serving. Loads go to the endpoints' states at once. Never on the request path.
    pub fn apply(&self, changes: &[Change], now: u64) -> (Table, Vec<Refused>) {
        let mut edit = crate::edit::Edit::new(self, now);
        for change in changes {
            edit.apply(change);
        }
        edit.finish()
    }

    /// Whether both are the very same version, so that a swap would change nothing.
    pub fn same(&self, other: &Table) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Sizes.
    pub fn counts(&self) -> Counts {
        Counts {
            routes: self.0.routes.len(),
            rules: self.0.routes.rules().len(),
            apps: self.apps().filter(|app| app.rare.known).count(),
            spaces: self.0.spaces.iter().filter(|space| space.known).count(),
            endpoints: self.endpoints().count(),
        }
    }

    /// All endpoints, for reports. Not for the request path.
    pub fn endpoints(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        self.apps().flat_map(App::pools).flat_map(|pool| pool.nodes()).map(|node| &node.endpoint)
    }

    /// Requests in flight to each draining endpoint of the table, those without any included.
    pub fn draining(&self) -> Vec<(InstanceId, u64)> {
        self.endpoints()
            .filter(|endpoint| endpoint.draining())
            .map(|endpoint| (endpoint.instance(), u64::from(endpoint.state.in_flight())))
            .collect()
    }

    /// What serves a request to a host (`Host` header or `:authority`, with or without port) and a path (a query may
    /// follow): an app's own route, or a rule.
    ///
    /// The host decides first (itself, `*.` and the rest of it, none), then the path (exact, then the longest literal before
    /// a `*` or parameter), then the higher priority, the longer path as written, the smaller id. Where the
    /// conditions of a rule do not hold, the next one in this order is tried. An app's own route stands like a
    /// rule of priority 0 on its path and on all below it, behind other rules of that priority.
    pub fn find_for<R: RequestView>(&self, host: &[u8], path: &[u8], request: &R) -> Option<Match<'_>> {
        self.find_any(host, path, Some(request), false)
    }

    /// The same for a request of which nothing else is known: no rule with a condition holds.
    pub fn find(&self, host: &[u8], path: &[u8]) -> Option<Match<'_>> {
        self.find_any::<Nothing>(host, path, None, false)
    }

    /// An app's own route for a request of which it was found out that no rule takes it: it stays so, whatever has changed since.
    pub fn find_own(&self, host: &[u8], path: &[u8]) -> Option<Match<'_>> {
        self.find_any::<Nothing>(host, path, None, true)
    }

    fn find_any<R: RequestView>(
        &self,
        host: &[u8],
        path: &[u8],
        request: Option<&R>,
        own: bool,
    ) -> Option<Match<'_>> {
        if let Some(host) = host::plain(host) {
            return self.find_one(Some(host), path, request, own);
        }
        let mut buf = [0; host::HOST_MAX];
        self.find_one(host::normalize(host, &mut buf), path, request, own)
    }

    /// The same for a host in its one form.
    fn find_one<R: RequestView>(
        &self,
        host: Option<&[u8]>,
        path: &[u8],
        request: Option<&R>,
        own: bool,
    ) -> Option<Match<'_>> {
        let permitted = |slot| {
            let space = self.app_at(slot).and_then(|app| self.0.space_at(app.space));
            space.is_some_and(|space| space.policy.host_label)
        };
        let hit = self.0.routes.find(host, path, request, own, permitted)?;
        let app = self.app_at(hit.slot)?;
        let space = self.0.space_at(app.space)?;
        let host_lane = match hit.host_lane.filter(|_| space.policy.host_label) {
            None => HostLane::None,
            Some(label) => Tag::read(label).map_or(HostLane::Malformed, HostLane::Tag),
        };
        let Hit { route, rule, has_entry, slot, .. } = hit;
        Some(Match { route, rule, has_entry, slot, app, space, host_lane })
    }

    /// A rule by its id.
    pub fn rule(&self, id: &str) -> Option<&Arc<RouteRule>> {
        self.0.routes.rules().find_id(id)
    }

    /// A rule that a request has matched before, whatever its conditions say of the request now, and whatever has become
    /// of the rule in this table. With a target the request goes there instead of where the rule says.
    pub fn again<'t>(&'t self, rule: &'t Arc<RouteRule>, target: Option<&AppRef>) -> Option<Match<'t>> {
        let present = || self.rule(&rule.spec.id).is_some_and(|present| Arc::ptr_eq(present, rule));
        let slot = match target {
            Some(target) => self.0.slot_of(target)?,
            None if present() => rule.slot,
            // The slot of a rule that is gone may be another app's by now.
            None => self.0.slot_of(&rule.spec.target)?,
        };
        let app = self.app_at(slot)?;
        let space = self.0.space_at(app.space)?;
        let has_entry = !rule.route.spec.entry.is_empty() && target.is_none();
        let rule_at = Some((rule, 0));
        Some(Match {
            route: &rule.route,
            rule: rule_at,
            has_entry,
            slot,
            app,
            space,
            host_lane: HostLane::None,
        })
    }

    /// What serves a connection that is no HTTP request, by a route that is in no table (see [`Route::to`]); `None` = its target is
    /// not here.
    pub fn find_target<'t>(&'t self, route: &'t Arc<Route>) -> Option<Match<'t>> {
        let slot = self.0.slot_of(&route.spec.app)?;
        let app = self.app_at(slot)?;
        let space = self.0.space_at(app.space)?;
        let has_entry = !route.spec.entry.is_empty();
        Some(Match { route, rule: None, has_entry, slot, app, space, host_lane: HostLane::None })
    }

    pub(crate) fn base(&self) -> &LaneName {
        &self.0.base
    }

    pub(crate) fn apps(&self) -> impl Iterator<Item = &App> {
        self.0.apps.iter().flat_map(|chunk| chunk.iter()).flatten()
    }

    pub(crate) fn app_at(&self, slot: u32) -> Option<&App> {
        self.0.app_at(slot)
    }
}

impl Inner {
    pub(crate) fn app_at(&self, slot: u32) -> Option<&App> {
        self.apps.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
    }

    pub(crate) fn slot_of(&self, app: &AppRef) -> Option<u32> {
        self.app_slots.find(app_hash(app), |entry| entry.app == *app).map(|entry| entry.slot)
    }

    pub(crate) fn app(&self, app: &AppRef) -> Option<&App> {
        self.app_at(self.slot_of(app)?)
    }

    pub(crate) fn space_at(&self, slot: u32) -> Option<&Space> {
        self.spaces.get(slot as usize).map(|space| &**space)
    }
}

impl<'t> Match<'t> {
    /// The route; of a rule one with its id as the key.
    pub fn route(&self) -> &'t Arc<Route> {
        self.route
    }

    /// The rule, if it is one; else it is an app's own route.
    pub fn rule(&self) -> Option<&'t Arc<RouteRule>> {
        self.rule.map(|(rule, _)| rule)
    }

    /// The path that matched, as it was written.
    pub fn path(&self) -> &'t str {
        self.rule.map_or(&self.route.spec.path, |(rule, at)| rule.path_text(at))
    }

    /// Names of the parameters in the path that matched; what an unnamed `*` stands for is called `:ext`.
    pub fn params(&self) -> impl Iterator<Item = &'t str> {
        self.rule.into_iter().flat_map(|(rule, at)| rule.params(at))
    }

    /// The value of a parameter in the raw path that matched (a query may follow): decoded, but for escaped slashes and
    /// percent signs. Allocates only where something had to be decoded.
    pub fn param<'r>(&self, name: &str, raw: &'r [u8]) -> Option<Cow<'r, [u8]>> {
        let (rule, at) = self.rule?;
        match matched_form(raw)? {
            Cow::Borrowed(path) => rule.param(at, name, path).map(Cow::Borrowed),
            Cow::Owned(path) => rule.param(at, name, &path).map(|value| Cow::Owned(value.to_vec())),
        }
    }

    /// Its app.
    pub fn app(&self) -> &'t AppRef {
        &self.app.rare.app
    }

    /// How the app's endpoints are used; defaults while the app itself is not known here.
    pub fn upstream(&self) -> &'t Arc<UpstreamSpec> {
        &self.app.rare.upstream
    }

    /// How the app's space reads lane tags.
    pub fn policy(&self) -> &'t LanePolicy {
        &self.space.policy
    }

    /// Whether the app is stopped on purpose.
    pub fn stopped(&self) -> bool {
        self.app.stopped
    }

    /// The app's retry budget.
    pub fn budget(&self) -> &'t Arc<RetryBudget> {
        &self.app.rare.budget
    }

    /// What a consistent hash goes by; 0 for the other balancers.
    pub fn affinity(&self, request: &impl RequestView) -> u64 {
        if self.app.balancer != Rule::Chash {
            return 0;
        }
        self.app.rare.affinity.hash(0, request)
    }

    /// The path to send on when the route cuts its own path off: begins with `/`; the query stays. A path that is not
    /// in the one form (see `path`) is sent on in it, since only there the prefix is certain.
    pub fn stripped<'r>(&self, raw: &'r str) -> Cow<'r, str> {
        path::strip(raw, &self.route.spec.path)
    }

    pub(crate) fn host_lane(&self) -> Option<&[u8]> {
        match &self.host_lane {
            HostLane::None => None,
            HostLane::Malformed => Some(b"-"),
            HostLane::Tag(tag) => Some(tag.as_str().as_bytes()),
        }
    }

    /// The lane that an entry rule gives.
    pub(crate) fn entry(&self, request: &impl RequestView) -> Option<Asked> {
        if self.has_entry { entry::find(&self.route.spec.entry, self.route.seed, request) } else { None }
    }

    pub(crate) fn lane_of_app(&self, name: &str) -> Option<&'t LaneName> {
        self.app.lane(name)
    }

    /// Slot of the app.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn lane_of_space(&self, name: &str) -> bool {
        self.space.has_lane(name)
    }
}

/// A request of which nothing is known.
struct Nothing;

impl RequestView for Nothing {
    fn header(&self, _: &str, _: usize) -> Option<&[u8]> {
        None
    }
    fn path(&self) -> &str {
        ""
    }
    fn query(&self) -> Option<&str> {
        None
    }
    fn client(&self) -> Option<IpAddr> {
        None
    }
    fn inside(&self) -> bool {
        false
    }
}

/// Hash of an app's name.
pub(crate) fn app_hash(app: &AppRef) -> u64 {
    let space = hash_bytes(hash_bytes(1, app.org.as_str().as_bytes()), app.space.as_str().as_bytes());
    hash_bytes(space, app.app.as_str().as_bytes())
}
