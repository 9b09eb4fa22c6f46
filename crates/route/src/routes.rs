//! Routes by host and path prefix, with the rules of the same hosts beside them.
//!
//! A host's own entry says which depths its routes have; the route at `/` hangs on it, all others are in one map by host
//! and path. So a change touches one shard of each map even when one host has 100,000 paths, and a look-up tries
//! only the prefixes that can exist, the longest first.

use crate::check;
use crate::hash::{hash_bytes, same};
use crate::host::{self, check_route_host};
use crate::index::{Index, Keyed};
use crate::path::{self, DEPTH_MAX, PATH_MAX, boundaries, check_route_path, depth};
use crate::request::RequestView;
use crate::rules::{self, Asking, Bound, HostRules, Rule, Rules};
use std::sync::Arc;
use towpath_types::lane::{EntryRule, HashBy};
use towpath_types::spec::RouteSpec;
use towpath_types::{AppRef, LaneName};

/// A route of the table.
#[derive(Debug)]
pub struct Route {
    /// What it is.
    pub spec: RouteSpec,
    /// Its key, see [`route_key`].
    pub key: String,
    /// Slot of its app.
    pub(crate) slot: u32,
    /// Differs from route to route, for entry rules.
    pub(crate) seed: u64,
}

impl Route {
    /// A route of connections that are no HTTP requests: it leads to `target`, and in there to `lane`. It stands in no table, see
    /// [`crate::Table::find_target`].
    pub fn to(key: impl Into<String>, target: AppRef, lane: Option<LaneName>) -> Arc<Self> {
        let entry = lane.map(|lane| EntryRule {
            lane,
            headers: Vec::new(),
            percent: 100.0,
            hash_by: HashBy::Address,
        });
        let spec = RouteSpec {
            host: "*".into(),
            path: "/".into(),
            app: target,
            strip_path: false,
            entry: entry.into_iter().collect(),
            automatic: false,
        };
        Arc::new(Self { spec, key: key.into(), slot: 0, seed: 0 })
    }
}

/// The key of the route for a host and a path: `shop.example.com/api`.
pub fn route_key(host: &str, path: &str) -> String {
    format!("{host}{path}")
}

/// Shards of the two maps; 100,000 routes give about a hundred entries a shard.
pub(crate) const SHARDS: usize = 1024;
const HOST_SEED: u64 = 0x746f_7770_6174_6801;

/// Hash of a host, with which all that belongs to it is found.
pub(crate) fn host_hash(host: &[u8]) -> u64 {
    hash_bytes(HOST_SEED, host)
}

/// A route with what the next steps of a look-up need of it, so that they need not wait for the route itself.
#[derive(Debug, Clone)]
struct RouteRef {
    route: Arc<Route>,
    slot: u32,
    has_entry: bool,
}

/// A host: two neighbouring cache lines.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
struct HostEntry {
    hash: u64,
    /// The route at `/`.
    root: Option<RouteRef>,
    /// Bit n: there are routes with n + 1 segments.
    depths: u32,
    text: Short<90>,
    /// It has rules.
    ruled: bool,
    rare: Arc<HostRare>,
}

/// What is seldom needed of a host.
#[derive(Debug, Clone)]
struct HostRare {
    host: Box<str>,
    /// Routes with n + 1 segments.
    counts: Vec<u32>,
    rules: HostRules,
}

/// A route with a path longer than `/`: two neighbouring cache lines.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
struct PathEntry {
    hash: u64,
    route: RouteRef,
    text: Short<103>,
}

/// A text that is compared without looking elsewhere if it is short.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Short<const N: usize> {
    len: u8,
    bytes: [u8; N],
}

impl<const N: usize> Short<N> {
    pub(crate) fn new(text: &[u8]) -> Self {
        let mut short = Self { len: u8::MAX, bytes: [0; N] };
        if text.len() <= N {
            short.len = text.len() as u8;
            for (to, from) in short.bytes.iter_mut().zip(text) {
                *to = *from;
            }
        }
        short
    }

    /// The text, if it is short.
    pub(crate) fn get(&self) -> Option<&[u8]> {
        self.bytes.get(..usize::from(self.len))
    }
}

