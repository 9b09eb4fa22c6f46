//! Answers to "what would you do with this request?".

use super::identity::Identity;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;
use towpath_route::{RequestView, Table};
use towpath_types::{Place, Revision};
use towpath_wire::gateway::{ExplainRequest, ExplainedEndpoint, Explanation};

/// The request in question.
struct Asked {
    headers: HeaderMap,
    path: String,
    query: Option<String>,
    client: Option<IpAddr>,
    inside: bool,
}

impl RequestView for Asked {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        self.headers.get_all(name).iter().nth(nth).map(HeaderValue::as_bytes)
    }

    fn path(&self) -> &str {
        &self.path
    }

    fn query(&self) -> Option<&str> {
        self.query.as_deref()
    }

    fn client(&self) -> Option<IpAddr> {
        self.client
    }

    fn inside(&self) -> bool {
        self.inside
    }
}

/// Explains a request on a table.
pub(crate) fn explain(
    request: &ExplainRequest,
    table: &Table,
    inside: &[IpAddr],
    about: (&Identity, &Place, Revision),
    now_ns: u64,
) -> Explanation {
    let (path, query) =
        request.target.split_once('?').map_or((request.target.as_str(), None), |(p, q)| (p, Some(q)));
    let headers = request.headers.iter().filter_map(|(name, value)| {
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, HeaderValue::from_str(value).ok()?))
    });
    let mut map = HeaderMap::new();
    headers.for_each(|(name, value)| {
        map.append(name, value);
    });
    let client = request.client.parse().ok();
    let asked = Asked {
        headers: map,
        path: path.to_owned(),
        query: query.map(str::to_owned),
        client,
        inside: client.is_some_and(|client| inside.contains(&client)),
    };
    let explained = table.explain(request.host.as_bytes(), path.as_bytes(), &asked, now_ns);
    let (identity, place, revision) = about;
    Explanation {
        gateway: identity.gateway,
        place: place.clone(),
        revision,
        route: explained.route,
        app: explained.app,
        asked_lane: explained.asked_lane,
        lane: explained.lane,
        lane_reason: explained.lane_reason,
        balancer: explained.balancer,
        tier: explained.tier,
        tier_reason: explained.tier_reason,
        endpoints: explained
            .endpoints
            .into_iter()
            .map(|endpoint| ExplainedEndpoint {
                instance: endpoint.instance,
                address: endpoint.address,
                lane: endpoint.lane,
                place: endpoint.place,
                tier: endpoint.tier,
                score: endpoint.score,
                share: endpoint.share,
                in_flight: endpoint.in_flight,
                latency_ms: endpoint.latency_ms,
                load: endpoint.load,
                why_not: endpoint.why_not,
            })
            .collect(),
        error: explained.error,
    }
}
