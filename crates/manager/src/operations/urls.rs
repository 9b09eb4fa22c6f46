//! The addresses of an app, as shown to people.

use crate::core::Core;
use towpath_types::spec::RouteSpec;
use towpath_types::{AppRef, Kind, LaneName, SpaceRef};

/// Host of the route that comes with an app.
pub(crate) fn automatic_host(app: &AppRef, domain: &str) -> String {
    if app.space_ref() == SpaceRef::first() {
        format!("{}.{domain}", app.app)
    } else {
        format!("{}.{}.{}.{domain}", app.app, app.space, app.org)
    }
}

/// URLs of an app, the automatic one first. In a feature lane: those whose host can name the lane.
pub(crate) fn urls_of(core: &Core, app: &AppRef, lane: Option<&LaneName>) -> Vec<String> {
    let mut routes: Vec<RouteSpec> = core
        .cache
        .list(Kind::Route, None, None)
        .iter()
        .filter_map(|record| record.spec::<RouteSpec>().ok())
        .filter(|route| route.app == *app && !route.host.starts_with("*."))
        .collect();
    routes.sort_by_key(|route| (!route.automatic, route.host.clone(), route.path.clone()));
    let feature = lane.filter(|lane| !lane.is_base());
    routes
        .iter()
        .filter(|route| feature.is_none() || route.automatic)
        .map(|route| {
            let host = feature.map_or_else(|| route.host.clone(), |lane| format!("{lane}--{}", route.host));
            url(&core.settings.gateway_url, &host, &route.path)
        })
        .collect()
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
