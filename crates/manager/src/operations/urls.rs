//! The addresses of an app, as shown to people.

use crate::core::Core;
use std::collections::HashMap;
use std::sync::Arc;
use towpath_types::spec::RouteSpec;
use towpath_types::{AppRef, LaneName, SpaceRef};
use towpath_wire::gateway::{Item, ItemKey};

/// Host of the route that comes with an app.
pub(crate) fn automatic_host(app: &AppRef, domain: &str) -> String {
    if app.space_ref() == SpaceRef::first() {
        format!("{}.{domain}", app.app)
    } else {
        format!("{}.{}.{}.{domain}", app.app, app.space, app.org)
    }
}

/// Routes by app, for the URLs of many apps at once.
pub(crate) struct RouteIndex {
    gateway_url: String,
    by_app: HashMap<AppRef, Vec<Arc<Item>>>,
}

impl RouteIndex {
    /// Of all apps, or of one.
    pub(crate) fn of(core: &Core, only: Option<&AppRef>) -> Self {
        const PAGE: usize = 4096;
        if let Some(app) = only {
            let by_app = HashMap::from([(app.clone(), core.cache.routes_of(app))]);
            return Self { gateway_url: core.settings.gateway_url.clone(), by_app };
        }
        let mut by_app: HashMap<AppRef, Vec<Arc<Item>>> = HashMap::new();
        let mut after = None;
        loop {
            let page = core.cache.routing_items(after.as_ref(), PAGE);
            let whole = page.len() == PAGE;
            after = page.last().map(|(key, _)| key.clone());
            // Routes come first in the table.
            let more = whole && matches!(after, Some(ItemKey::Route(_)));
            for (_, item) in page {
                if let Item::Route(route) = &*item {
                    by_app.entry(route.app.clone()).or_default().push(item);
                }
            }
            if !more {
                return Self { gateway_url: core.settings.gateway_url.clone(), by_app };
            }
        }
    }

    /// URLs of an app, the automatic one first. In a feature lane: those whose host can name the lane.
    pub(crate) fn urls(&self, app: &AppRef, lane: Option<&LaneName>) -> Vec<String> {
        let items = self.by_app.get(app).into_iter().flatten();
        let mut routes: Vec<&RouteSpec> = items
            .filter_map(|item| match &**item {
                Item::Route(route) if !route.host.starts_with("*.") => Some(route),
                _ => None,
            })
            .collect();
        routes.sort_by_key(|route| (!route.automatic, route.host.clone(), route.path.clone()));
        let feature = lane.filter(|lane| !lane.is_base());
        routes
            .iter()
            .filter(|route| feature.is_none() || route.automatic)
            .map(|route| {
                let host =
                    feature.map_or_else(|| route.host.clone(), |lane| format!("{lane}--{}", route.host));
                url(&self.gateway_url, &host, &route.path)
            })
            .collect()
    }
}

/// URLs of one app.
pub(crate) fn urls_of(core: &Core, app: &AppRef, lane: Option<&LaneName>) -> Vec<String> {
    RouteIndex::of(core, Some(app)).urls(app, lane)
}

/// The URL at the gateway's scheme and port for a host and a path prefix.
pub(crate) fn url(gateway: &str, host: &str, path: &str) -> String {
    let (scheme, rest) = gateway.split_once("://").unwrap_or(("http", gateway));
    let authority = rest.split('/').next().unwrap_or_default();
    let port = authority
        .rsplit_once(':')
        .filter(|(_, port)| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()))
        .map(|(_, port)| port)
        .filter(|port| !matches!((scheme, *port), ("http", "80") | ("https", "443")));
    let path = if path == "/" { "" } else { path };
    match port {
        Some(port) => format!("{scheme}://{host}:{port}{path}"),
        None => format!("{scheme}://{host}{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_the_gateways_scheme_and_port() {
        for (gateway, host, path, expected) in [
            ("http://127.0.0.1:8080", "shop.localhost", "/", "http://shop.localhost:8080"),
            ("http://127.0.0.1:8080/", "shop.localhost", "/api", "http://shop.localhost:8080/api"),
            ("https://apps.example.com", "a.b", "/", "https://a.b"),
            ("http://[::1]:80", "a.b", "/", "http://a.b"),
            ("http://[::1]", "a.b", "/x", "http://a.b/x"),
        ] {
            assert_eq!(url(gateway, host, path), expected);
        }
    }

    #[test]
    fn apps_outside_the_first_space_carry_it_in_their_host() {
        let app = |space: &str| {
            AppRef::new(
                &SpaceRef { org: "default".parse().unwrap(), space: space.parse().unwrap() },
                "shop".parse().unwrap(),
            )
        };
        assert_eq!(automatic_host(&app("default"), "localhost"), "shop.localhost");
        assert_eq!(automatic_host(&app("test"), "localhost"), "shop.test.default.localhost");
    }
}
