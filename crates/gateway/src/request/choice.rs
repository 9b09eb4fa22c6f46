//! The choice of route, lane and endpoint for one attempt.

use super::present::Of;
use super::record::Record;
use super::view::View;
use crate::clock;
use crate::upstream::stream::TlsPeer;
use crate::worker::Worker;
use http::{HeaderMap, HeaderName};
use std::sync::Arc;
use towpath_route::{
    Draw, Endpoint, InFlight, LaneReason, LaneSource, Match, NoPick, RetryBudget, Route, Table, Tag, TriedSet,
};
use towpath_types::LaneName;
use towpath_types::upstream::Timeouts;

/// What was chosen. Independent of the table that it was chosen from.
pub(crate) struct Chosen {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) route: Arc<Route>,
    pub(crate) budget: Arc<RetryBudget>,
    /// The lane that serves.
    pub(crate) lane: LaneName,
    /// The lane that was asked for is not the one that serves.
    pub(crate) other_lane: bool,
    /// The tag to tell the instance, so that it can pass it on.
    pub(crate) tag: Option<Tag>,
    /// Name of the header that the tag is told in; empty = none, or it is in the client's own.
    pub(crate) lane_header: String,
    /// Whether the instance's `baggage` gets the tag too.
    pub(crate) tag_baggage: bool,
    /// The path to send, if not the client's.
    pub(crate) path: Option<String>,
    /// Limits in time.
    pub(crate) timeouts: Timeouts,
    /// How TLS is spoken to the endpoint; `None` = it is not.
    pub(crate) tls: Option<TlsPeer>,
    /// The host to send, where the upstream says which.
    pub(crate) host: Option<String>,
    /// The lane was read from the client's baggage. If not, what that says of lanes goes no further.
    pub(crate) baggage_is_word: bool,
    /// The client's sticky cookie names an instance that does not serve this request: it gets a new one, with
    /// these attributes.
    pub(crate) rebind: Option<Vec<u8>>,
}

/// Our own instances ask directly. What has the marks of a proxy comes from somewhere else, by way of this machine.
fn came_through_proxy(record: &Record, headers: &HeaderMap) -> bool {
    let present = record.present;
    present.has(Of::Via)
        || present.has(Of::Forwarded)
        || (present.has(Of::XForwarded) && headers.contains_key("x-forwarded-for"))
}

/// Names of headers that only the gateway's word may stand in: the one that names the lane, and those that plugins write.
pub(crate) fn ours(record: &Record) -> Vec<HeaderName> {
    let mut ours = record.running.as_ref().map_or_else(Vec::new, |running| running.written.clone());
    record.conn.worker.table.choose(|view| {
        let lane = matched(&view.table, record).map(|matched| &matched.policy().header);
        ours.extend(lane.and_then(|name| HeaderName::from_bytes(name.as_bytes()).ok()));
    });
    ours
}

/// What serves the request. That was found before its plugins ran, and holds until its end: what they changed in it, or a
/// newer table, must not lead it to a rule whose plugins have not run. A request that no rule took has an app's own route or none.
fn matched<'t>(table: &'t Table, record: &'t Record) -> Option<Match<'t>> {
    let running = record.running.as_deref();
    match running.and_then(|running| running.rule.as_ref()) {
        Some(rule) => table.again(rule, running.and_then(|running| running.aim.as_ref())),
        None => table.find_own(record.host(), record.uri.path().as_bytes()),
    }
}

/// Whether one of our own instances asks. On one machine they come by loopback, whatever the cell's address is.
fn is_inside(view: &crate::table::View, record: &Record, headers: &HeaderMap) -> bool {
    let peer = record.conn.client();
    (peer.is_loopback() || view.inside.binary_search(&peer).is_ok()) && !came_through_proxy(record, headers)
}

