//! Rules by host and path, beside the apps' own routes.
//!
//! Exact paths are in one map by host and path, all others in a tree a host, by the literal with which they begin. So a
//! change touches one shard or one way down a tree, even when one host has 100,000 rules or one path has.

mod list;
mod pattern;
mod put;
mod trie;

pub(crate) use pattern::rules_form;
pub(crate) use put::check as check_rule;

use crate::hash::{hash_bytes, same};
use crate::index::{Index, Keyed};
use crate::request::RequestView;
use crate::routes::{Route, Short, begins};
use crate::rule::RuleSpec;
use crate::vars::{Name, Value, Vars, request_var};
use list::{Candidate, List};
use pattern::{Kind, Pattern};
use std::sync::Arc;
use trie::Trie;

/// A rule of the table.
#[derive(Debug)]
pub struct Rule {
    /// What it is.
    pub spec: RuleSpec,
    /// The rule as a route, for whoever knows routes only.
    pub(crate) route: Arc<Route>,
    pub(crate) slot: u32,
    patterns: Box<[Pattern]>,
}

impl Rule {
    fn pattern(&self, at: u16) -> Option<&Pattern> {
        self.patterns.get(usize::from(at))
    }

    /// Whether more has to hold than that host and literal are right.
    fn is_conditional(&self, at: u16) -> bool {
        let spec = &self.spec;
        spec.methods.is_some()
            || spec.remote.is_some()
            || spec.vars.is_some()
            || self.pattern(at).is_none_or(|pattern| matches!(pattern.kind, Kind::Segments(_)))
    }

    /// The path at `at` as it was written.
    pub(crate) fn path_text(&self, at: u16) -> &str {
        self.pattern(at).map_or("", |pattern| &pattern.text)
    }

    /// Names of the parameters of the path at `at`.
    pub(crate) fn params(&self, at: u16) -> impl Iterator<Item = &str> {
        self.pattern(at).into_iter().flat_map(Pattern::names)
    }

    /// The value of a parameter in a path (in the rules' form) that matched.
    pub(crate) fn param<'p>(&self, at: u16, name: &str, path: &'p [u8]) -> Option<&'p [u8]> {
        self.pattern(at)?.param(name, path)
    }
}

/// The rules of a host besides those on exact paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostRules {
    trie: Trie,
    /// Rules on exact paths.
    exact: usize,
}

/// Rules on an exact path: two neighbouring cache lines.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
struct Exact {
    hash: u64,
    list: List,
    text: Short<63>,
    /// Host and path.
    key: Arc<[u8]>,
}

impl Keyed for Exact {
    fn hash(&self) -> u64 {
        self.hash
    }
}

impl Exact {
    fn is(&self, prefix: &[u8], host: &[u8], path: &[u8]) -> bool {
        let text = self.text.get().unwrap_or(&self.key);
        let rest = begins(text, prefix).and_then(|rest| begins(rest, host));
        rest.is_some_and(|rest| same(rest, path))
    }
}

/// All rules but what hangs on the hosts.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    exacts: Index<Exact>,
    ids: Index<ById>,
    /// Rules without a host.
    pub(crate) any: HostRules,
    len: usize,
}

/// A rule in the map by id.
#[derive(Debug, Clone)]
struct ById(Arc<Rule>);

impl Keyed for ById {
    fn hash(&self) -> u64 {
        id_hash(&self.0.spec.id)
    }
}

fn id_hash(id: &str) -> u64 {
    hash_bytes(4, id.as_bytes())
}

/// A rule that was found, and which of its paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found<'t> {
    pub(crate) rule: &'t Arc<Rule>,
    pub(crate) at: u16,
}

/// An app's own route that takes what no rule before it takes. It stands like a rule of priority 0 on its path, behind those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// There is none.
    None,
    /// On this very path.
    Exact,
    /// On a literal of this length.
    Literal(usize),
}

/// Where rules are looked for: the hash of the host, and its text in two parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At<'h> {
    pub(crate) hash: u64,
    pub(crate) prefix: &'h [u8],
    pub(crate) host: &'h [u8],
}

/// A request as conditions see it: nothing where it is not known.
#[derive(Debug)]
pub(crate) struct Asking<'r, R> {
    pub(crate) request: Option<&'r R>,
    /// The path in the rules' form.
    pub(crate) path: &'r [u8],
    /// Only the apps' own routes are wanted.
    pub(crate) own: bool,
}

impl<R: RequestView> Vars for Asking<'_, R> {
    fn var<'v>(&'v self, name: &'v Name) -> Option<Value<'v>> {
        if name.is_path() {
            return Some(Value::text(self.path));
        }
        request_var(self.request?, name)
    }
}

impl<R: RequestView> Asking<'_, R> {
    fn passes(&self, candidate: &Candidate) -> bool {
        if !candidate.conditional {
            return true;
        }
        let spec = &candidate.rule.spec;
        let pattern = candidate.rule.pattern(candidate.at);
        let plain = spec.methods.is_none() && spec.remote.is_none() && spec.vars.is_none();
        let Some(request) = self.request else {
            return plain && pattern.is_some_and(|pattern| pattern.matches(self.path));
        };
        spec.methods.is_none_or(|methods| methods.contains(request.method()))
            && pattern.is_some_and(|pattern| pattern.matches(self.path))
            && spec
                .remote
                .as_ref()
                .is_none_or(|networks| request.client().is_some_and(|client| networks.contains(client)))
            && spec.vars.as_ref().is_none_or(|vars| vars.holds(self))
    }

    /// The first candidate that passes, of those before an app's own route if that is on the same path.
    fn first<'t>(&self, list: &'t List, before_route: bool) -> Option<Found<'t>> {
        list.iter()
            .take_while(|candidate| !before_route || candidate.priority >= 0)
            .find(|candidate| self.passes(candidate))
            .map(|candidate| Found { rule: &candidate.rule, at: candidate.at })
    }
}

impl Rules {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn find_id(&self, id: &str) -> Option<&Arc<Rule>> {
        self.ids.find(id_hash(id), |rule| rule.0.spec.id == id).map(|rule| &rule.0)
    }

    /// The rule of one host for a request, if it comes before the app's own route that `bound` tells of: on the exact path,
    /// else on the longest literal of which a rule passes.
    pub(crate) fn find<'t, R: RequestView>(
        &'t self,
        rules: &'t HostRules,
        at: At<'_>,
        asking: &Asking<'_, R>,
        bound: Bound,
    ) -> Option<Found<'t>> {
        if rules.exact > 0 {
            let hash = hash_bytes(at.hash, asking.path);
            let exact = self.exacts.find(hash, |exact| exact.is(at.prefix, at.host, asking.path));
            let found = exact.and_then(|exact| asking.first(&exact.list, bound == Bound::Exact));
            if found.is_some() {
                return found;
            }
        }
        let least = match bound {
            Bound::None => 0,
            Bound::Literal(len) => len,
            Bound::Exact => return None,
        };
        rules.trie.find(asking.path, least, |list, len| asking.first(list, bound == Bound::Literal(len)))
    }
}