impl Keyed for HostEntry {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl Keyed for PathEntry {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl HostEntry {
    /// Whether this is the entry of `prefix` + `host`.
    fn is(&self, prefix: &[u8], host: &[u8]) -> bool {
        let text = self.text.get().unwrap_or_else(|| self.rare.host.as_bytes());
        begins(text, prefix).is_some_and(|rest| same(rest, host))
    }

    /// Whether nothing is on the host any more.
    fn is_empty(&self) -> bool {
        self.root.is_none() && self.depths == 0 && !self.ruled
    }

    /// Counts routes of a depth (1..=[`DEPTH_MAX`]) up or down.
    fn count(&mut self, depth: usize, by: i32) {
        let at = depth.saturating_sub(1).min(DEPTH_MAX - 1);
        let counts = &mut Arc::make_mut(&mut self.rare).counts;
        if counts.len() <= at {
            counts.resize(at + 1, 0);
        }
        if let Some(count) = counts.get_mut(at) {
            *count = count.saturating_add_signed(by);
            let bit = 1_u32 << at;
            self.depths = if *count > 0 { self.depths | bit } else { self.depths & !bit };
        }
    }
}

/// The rest of a text that begins so.
pub(crate) fn begins<'a>(text: &'a [u8], with: &[u8]) -> Option<&'a [u8]> {
    let (begin, rest) = text.split_at_checked(with.len())?;
    same(begin, with).then_some(rest)
}

impl PathEntry {
    /// Whether this is the entry of `prefix` + `host` + `path`.
    fn is(&self, prefix: &[u8], host: &[u8], path: &[u8]) -> bool {
        let text = self.text.get().unwrap_or_else(|| self.route.route.key.as_bytes());
        let rest = begins(text, prefix).and_then(|rest| begins(rest, host));
        rest.is_some_and(|rest| same(rest, path))
    }
}

/// All routes.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    hosts: Index<HostEntry>,
    paths: Index<PathEntry>,
    rules: Rules,
    len: usize,
}

