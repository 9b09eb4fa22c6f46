//! The body of `POST /v1/apps/{app}/releases`.

use super::target::Target;
use crate::manifest::RouteWish;
use serde_json::{Map, Value, json};
use towpath_types::Digest;

/// The body. Only what was said is in it, so that the platform's defaults and the app's present state hold for the rest.
pub(super) fn body(target: &Target, source: Digest, note: Option<&str>) -> Value {
    let manifest = &target.manifest;
    let mut body = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        body.extend(value.map(|value| (name.to_owned(), value)));
    };
    let mut limits = json!(manifest.limits);
    if let Some(limits) = limits.as_object_mut() {
        limits.retain(|_, value| !value.is_null());
    }
    let routes: Vec<String> = manifest.routes.iter().filter(|route| is_plain(route)).map(as_text).collect();
    put("source", Some(json!(source)));
    put("lane", Some(json!(target.lane)));
    put("instances", manifest.instances.map(|n| json!(n)));
    put("limits", Some(limits).filter(|limits| limits.as_object().is_some_and(|map| !map.is_empty())));
    put("env", Some(json!(manifest.env)).filter(|_| !manifest.env.is_empty()));
    put("builder", manifest.builder.as_ref().map(|builder| json!(builder)));
    put("command", manifest.command.as_ref().map(|command| json!(command)));
    put("health", manifest.health.as_ref().map(|health| json!(health)));
    put("protocol", manifest.protocol.map(|protocol| json!(protocol)));
    put("grace", manifest.grace.map(|grace| json!(grace)));
    put("routes", Some(json!(routes)).filter(|_| !routes.is_empty()));
    put("note", note.map(|note| json!(note)));
    put("upstream", manifest.upstream.as_ref().map(|upstream| json!(upstream)));
    Value::Object(body)
}

/// Whether a route is but host and path: those travel with the push, others by a request of their own.
pub(super) fn is_plain(route: &RouteWish) -> bool {
    !route.strip_path && route.entry.is_empty()
}

fn as_text(route: &RouteWish) -> String {
    if route.path == "/" { route.host.clone() } else { format!("{}{}", route.host, route.path) }
}
