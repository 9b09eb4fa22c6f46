//! Entry rules: which untagged requests enter a lane. A gray release is a lane that is entered by rule.

use crate::affinity::Affinity;
use crate::hash::{hash_bytes, unit};
use crate::lane::{Asked, LaneSource};
use crate::request::{RequestView, cookies, lines, parameters, trim};
use crate::tag::Tag;
use std::net::IpAddr;
use towpath_types::lane::{EntryRule, HashBy, HeaderMatch};

/// The lane of the first rule that holds. `seed` differs from route to route, so that it is not the same few clients
/// that test everything; a client stays on one side while the percentage rises.
pub(crate) fn find(rules: &[EntryRule], seed: u64, request: &impl RequestView) -> Option<Asked> {
    rules.iter().enumerate().find_map(|(at, rule)| {
        let holds = rule.headers.iter().all(|condition| header_holds(condition, request))
            && share_holds(rule, seed, request);
        let tag = if holds { Tag::read(rule.lane.as_str().as_bytes()) } else { None };
        tag.map(|tag| Asked { tag, source: LaneSource::Entry(at) })
    })
}

fn header_holds(condition: &HeaderMatch, request: &impl RequestView) -> bool {
    lines(request, &condition.name).any(|line| match &condition.value {
        Some(value) => trim(line) == value.as_bytes(),
        None => true,
    })
}

fn share_holds(rule: &EntryRule, seed: u64, request: &impl RequestView) -> bool {
    if rule.percent >= 100.0 {
        return true;
    }
    unit(hash_of(&rule.hash_by, seed, request)) * 100.0 < f64::from(rule.percent)
}

/// Hash of the named thing of a request; of the client's address when the request has no such thing.
pub(crate) fn hash_of(by: &HashBy, seed: u64, request: &impl RequestView) -> u64 {
    let named = match by {
        HashBy::Address => None,
        HashBy::Header(name) => request.header(name, 0).map(|value| hash_bytes(seed, trim(value))),
        HashBy::Cookie(name) => lines(request, "cookie")
            .find_map(|line| cookies(line, name).next())
            .map(|value| hash_bytes(seed, value)),
        HashBy::Query(name) => request
            .query()
            .and_then(|query| parameters(query, name).next())
            .map(|value| hash_bytes(seed, value)),
        HashBy::Uri => {
            let path = hash_bytes(seed, request.path().as_bytes());
            Some(request.query().map_or(path, |query| hash_bytes(path, query.as_bytes())))
        }
        // read anew for each request, which only entry rules do
        HashBy::Var(_) | HashBy::Vars(_) => return Affinity::new(by).hash(seed, request),
    };
    or_address(named, seed, request)
}

/// The hash, or that of the client's address.
pub(crate) fn or_address(hash: Option<u64>, seed: u64, request: &impl RequestView) -> u64 {
    hash.unwrap_or_else(|| match request.client() {
        Some(IpAddr::V4(address)) => hash_bytes(seed, &address.octets()),
        Some(IpAddr::V6(address)) => hash_bytes(seed, &address.octets()),
        None => hash_bytes(seed, &[]),
    })
}