/// A route that was found, and the lane in the host's first label if it is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit<'t, 'r> {
    pub(crate) route: &'t Arc<Route>,
    /// Slot of the app.
    pub(crate) slot: u32,
    /// It has entry rules.
    pub(crate) has_entry: bool,
    /// The rule that this is, and which of its paths.
    pub(crate) rule: Option<(&'t Arc<Rule>, u16)>,
    pub(crate) host_lane: Option<&'r [u8]>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self { hosts: Index::new(SHARDS), paths: Index::new(SHARDS), rules: Rules::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Checks a spec; `Err` says what is wrong and what would be right.
    pub(crate) fn check(spec: &RouteSpec) -> Result<(), String> {
        check_route_host(&spec.host)?;
        check_route_path(&spec.path)?;
        check::none("entry", &check::entry(&spec.entry))
    }

    pub(crate) fn find_key(&self, key: &str) -> Option<&Arc<Route>> {
        let (host, path) = key.split_at_checked(key.find('/')?)?;
        let hash = hash_bytes(HOST_SEED, host.as_bytes());
        let (host, path) = (host.as_bytes(), path.as_bytes());
        let found = if path == b"/" {
            self.hosts.find(hash, |entry| entry.is(b"", host))?.root.as_ref()
        } else {
            self.paths
                .find(hash_bytes(hash, path), |entry| entry.is(b"", host, path))
                .map(|entry| &entry.route)
        };
        found.map(|found| &found.route)
    }

    /// Puts a checked route; returns the one that it replaces.
    pub(crate) fn put(&mut self, route: Arc<Route>) -> Option<Arc<Route>> {
        let (host, path) = (route.spec.host.clone(), route.spec.path.clone());
        let hash = hash_bytes(HOST_SEED, host.as_bytes());
        let text = Short::new(route.key.as_bytes());
        let route = RouteRef { slot: route.slot, has_entry: !route.spec.entry.is_empty(), route };
        let old = if path == "/" {
            self.change_host(hash, &host, |entry| entry.root.replace(route))
        } else {
            let hash_of_path = hash_bytes(hash, path.as_bytes());
            let old = self.paths.put(PathEntry { hash: hash_of_path, route, text }, |other| {
                other.is(b"", host.as_bytes(), path.as_bytes())
            });
            if old.is_none() {
                self.change_host(hash, &host, |entry| entry.count(depth(&path), 1));
            }
            old.map(|old| old.route)
        };
        self.len += usize::from(old.is_none());
        old.map(|old| old.route)
    }

    pub(crate) fn delete(&mut self, key: &str) -> Option<Arc<Route>> {
        let route = Arc::clone(self.find_key(key)?);
        let (host, path) = (&*route.spec.host, &*route.spec.path);
        let hash = hash_bytes(HOST_SEED, host.as_bytes());
        if path == "/" {
            self.change_host(hash, host, |entry| entry.root.take());
        } else {
            self.paths.remove(hash_bytes(hash, path.as_bytes()), |other| {
                other.is(b"", host.as_bytes(), path.as_bytes())
            });
            self.change_host(hash, host, |entry| entry.count(depth(path), -1));
        }
        self.len -= 1;
        Some(route)
    }

    fn change_host<R>(&mut self, hash: u64, host: &str, change: impl FnOnce(&mut HostEntry) -> R) -> R {
        let same = |entry: &HostEntry| entry.is(b"", host.as_bytes());
        if let Some(entry) = self.hosts.find_mut(hash, same) {
            let result = change(entry);
            if entry.is_empty() {
                self.hosts.remove(hash, same);
            }
            return result;
        }
        let mut entry = HostEntry {
            hash,
            root: None,
            depths: 0,
            rare: Arc::new(HostRare { host: host.into(), counts: Vec::new(), rules: HostRules::default() }),
            text: Short::new(host.as_bytes()),
            ruled: false,
        };
        let result = change(&mut entry);
        if !entry.is_empty() {
            self.hosts.put(entry, same);
        }
        result
    }

    /// The rules.
    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Puts a rule (whose id is free) in all its places.
    pub(crate) fn put_rule(&mut self, rule: &Arc<Rule>) {
        self.rules.put_id(Arc::clone(rule));
        self.place_rule(rule, true);
    }

    /// Takes a rule from all its places.
    pub(crate) fn delete_rule(&mut self, rule: &Arc<Rule>) {
        self.rules.remove_id(&rule.spec.id);
        self.place_rule(rule, false);
    }

    fn place_rule(&mut self, rule: &Arc<Rule>, put: bool) {
        // out of the way for as long as the hosts are changed
        let mut rules = std::mem::replace(&mut self.rules, Rules::empty());
        for host in rule.hosts() {
            if host.is_empty() {
                let mut any = std::mem::take(&mut rules.any);
                rules.place(&host, &mut any, rule, put);
                rules.any = any;
            } else {
                self.change_host(host_hash(host.as_bytes()), &host, |entry| {
                    let on = &mut Arc::make_mut(&mut entry.rare).rules;
                    rules.place(&host, on, rule, put);
                    entry.ruled = !on.is_empty();
                });
            }
        }
        self.rules = rules;
    }

    /// What serves a host in its one form (`None` = there is none that is a host) and a raw path: on the host itself, on the
    /// host without its `<lane>--` (if the app found there permits it), on the wildcard above, and by the rules without a
    /// host. A host that has nothing for the request does not end the search.
    pub(crate) fn find<'t, 'r, R: RequestView>(
        &'t self,
        host: Option<&'r [u8]>,
        raw_path: &[u8],
        request: Option<&R>,
        own: bool,
        label_permitted: impl Fn(u32) -> bool,
    ) -> Option<Hit<'t, 'r>> {
        let (path, plain) = path::cut(raw_path);
        if plain {
            self.find_plain(host, path, &Asking { request, path, own }, label_permitted)
        } else {
            self.find_odd(host, path, request, own, label_permitted)
        }
    }

    #[inline(never)]
    fn find_odd<'t, 'r, R: RequestView>(
        &'t self,
        host: Option<&'r [u8]>,
        path: &[u8],
        request: Option<&R>,
        own: bool,
        label_permitted: impl Fn(u32) -> bool,
    ) -> Option<Hit<'t, 'r>> {
        let (mut buf, mut decoded) = ([0; PATH_MAX], [0; PATH_MAX]);
        let path = path::normalize(path, &mut buf)?;
        let for_rules = if self.rules.is_empty() { path } else { rules::rules_form(path, &mut decoded)? };
        self.find_plain(host, path, &Asking { request, path: for_rules, own }, label_permitted)
    }

    fn find_plain<'t, 'r, R: RequestView>(
        &'t self,
        host: Option<&'r [u8]>,
        path: &[u8],
        asking: &Asking<'_, R>,
        label_permitted: impl Fn(u32) -> bool,
    ) -> Option<Hit<'t, 'r>> {
        if let Some(host) = host {
            if let Some(found) = self.find_on(host, b"", path, asking) {
                return Some(found);
            }
            let split = host::split_lane(host);
            let host_lane = split.map(|(lane, _)| lane);
            let bare = split.and_then(|(_, rest)| self.find_on(rest, b"", path, asking));
            if let Some(found) = bare.filter(|found| label_permitted(found.slot)) {
                return Some(Hit { host_lane, ..found });
            }
            let above = host::parent(host).and_then(|above| self.find_on(above, b"*.", path, asking));
            if let Some(found) = above {
                return Some(Hit { host_lane, ..found });
            }
        }
        if asking.own || self.rules.any.is_empty() {
            return None;
        }
        let at = rules::At { hash: host_hash(b""), prefix: b"", host: b"" };
        Hit::of_rule(self.rules.find(&self.rules.any, at, asking, Bound::None))
    }

    /// The rule or the longest route on exactly `prefix` + `host`.
    fn find_on<'t, 'r, R: RequestView>(
        &'t self,
        host: &[u8],
        prefix: &[u8],
        path: &[u8],
        asking: &Asking<'_, R>,
    ) -> Option<Hit<'t, 'r>> {
        let hash = if prefix.is_empty() { hash_bytes(HOST_SEED, host) } else { wildcard_hash(host) };
        let entry = self.hosts.find(hash, |entry| entry.is(prefix, host))?;
        let route = self.longest(entry, host, prefix, path);
        if entry.ruled && !asking.own {
            let bound = match route {
                None => Bound::None,
                Some((_, len)) if len == path.len() => Bound::Exact,
                // the root's own slash, or the one after the route's path
                Some((_, len)) => Bound::Literal(len.max(1) + usize::from(len > 1)),
            };
            let at = rules::At { hash, prefix, host };
            let found = Hit::of_rule(self.rules.find(&entry.rare.rules, at, asking, bound));
            if found.is_some() {
                return found;
            }
        }
        route.map(|(route, _)| Hit::of_route(route))
    }

    /// The longest route of a host, with the length of its path.
    fn longest<'t>(
        &'t self,
        entry: &'t HostEntry,
        host: &[u8],
        prefix: &[u8],
        path: &[u8],
    ) -> Option<(&'t RouteRef, usize)> {
        if entry.depths != 0 {
            let mut ends = [0; DEPTH_MAX];
            let count = boundaries(path, &mut ends);
            for at in (0..count).rev().filter(|at| entry.depths >> at & 1 == 1) {
                let part = ends.get(at).and_then(|end| path.get(..*end)).unwrap_or_default();
                let hash = hash_bytes(entry.hash, part);
                let found = self.paths.find(hash, |entry| entry.is(prefix, host, part));
                if let Some(found) = found {
                    return Some((&found.route, part.len()));
                }
            }
        }
        entry.root.as_ref().map(|root| (root, 1))
    }
}

impl<'t> Hit<'t, '_> {
    fn of_route(route: &'t RouteRef) -> Self {
        let RouteRef { route, slot, has_entry } = route;
        Self { route, slot: *slot, has_entry: *has_entry, rule: None, host_lane: None }
    }

    fn of_rule(found: Option<rules::Found<'t>>) -> Option<Self> {
        let rules::Found { rule, at } = found?;
        let has_entry = rule.spec.lane.is_some();
        Some(Self { route: &rule.route, slot: rule.slot, has_entry, rule: Some((rule, at)), host_lane: None })
    }
}

/// Hash of `*.` + `host`, without putting the two together.
fn wildcard_hash(host: &[u8]) -> u64 {
    let mut text = [0; host::HOST_MAX + 2];
    let [star, dot, rest @ ..] = &mut text;
    (*star, *dot) = (b'*', b'.');
    for (to, from) in rest.iter_mut().zip(host) {
        *to = *from;
    }
    hash_bytes(HOST_SEED, text.get(..host.len() + 2).unwrap_or_default())
}
