//! Addresses that a manifest or a command asks for.

use crate::document::fields::Fields;
use crate::document::{Node, Value};
use serde::Serialize;
use towpath_types::LaneName;
use towpath_types::lane::{EntryRule, HashBy, HeaderMatch};

/// A host and a path that should lead to the app.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct RouteWish {
    /// Host in lower case, without port.
    pub(crate) host: String,
    /// Path prefix.
    pub(crate) path: String,
    /// Cut the prefix off.
    pub(crate) strip_path: bool,
    /// Gray releases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) entry: Vec<EntryRule>,
}

/// Reads `shop.example.com/api` (a scheme before it is permitted and has no meaning).
pub(crate) fn parse_route(text: &str) -> Result<RouteWish, String> {
    let bare = text.trim();
    let bare = bare.strip_prefix("https://").or_else(|| bare.strip_prefix("http://")).unwrap_or(bare);
    let (host, path) = match bare.find('/') {
        Some(at) => bare.split_at(at),
        None => (bare, "/"),
    };
    let host = host.to_ascii_lowercase();
    // An IPv6 address stands in brackets, as in a URL; gateways know it in its shortest form.
    let literal = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let literal = literal.and_then(|text| text.parse::<std::net::Ipv6Addr>().ok());
    let host = literal.map_or(host, |address| format!("[{address}]"));
    if literal.is_none() && host.contains(':') {
        return Err(format!("{text:?} has a port; routes are told apart by host and path only"));
    }
    let label = |label: &str| {
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let named = host.len() <= 253 && host.strip_prefix("*.").unwrap_or(&host).split('.').all(label);
    if literal.is_none() && !named {
        return Err(format!("{host:?} is not a host name; write for example shop.example.com/api"));
    }
    if path.contains(['?', '#']) || path.contains(char::is_whitespace) {
        return Err(format!("{path:?} is not a path prefix; write for example /api"));
    }
    let path = path.trim_end_matches('/');
    let path = if path.is_empty() { "/" } else { path };
    Ok(RouteWish { host, path: path.into(), strip_path: false, entry: Vec::new() })
}

/// Reads the list `routes`: texts, or tables with `host`, `path`, `strip_path`, `entry`.
pub(super) fn read_list(fields: &Fields<'_>) -> Vec<RouteWish> {
    let Some(items) = fields.list("routes") else { return Vec::new() };
    items.iter().enumerate().filter_map(|(at, item)| read_one(fields, at, item)).collect()
}

fn read_one(parent: &Fields<'_>, at: usize, item: &Node) -> Option<RouteWish> {
    let path = format!("{}[{at}]", parent.path_of("routes"));
    match &item.value {
        Value::Text(text) => match parse_route(text) {
            Ok(route) => Some(route),
            Err(message) => {
                parent.problems().add(crate::document::problem::Problem {
                    source: parent.source().into(),
                    line: item.line,
                    path,
                    message,
                    ..Default::default()
                });
                None
            }
        },
        _ => {
            let fields = Fields::of(parent.source(), parent.problems(), &path, item);
            let host = fields.text("host");
            let prefix = fields.text("path").unwrap_or_else(|| "/".into());
            let strip_path = fields.boolean("strip_path").unwrap_or(false);
            let entry = read_entry(&fields);
            let route = match host {
                None => {
                    fields.wrong("host", "a route needs a host", "host = \"shop.example.com\"");
                    None
                }
                Some(host) => match parse_route(&format!("{host}{}", slashed(&prefix))) {
                    Ok(route) => Some(RouteWish { strip_path, entry, ..route }),
                    Err(message) => {
                        fields.wrong("host", message, "");
                        None
                    }
                },
            };
            fields.finish();
            route
        }
    }
}

fn slashed(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn read_entry(route: &Fields<'_>) -> Vec<EntryRule> {
    let Some(items) = route.list("entry") else { return Vec::new() };
    let mut rules = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = format!("{}[{at}]", route.path_of("entry"));
        let fields = Fields::of(route.source(), route.problems(), &path, item);
        let lane = fields.named::<LaneName>("lane");
        if fields.node("lane").is_none() {
            fields.wrong("lane", "a rule needs a lane", "lane = \"canary\"");
        }
        let percent = fields.number("percent", 0.0..=100.0).unwrap_or(100.0);
        let hash_by = fields.named::<HashByText>("hash_by").map_or(HashBy::Address, |by| by.0);
        let headers = fields
            .table("headers")
            .map(|headers| {
                let values = headers.entries().iter();
                values
                    .map(|entry| HeaderMatch {
                        name: entry.key.clone(),
                        value: entry.node.value.scalar_text().filter(|text| text != "*"),
                    })
                    .collect()
            })
            .unwrap_or_default();
        fields.finish();
        rules.extend(lane.map(|lane| EntryRule { lane, headers, percent, hash_by }));
    }
    rules
}

/// `address`, `uri`, `header X`, `cookie X`, `query X`.
pub(super) struct HashByText(pub(super) HashBy);

impl std::str::FromStr for HashByText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = text.trim().split_once([' ', ':']).unwrap_or((text.trim(), ""));
        let name = name.trim();
        match (kind, name.is_empty()) {
            ("address", true) => Ok(Self(HashBy::Address)),
            ("uri", true) => Ok(Self(HashBy::Uri)),
            ("header", false) => Ok(Self(HashBy::Header(name.into()))),
            ("cookie", false) => Ok(Self(HashBy::Cookie(name.into()))),
            ("query", false) => Ok(Self(HashBy::Query(name.into()))),
            _ => Err(format!(
                "{text:?} is nothing to hash; write address, uri, \"header X-User\", \"cookie session\" or \"query id\""
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_are_read_from_what_people_paste() {
        for (text, host, path) in [
            ("Shop.Example.com", "shop.example.com", "/"),
            ("https://shop.example.com/", "shop.example.com", "/"),
            ("shop.example.com/api/", "shop.example.com", "/api"),
            ("*.example.com/a/b", "*.example.com", "/a/b"),
            ("localhost", "localhost", "/"),
            ("http://[2001:DB8:0::1]/api", "[2001:db8::1]", "/api"),
        ] {
            let route = parse_route(text).unwrap();
            assert_eq!((route.host.as_str(), route.path.as_str()), (host, path), "{text}");
        }
        for bad in [
            "",
            "/api",
            "a b.com",
            "shop.example.com:8080",
            "a..b",
            "-a.com",
            "a.com/x?y=1",
            "*.*.com",
            "[::1]:80",
            "::1",
        ] {
            assert!(parse_route(bad).is_err(), "{bad}");
        }
    }
}
