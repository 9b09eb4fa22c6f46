//! Answers to "what would you do with this request?".

use super::identity::Identity;
use crate::sticky::StickyKey;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::net::IpAddr;
use towpath_route::{RequestView, Table};
use towpath_types::upstream::Sticky;
use towpath_types::{AppRef, Place, Revision};
use towpath_wire::gateway::{ExplainRequest, Explanation};

/// What has come by way of a proxy does not come from an instance of ours.
const PROXY_MARKS: [&str; 3] = ["via", "forwarded", "x-forwarded-for"];

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
    sticky: &StickyKey,
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
        path: path.to_owned(),
        query: query.map(str::to_owned),
        client,
        inside: client.is_some_and(|client: IpAddr| client.is_loopback() || inside.contains(&client))
            && !PROXY_MARKS.iter().any(|mark| map.contains_key(*mark)),
        headers: map,
    };
    let sessions = |app: &AppRef, spec: &Sticky| {
        sticky.find(app, spec, &asked.headers).into_iter().map(|named| named.instance).collect()
    };
    let explained = table.explain(request.host.as_bytes(), path.as_bytes(), &asked, sessions, now_ns);
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
        endpoints: explained.endpoints,
        error: explained.error,
    }
}
