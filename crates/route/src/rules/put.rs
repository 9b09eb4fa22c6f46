//! Putting and taking rules.

use super::list::{Candidate, List};
use super::{ById, Exact, HostRules, Kind, Pattern, Rule, Rules, id_hash};
use crate::check::Wrong;
use crate::hash::hash_bytes;
use crate::host::check_route_host;
use crate::index::Index;
use crate::routes::{Route, SHARDS, Short, host_hash};
use crate::rule::RuleSpec;
use std::sync::Arc;
use towpath_types::lane::{EntryRule, HashBy};
use towpath_types::spec::RouteSpec;

/// Most hosts times paths of one rule.
const PLACES_MAX: usize = 16_384;

/// All that is wrong with a rule.
pub(crate) fn check(spec: &RuleSpec) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    if spec.id.is_empty() {
        wrong.push(Wrong::new("id", "is empty; give the rule a name"));
    }
    for (at, host) in spec.hosts.iter().enumerate() {
        if let Err(why) = check_route_host(&host.to_ascii_lowercase()) {
            wrong.push(Wrong::new(format!("hosts[{at}]"), why));
        }
    }
    if spec.paths.is_empty() {
        wrong.push(Wrong::new("paths", "is empty; write at least one, for example /*"));
    }
    for (at, path) in spec.paths.iter().enumerate() {
        if let Err(why) = Pattern::parse(path) {
            wrong.push(Wrong::new(format!("paths[{at}]"), why));
        }
    }
    let places = spec.hosts.len().max(1).saturating_mul(spec.paths.len());
    if places > PLACES_MAX {
        let message =
            format!("are {places} together with hosts; {PLACES_MAX} are the most, so split the rule");
        wrong.push(Wrong::new("paths", message));
    }
    wrong
}

impl Rule {
    /// Compiles a checked rule.
    pub(crate) fn new(spec: RuleSpec, slot: u32) -> Self {
        let mut patterns: Vec<Pattern> = Vec::with_capacity(spec.paths.len());
        for pattern in spec.paths.iter().filter_map(|path| Pattern::parse(path).ok()) {
            if !patterns.iter().any(|other| other.text == pattern.text) {
                patterns.push(pattern);
            }
        }
        let entry = spec.lane.iter().map(|lane| EntryRule {
            lane: lane.clone(),
            headers: Vec::new(),
            percent: 100.0,
            hash_by: HashBy::Address,
        });
        let route = RouteSpec {
            host: spec.hosts.first().map_or("*", String::as_str).to_owned(),
            path: spec.paths.first().cloned().unwrap_or_default(),
            app: spec.target.clone(),
            strip_path: false,
            entry: entry.collect(),
            automatic: false,
        };
        let seed = hash_bytes(3, spec.id.as_bytes());
        let route = Arc::new(Route { spec: route, key: spec.id.clone(), slot, seed });
        Self { spec, route, slot, patterns: patterns.into() }
    }

    /// Its hosts in lower case, each once; the empty one for none.
    pub(crate) fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self.spec.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        if hosts.is_empty() {
            hosts.push(String::new());
        }
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }
}

impl HostRules {
    pub(crate) fn is_empty(&self) -> bool {
        self.exact == 0 && self.trie.is_empty()
    }
}

impl Rules {
    pub(crate) fn new() -> Self {
        Self { exacts: Index::new(SHARDS), ids: Index::new(SHARDS), any: HostRules::default(), len: 0 }
    }

    /// Stands in for the rules while they are changed; costs nothing.
    pub(crate) fn empty() -> Self {
        Self { exacts: Index::new(1), ids: Index::new(1), any: HostRules::default(), len: 0 }
    }

    /// Remembers a rule by its id; its places are put by [`Rules::place`].
    pub(crate) fn put_id(&mut self, rule: Arc<Rule>) {
        let id = rule.spec.id.clone();
        self.len += usize::from(self.ids.put(ById(rule), |other| other.0.spec.id == id).is_none());
    }

    pub(crate) fn remove_id(&mut self, id: &str) {
        self.len -= usize::from(self.ids.remove(id_hash(id), |rule| rule.0.spec.id == id).is_some());
    }

    /// Puts a rule on all its paths of one host, or takes it from there.
    pub(crate) fn place(&mut self, host: &str, on: &mut HostRules, rule: &Arc<Rule>, put: bool) {
        for (at, pattern) in rule.patterns.iter().enumerate() {
            let candidate = Candidate::new(rule, at as u16);
            let change = |list: &mut List| if put { list.put(candidate) } else { list.remove(&candidate) };
            match pattern.kind {
                Kind::Exact => {
                    let before = on.exact;
                    on.exact = if put { before + 1 } else { before.saturating_sub(1) };
                    self.change_exact(host, &pattern.literal, change);
                }
                Kind::Prefix | Kind::Segments(_) => on.trie.change(&pattern.literal, change),
            }
        }
    }

    fn change_exact(&mut self, host: &str, path: &[u8], change: impl FnOnce(&mut List)) {
        let hash = hash_bytes(host_hash(host.as_bytes()), path);
        let same = |exact: &Exact| exact.is(b"", host.as_bytes(), path);
        if let Some(exact) = self.exacts.find_mut(hash, same) {
            change(&mut exact.list);
            if exact.list.is_empty() {
                self.exacts.remove(hash, same);
            }
            return;
        }
        let mut list = List::default();
        change(&mut list);
        if !list.is_empty() {
            let key: Arc<[u8]> = [host.as_bytes(), path].concat().into();
            self.exacts.put(Exact { hash, list, text: Short::new(&key), key }, same);
        }
    }
}
