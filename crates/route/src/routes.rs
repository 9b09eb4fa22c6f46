//! Routes by host and path prefix.
//!
//! A host's own entry says which depths its routes have; the route at `/` hangs on it, all others are in one map by host
//! and path. So a change touches one shard of each map even when one host has 100,000 paths, and a look-up tries
//! only the prefixes that can exist, the longest first.

use crate::hash::hash_bytes;
use crate::host::{self, check_route_host};
use crate::index::Index;
use crate::path::{self, DEPTH_MAX, PATH_MAX, boundaries, check_route_path, depth};
use std::sync::Arc;
use towpath_types::spec::RouteSpec;

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

/// The key of the route for a host and a path: `shop.example.com/api`.
pub fn route_key(host: &str, path: &str) -> String {
    format!("{host}{path}")
}

/// Shards of the two maps; 100,000 routes give about a hundred entries a shard.
const SHARDS: usize = 1024;
const HOST_SEED: u64 = 0x746f_7770_6174_6801;

#[derive(Debug, Clone)]
struct HostEntry {
    host: Box<str>,
    /// The route at `/`.
    root: Option<Arc<Route>>,
    /// Bit n: there are routes with n + 1 segments.
    depths: u32,
    /// How many for each of these.
    counts: Vec<u32>,
}

/// All routes.
#[derive(Debug, Clone)]
pub(crate) struct Routes {
    hosts: Index<HostEntry>,
    paths: Index<Route>,
    len: usize,
}

