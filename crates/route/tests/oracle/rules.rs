//! The rules of routing, written as simply as they can be read.

use super::world::{Request, World};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use towpath_route::{EndpointSpec, NoPick};
use towpath_types::lane::{LaneMode, LanePolicy};
use towpath_types::place::Distance;
use towpath_types::spec::RouteSpec;
use towpath_types::upstream::Locality;
use towpath_types::{InstanceId, LaneName, Place};

fn host(raw: &str) -> Option<String> {
    if let Some(rest) = raw.strip_prefix('[') {
        let (address, _) = rest.split_once(']')?;
        return Some(format!("[{}]", address.parse::<Ipv6Addr>().ok()?));
    }
    let name = raw.split(':').next()?.to_lowercase();
    let name = name.strip_suffix('.').unwrap_or(&name).to_owned();
    (!name.contains(' ')).then_some(name)
}

fn path(raw: &str) -> String {
    if !raw.starts_with('/') {
        return "/".into();
    }
    let decoded = raw.replace("%61", "a").replace("%c3%a9", "%C3%A9");
    let mut out: Vec<&str> = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    format!("/{}", out.join("/"))
}

/// `xn--` is no lane.
fn split(host: &str) -> Option<(&str, &str)> {
    let (first, rest) = host.split_at(host.find('.').unwrap_or(host.len()));
    let (lane, app) = first.split_once("--")?;
    let named = !lane.is_empty() && lane != "xn";
    let app_named = !app.is_empty();
    let after = &host[lane.len() + 2..];
    (named && app_named).then_some((lane, after)).filter(|_| first.len() + rest.len() == host.len())
}

fn is_prefix(prefix: &str, path: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        text.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect()
    };
    parts(path).starts_with(&parts(prefix))
}

impl World {
    fn policy(&self, route: &RouteSpec) -> LanePolicy {
        self.spaces.get(&route.app.space_ref()).map(|space| space.policy.clone()).unwrap_or_default()
    }

    fn longest(&self, on: &str, path: &str) -> Option<&RouteSpec> {
        let on_host = self.routes.values().filter(|route| route.host == on && is_prefix(&route.path, path));
        on_host.max_by_key(|route| route.path.len())
    }

    /// The route, and the lane in the host.
    pub fn find(&self, request: &Request) -> Option<(&RouteSpec, Option<String>)> {
        let (host, path) = (host(&request.host)?, path(&request.path));
        if let Some(route) = self.longest(&host, &path) {
            return Some((route, None));
        }
        let label = split(&host);
        if let Some((lane, rest)) = label
            && let Some(route) = self.longest(rest, &path)
            && self.policy(route).host_label
        {
            return Some((route, Some(lane.into())));
        }
        let (_, above) = host.split_once('.')?;
        let route = self.longest(&format!("*.{above}"), &path)?;
        let lane = label.filter(|_| self.policy(route).host_label).map(|(lane, _)| lane.to_owned());
        Some((route, lane))
    }

    /// The lane that the request asks for in this app.
    pub fn lane(
        &self,
        request: &Request,
        route: &RouteSpec,
        label: Option<String>,
    ) -> Result<LaneName, NoPick> {
        let policy = self.policy(route);
        let headers = |name: &str| {
            let all = request.headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
            all.map(|(_, value)| value.trim().to_owned()).collect::<Vec<_>>()
        };
        let mut tags = headers("towpath-lane");
        let cookies = headers("cookie");
        tags.extend(
            cookies
                .iter()
                .flat_map(|line| line.split("; "))
                .filter_map(|pair| pair.strip_prefix("towpath_lane=").map(str::to_owned)),
        );
        let query = request.query.as_deref().unwrap_or("");
        tags.extend(
            query.split('&').filter_map(|pair| pair.strip_prefix("towpath_lane=")).map(str::to_owned),
        );
        tags.extend(label);
        if request.inside || policy.trust_baggage {
            for line in headers("baggage") {
                let members = line.split(',').filter_map(|member| member.strip_prefix("towpath.lane="));
                tags.extend(members.map(|value| value.split(';').next().unwrap().to_owned()));
            }
        }
        tags.retain(|tag| !tag.is_empty());
        let strict = policy.mode == LaneMode::Strict;
        let wanted = tags.iter().find_map(|tag| LaneName::new(tag).ok());
        let by_tag = wanted.is_some();
        let beta = headers("x-beta");
        let by_rule = route.entry.iter().find(|rule| {
            let mut conditions = rule.headers.iter();
            rule.percent > 0.0
                && conditions
                    .all(|want| beta.iter().any(|have| want.value.as_ref().is_none_or(|v| v == have)))
        });
        let wanted = match wanted {
            Some(lane) => lane,
            None if !tags.is_empty() && strict => return Err(NoPick::UnknownLane),
            None if !tags.is_empty() => return Ok(LaneName::base()),
            None => match by_rule {
                Some(rule) => rule.lane.clone(),
                None => return Ok(LaneName::base()),
            },
        };
        let app = self.apps.get(&route.app);
        let in_app = app.is_some_and(|app| app.lanes.contains(&wanted))
            || self.endpoints(&route.app).iter().any(|(_, endpoint)| endpoint.lane == wanted);
        let space = self.spaces.get(&route.app.space_ref());
        let in_space =
            space.is_some_and(|space| space.names.contains(&wanted) || space.local.contains(&wanted));
        if wanted.is_base() || in_app {
            Ok(wanted)
        } else if by_tag && strict && !in_space {
            Err(NoPick::UnknownLane)
        } else {
            Ok(LaneName::base())
        }
    }

