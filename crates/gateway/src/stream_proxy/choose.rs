//! The choice of an endpoint for a session, and what the session says of it afterwards.

use super::routes::{Asking, Stream};
use crate::clock;
use crate::resources::upstream::Upstream;
use crate::upstream::AttemptFault;
use crate::upstream::stream::TlsPeer;
use crate::worker::Worker;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use towpath_route::health::Report;
use towpath_route::vars::Value;
use towpath_route::{Draw, Endpoint, InFlight, NoPick, Outcome, RequestView, RetryBudget, TriedSet};
use towpath_types::LaneName;
use towpath_types::upstream::Timeouts;

/// Longest silence of a TCP session whose upstream does not say another: what nginx grants.
const IDLE_MS: u64 = 600_000;
/// The same of UDP, where nobody says goodbye.
const UDP_IDLE_MS: u64 = 60_000;

/// A session as variables and balancers look at it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StreamView<'a> {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) sni: Option<&'a str>,
    /// `TCP` or `UDP`.
    pub(super) protocol: &'static str,
    /// Id of the route.
    pub(super) route: &'a str,
}

impl RequestView for StreamView<'_> {
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
        Some(self.peer.ip().to_canonical())
    }

    fn inside(&self) -> bool {
        false
    }

    fn host(&self) -> Option<&[u8]> {
        self.sni.map(str::as_bytes)
    }

    fn port(&self) -> Option<u16> {
        Some(self.local.port())
    }

    fn variable(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "remote_port" => Some(Value::Number(f64::from(self.peer.port()))),
            "server_addr" => Some(Value::Address(self.local.ip().to_canonical())),
            "protocol" => Some(Value::text(self.protocol)),
            "ssl_server_name" | "ssl_preread_server_name" => self.sni.map(Value::text),
            "route_id" => Some(Value::text(self.route)),
            _ => None,
        }
    }
}

/// What was chosen. Independent of the table that it was chosen from.
pub(super) struct Chosen {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) budget: Arc<RetryBudget>,
    pub(super) lane: LaneName,
    pub(super) timeouts: Timeouts,
    /// Longest silence.
    pub(super) idle_ms: u64,
    /// Further attempts begin only within this time.
    pub(super) retry_ms: Option<u64>,
    pub(super) tls: Option<TlsPeer>,
    upstream: Option<Arc<Upstream>>,
}

/// The route of a connection.
pub(super) fn find(worker: &Worker, asking: &Asking<'_>) -> Option<Arc<Stream>> {
    worker.table.choose(|view| view.plugins.as_ref()?.streams.find(asking).cloned())
}

/// Chooses, and counts the session in flight.
pub(super) fn choose(
    worker: &Worker,
    stream: &Stream,
    request: &StreamView<'_>,
    tried: &TriedSet,
) -> Result<(Chosen, InFlight), NoPick> {
    worker.table.choose(|view| {
        let table = &view.table;
        let matched = table.find_target(&stream.route).ok_or(NoPick::NoEndpoint)?;
        let now = clock::now_ns();
        if tried.is_empty() {
            matched.budget().request(now);
        }
        if matched.stopped() {
            return Err(NoPick::Stopped);
        }
        let lane = table.lane(&matched, request)?;
        let draw = Draw { now, rnd: worker.random(), key: matched.affinity(request) };
        let pick = table.pick(&matched, &lane, draw, tried)?;
        let flight = Endpoint::begin(pick.endpoint);
        let upstream = view.plugins.as_ref().and_then(|plugins| plugins.upstreams.get(&stream.upstream));
        let host = upstream.and_then(|upstream| upstream.host_for(pick.endpoint));
        let host = host.as_deref().or(request.sni).unwrap_or_default();
        let timeouts = pick.endpoint.upstream.timeouts;
        let own = upstream.is_some_and(|upstream| upstream.own_timeouts);
        let usual = if request.protocol == "UDP" { UDP_IDLE_MS } else { IDLE_MS };
        Ok((
            Chosen {
                endpoint: pick.endpoint.clone(),
                budget: matched.budget().clone(),
                lane: pick.lane.clone(),
                timeouts,
                idle_ms: if own { timeouts.idle.0 } else { usual },
                retry_ms: upstream.and_then(|upstream| upstream.retry_ms),
                tls: upstream.and_then(|upstream| upstream.peer_for(pick.endpoint, host)),
                upstream: upstream.cloned(),
            },
            flight,
        ))
    })
}

impl Chosen {
    /// The endpoint has taken the session.
    pub(super) fn does_well(&self, flight: &mut InFlight, began_ns: u64) {
        let now = clock::now_ns();
        let _ = flight.observe(now, Outcome::Success { latency_ns: now.saturating_sub(began_ns) });
        self.saw(Report::Connected);
    }

    /// The attempt has failed.
    pub(super) fn fails(&self, worker: &Worker, flight: &mut InFlight, fault: &AttemptFault, began_ns: u64) {
        let now = clock::now_ns();
        if !fault.is_endpoints() {
            return;
        }
        let late = matches!(fault, AttemptFault::ConnectTimeout | AttemptFault::Timeout);
        self.saw(if late { Report::TimedOut } else { Report::Failed });
        let finished = flight.observe(now, Outcome::Failure { latency_ns: now.saturating_sub(began_ns) });
        // Nobody listens there: more attempts would only say so again.
        let refuses = fault.is_refusal() && self.endpoint.upstream.ejection.consecutive > 0;
        if (finished.eject || refuses) && worker.table.choose(|view| view.table.eject(&self.endpoint, now)) {
            worker.metrics.ejections.add(1);
        }
    }

    fn saw(&self, report: Report) {
        if let Some(watch) = self.upstream.as_ref().and_then(|upstream| upstream.watch.as_ref()) {
            watch.note(self.endpoint.instance(), report);
        }
    }
}