/// A route that was found, and the lane in the host's first label if it is there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit<'t, 'r> {
    pub(crate) route: &'t Arc<Route>,
    pub(crate) host_lane: Option<&'r [u8]>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self { hosts: Index::new(SHARDS), paths: Index::new(SHARDS), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Checks a spec; `Err` says what is wrong and what would be right.
    pub(crate) fn check(spec: &RouteSpec) -> Result<(), String> {
        check_route_host(&spec.host)?;
        check_route_path(&spec.path)?;
        for (at, rule) in spec.entry.iter().enumerate() {
            if !(0.0..=100.0).contains(&rule.percent) {
                return Err(format!("entry[{at}].percent is {}; it lies between 0 and 100", rule.percent));
            }
        }
        Ok(())
    }

    pub(crate) fn find_key(&self, key: &str) -> Option<&Arc<Route>> {
        let (host, path) = key.split_at_checked(key.find('/')?)?;
        let hash = hash_bytes(HOST_SEED, host.as_bytes());
        if path == "/" {
            self.hosts.find(hash, |entry| &*entry.host == host)?.root.as_ref()
        } else {
            self.paths.find(path_hash(hash, path.as_bytes()), |route| route.key == key)
        }
    }

    /// Puts a checked route; returns the one that it replaces.
    pub(crate) fn put(&mut self, route: Arc<Route>) -> Option<Arc<Route>> {
        let (host, path) = (&*route.spec.host, &*route.spec.path);
        let hash = hash_bytes(HOST_SEED, host.as_bytes());
        let old = if path == "/" {
            self.change_host(hash, host, |entry| entry.root.replace(Arc::clone(&route)))
        } else {
            let old = self.paths.put(path_hash(hash, path.as_bytes()), Arc::clone(&route), |other| {
                other.spec.path == path && other.spec.host == host
            });
            if old.is_none() {
                self.change_host(hash, host, |entry| entry.count(depth(path), 1));
            }
            old
        };
        self.len += usize::from(old.is_none());
        old
    }

    pub(crate) fn delete(&mut self, key: &str) -> Option<Arc<Route>> {
        let route = Arc::clone(self.find_key(key)?);
        let (host, path) = (&*route.spec.host, &*route.spec.path);
        let hash = hash_bytes(HOST_SEED, host.as_bytes());
        if path == "/" {
            self.change_host(hash, host, |entry| entry.root.take());
        } else {
            self.paths.remove(path_hash(hash, path.as_bytes()), |other| other.key == key);
            self.change_host(hash, host, |entry| entry.count(depth(path), -1));
        }
        self.len -= 1;
        Some(route)
    }

    fn change_host<R>(&mut self, hash: u64, host: &str, change: impl FnOnce(&mut HostEntry) -> R) -> R {
        let same = |entry: &HostEntry| &*entry.host == host;
        let mut entry = match self.hosts.find(hash, same) {
            Some(entry) => HostEntry::clone(entry),
            None => HostEntry { host: host.into(), root: None, depths: 0, counts: Vec::new() },
        };
        let result = change(&mut entry);
        if entry.root.is_none() && entry.depths == 0 {
            self.hosts.remove(hash, same);
        } else {
            self.hosts.put(hash, Arc::new(entry), same);
        }
        result
    }

    /// The route for a host in its one form and a raw path: on the host itself, on the host without its `<lane>--` (if
    /// the route found there permits it), on the wildcard above. A host that has no route for the path does not end the search.
    pub(crate) fn find<'t, 'r>(
        &'t self,
        host: &'r [u8],
        raw_path: &[u8],
        label_permitted: impl Fn(&Route) -> bool,
    ) -> Option<Hit<'t, 'r>> {
        let path = path::cut(raw_path);
        if path::is_plain(path) {
            self.find_plain(host, path, label_permitted)
        } else {
            self.find_odd(host, path, label_permitted)
        }
    }

    #[inline(never)]
    fn find_odd<'t, 'r>(
        &'t self,
        host: &'r [u8],
        path: &[u8],
        label_permitted: impl Fn(&Route) -> bool,
    ) -> Option<Hit<'t, 'r>> {
        let mut buf = [0; PATH_MAX];
        self.find_plain(host, path::normalize(path, &mut buf)?, label_permitted)
    }

    fn find_plain<'t, 'r>(
        &'t self,
        host: &'r [u8],
        path: &[u8],
        label_permitted: impl Fn(&Route) -> bool,
    ) -> Option<Hit<'t, 'r>> {
        if let Some(route) = self.find_on(host, b"", path) {
            return Some(Hit { route, host_lane: None });
        }
        let split = host::split_lane(host);
        let host_lane = split.map(|(lane, _)| lane);
        let bare = split.and_then(|(_, rest)| self.find_on(rest, b"", path));
        if let Some(route) = bare.filter(|route| label_permitted(route)) {
            return Some(Hit { route, host_lane });
        }
        let route = self.find_on(host::parent(host)?, b"*.", path)?;
        Some(Hit { route, host_lane })
    }

    /// The longest route on exactly `prefix` + `host`.
    fn find_on(&self, host: &[u8], prefix: &[u8], path: &[u8]) -> Option<&Arc<Route>> {
        let same = |text: &str| {
            text.as_bytes().strip_prefix(prefix) == Some(host) && text.len() == prefix.len() + host.len()
        };
        let hash = if prefix.is_empty() { hash_bytes(HOST_SEED, host) } else { wildcard_hash(host) };
        let entry = self.hosts.find(hash, |entry| same(&entry.host))?;
        if entry.depths != 0 {
            let mut ends = [0; DEPTH_MAX];
            let count = boundaries(path, &mut ends);
            for at in (0..count).rev().filter(|at| entry.depths >> at & 1 == 1) {
                let part = ends.get(at).and_then(|end| path.get(..*end)).unwrap_or_default();
                let found = self.paths.find(path_hash(hash, part), |route| {
                    route.spec.path.as_bytes() == part && same(&route.spec.host)
                });
                if found.is_some() {
                    return found;
                }
            }
        }
        entry.root.as_ref()
    }

    #[cfg(test)]
    pub(crate) fn keys(&self) -> Vec<String> {
        let roots = self.hosts.iter().filter_map(|entry| entry.root.as_ref());
        let mut keys: Vec<_> = roots.chain(self.paths.iter()).map(|route| route.key.clone()).collect();
        keys.sort();
        keys
    }
}

impl HostEntry {
    /// Counts routes of a depth (1..=[`DEPTH_MAX`]) up or down.
    fn count(&mut self, depth: usize, by: i32) -> Option<Arc<Route>> {
        let at = depth.saturating_sub(1).min(DEPTH_MAX - 1);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add_signed(by);
            let bit = 1_u32 << at;
            self.depths = if *count > 0 { self.depths | bit } else { self.depths & !bit };
        }
        None
    }
}

fn path_hash(host: u64, path: &[u8]) -> u64 {
    hash_bytes(host, path)
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