    /// Who may serve, with the tier of each.
    pub fn serving(
        &self,
        route: &RouteSpec,
        lane: &LaneName,
        here: &Place,
    ) -> Result<BTreeMap<InstanceId, u8>, NoPick> {
        let settings = self.apps.get(&route.app);
        if settings.is_some_and(|app| app.stopped) {
            return Err(NoPick::Stopped);
        }
        let upstream = settings.map(|app| app.upstream.clone()).unwrap_or_default();
        let all = self.endpoints(&route.app);
        let usable = |endpoint: &EndpointSpec| !endpoint.draining && endpoint.weight > 0;
        let in_lane = |lane: &LaneName| -> Vec<(bool, &EndpointSpec)> {
            all.iter().copied().filter(|(_, endpoint)| endpoint.lane == *lane && usable(endpoint)).collect()
        };
        let tier = |endpoint: &EndpointSpec| match (upstream.locality, here.distance(&endpoint.place)) {
            (Locality::None, _) => 4,
            (_, Distance::OtherRegion) => 4,
            (_, Distance::SameRegion) => 3,
            (Locality::Node, Distance::SameNode) => 1,
            (..) => 2,
        };
        let base = LaneName::base();
        let mut stages = vec![(0, in_lane(lane))];
        if *lane != base {
            stages.push((4, in_lane(&base)));
        }
        if in_lane(&base).is_empty() {
            let local = self.spaces.get(&route.app.space_ref()).map(|s| s.local.clone()).unwrap_or_default();
            let other =
                local.iter().filter(|local| *local != lane).map(in_lane).find(|list| !list.is_empty());
            stages.push((9, other.unwrap_or_default()));
        }
        let number =
            |offset: u8, endpoint: &EndpointSpec| if offset == 9 { 9 } else { offset + tier(endpoint) };
        for (offset, list) in &stages {
            let keys: BTreeSet<_> = list.iter().map(|(_, e)| (-e.priority, tier(e))).collect();
            let mut serving = BTreeMap::new();
            for key in keys {
                let members: Vec<_> = list.iter().filter(|(_, e)| (-e.priority, tier(e)) == key).collect();
                let ready: Vec<_> = members.iter().filter(|(stale, e)| e.healthy && !stale).collect();
                serving.extend(ready.iter().map(|(_, e)| (e.instance, number(*offset, e))));
                let health = ready.len() as f32 / members.len() as f32;
                if !ready.is_empty() && health >= upstream.spill_below.min(1.0) {
                    break;
                }
                // all of it goes on when the missing share × 1.4 is 1 or more, and still this tier serves if it is the last
            }
            if !serving.is_empty() {
                return Ok(serving);
            }
        }
        // panic: base, else the own lane, else the local one
        stages.sort_by_key(|(offset, _)| match offset {
            4 => 0,
            0 => 1,
            _ => 2,
        });
        let (offset, list) = stages.iter().find(|(_, list)| !list.is_empty()).ok_or(NoPick::NoEndpoint)?;
        Ok(list.iter().map(|(_, e)| (e.instance, number(*offset, e))).collect())
    }
}