/// The lane that a request asks for; `None` = it asks for none.
pub(crate) fn asked_lane(record: &Record, headers: &HeaderMap) -> Option<String> {
    record.conn.worker.table.choose(|view| {
        let matched = matched(&view.table, record)?;
        let client = record.client();
        let inside = is_inside(view, record, headers);
        match view.table.lane(&matched, &View { record, headers, client, inside }) {
            Ok(lane) => lane.asked.map(|asked| asked.tag.as_str().to_owned()),
            // One that does not exist is nobody else's.
            Err(_) => Some("?".to_owned()),
        }
    })
}

/// Chooses, and counts the request in flight. Everything happens on one version of the table.
pub(crate) fn choose(
    worker: &Worker,
    record: &Record,
    headers: &HeaderMap,
    tried: &TriedSet,
) -> Result<(Chosen, InFlight), NoPick> {
    worker.table.choose(|view| {
        let table = &view.table;
        let client = record.client();
        let inside = is_inside(view, record, headers);
        let request = View { record, headers, client, inside };
        // Before the first snapshot nobody knows which routes there are.
        let none = if view.loaded { NoPick::NoRoute } else { NoPick::NoEndpoint };
        let running = record.running.as_deref();
        let matched = matched(table, record).ok_or(none)?;
        let now = if tried.is_empty() { record.started_ns() } else { clock::now_ns() };
        if tried.is_empty() {
            matched.budget().request(now);
        }
        if matched.stopped() {
            return Err(NoPick::Stopped);
        }
        let lane = table.lane(&matched, &request)?;
        let sticky = &matched.upstream().sticky;
        let named = if record.present.has(Of::Cookie) {
            worker.sticky.find(matched.app(), sticky, headers)
        } else {
            Vec::new()
        };
        let bound = named
            .iter()
            .filter(|named| !tried.contains(named.instance))
            .find_map(|named| table.find_sticky(&matched, &lane, named.instance, now));
        let pick = match bound {
            Some(pick) => pick,
            None => {
                let draw = Draw { now, rnd: worker.random(), key: matched.affinity(&request) };
                table.pick(&matched, &lane, draw, tried)?
            }
        };
        let flight = Endpoint::begin(pick.endpoint);
        let route = matched.route();
        let program = running.and_then(|running| running.program.as_ref());
        let upstream = running.and_then(|running| running.upstream.as_ref());
        // What nodes are called belongs to the same moment as the nodes themselves.
        let newest =
            upstream.and_then(|upstream| view.plugins.as_ref()?.upstreams.get(upstream.app.upstream_id()?));
        let upstream = newest.or(upstream);
        let host = upstream.and_then(|upstream| upstream.host_for(pick.endpoint));
        let sent_host = match (&host, upstream) {
            (Some(host), _) => host.clone(),
            (None, Some(_)) => String::from_utf8_lossy(record.upstream_host()).into_owned(),
            (None, None) => String::new(),
        };
        let asked = lane.asked;
        let headed = asked.is_none_or(|asked| asked.source == LaneSource::Header);
        let chosen = Chosen {
            endpoint: pick.endpoint.clone(),
            route: route.clone(),
            budget: matched.budget().clone(),
            lane: pick.lane.clone(),
            other_lane: asked.map_or(lane.reason == LaneReason::Malformed, |asked| {
                asked.tag.as_str() != pick.lane.as_str()
            }),
            lane_header: if headed { String::new() } else { matched.policy().header.to_ascii_lowercase() },
            tag: asked.map(|asked| asked.tag),
            tag_baggage: asked.is_some_and(|asked| asked.source != LaneSource::Baggage),
            timeouts: program.and_then(|program| program.timeouts).unwrap_or(pick.endpoint.upstream.timeouts),
            tls: upstream.and_then(|upstream| upstream.peer_for(pick.endpoint, &sent_host)),
            host,
            path: route.spec.strip_path.then(|| matched.stripped(record.uri.path()).into_owned()),
            baggage_is_word: asked.is_some_and(|asked| asked.source == LaneSource::Baggage),
            rebind: if bound.is_none() {
                named.into_iter().next().map(|named| named.attributes)
            } else {
                None
            },
        };
        Ok((chosen, flight))
    })
}
