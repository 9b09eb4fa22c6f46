//! Checks of what people send, beyond its types.

use super::problem::FieldError;
use std::collections::BTreeMap;
use towpath_route::check::{self, Wrong};
use towpath_types::health::{HealthCheck, Probe};
use towpath_types::lane::{EntryRule, HashBy};
use towpath_types::spec::Limits;
use towpath_types::upstream::{Balancer, UpstreamSpec};
use towpath_types::{ByteSize, Millis};

/// Most instances of a group.
pub(crate) const MAX_COUNT: u32 = 10_000;
/// Variables of a push whose names begin so are seen by the build.
pub(crate) const BUILD_PREFIX: &str = "BUILD_";
/// Most bytes of an environment.
const MAX_ENV: usize = 128 * 1024;
/// Longest free text.
const MAX_TEXT: usize = 8 * 1024;

type Errors = Vec<FieldError>;

fn wrong(errors: &mut Errors, field: impl Into<String>, message: impl Into<String>) {
    errors.push(FieldError::new(field, message));
}

/// Names of variables, and what they may not be.
pub(crate) fn env<V: AsRef<str>>(field: &str, env: &BTreeMap<String, Option<V>>, errors: &mut Errors) {
    let mut bytes = 0;
    for (name, value) in env {
        let place = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
        let first = name.bytes().next();
        let letters = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !letters || first.is_none_or(|b| b.is_ascii_digit()) {
            wrong(
                errors,
                &place,
                "a variable's name is made of letters, digits and '_', and does not begin with a digit",
            );
        } else if name.starts_with("TOWPATH_") || name == "PORT" {
            wrong(errors, &place, "the platform sets PORT and TOWPATH_* itself");
        }
        if let Some(value) = value {
            let value = value.as_ref();
            bytes += name.len() + value.len();
            if value.contains('\0') {
                wrong(errors, &place, "a value cannot have a NUL character in it");
            }
        }
    }
    if bytes > MAX_ENV {
        wrong(errors, field, format!("the environment has {bytes} bytes; at most {MAX_ENV} are permitted"));
    }
}

/// Limits that an app can live with.
pub(crate) fn limits(field: &str, limits: &Limits, errors: &mut Errors) {
    if limits.memory.is_some_and(|memory| memory < ByteSize::mib(4)) {
        wrong(errors, format!("{field}.memory"), "has to be at least 4M");
    }
    if limits.disk.is_some_and(|disk| disk < ByteSize::mib(1)) {
        wrong(errors, format!("{field}.disk"), "has to be at least 1M");
    }
    if limits.files.is_some_and(|files| !(16..=1_048_576).contains(&files)) {
        wrong(errors, format!("{field}.files"), "has to be 16 to 1048576");
    }
    if limits.processes.is_some_and(|processes| !(1..=1_048_576).contains(&processes)) {
        wrong(errors, format!("{field}.processes"), "has to be 1 to 1048576");
    }
}

/// A count of instances.
pub(crate) fn count(field: &str, count: u32, errors: &mut Errors) {
    if count > MAX_COUNT {
        wrong(errors, field, format!("has to be 0 to {MAX_COUNT}"));
    }
}

/// A health check.
pub(crate) fn health(field: &str, health: &HealthCheck, errors: &mut Errors) {
    if let Probe::Http(path) = &health.probe
        && (!path.starts_with('/') || path.bytes().any(|b| b <= b' ' || b == 0x7f))
    {
        wrong(errors, format!("{field}.probe.http"), "is a path that begins with '/' and has no spaces");
    }
    for (name, value) in
        [("interval", health.interval), ("timeout", health.timeout), ("start_timeout", health.start_timeout)]
    {
        if !(Millis(10)..=Millis::secs(3600)).contains(&value) {
            wrong(errors, format!("{field}.{name}"), "has to be 10ms to 1h");
        }
    }
    if !(1..=1000).contains(&health.failures) {
        wrong(errors, format!("{field}.failures"), "has to be 1 to 1000");
    }
}

/// How gateways treat an app.
pub(crate) fn upstream(field: &str, upstream: &UpstreamSpec, errors: &mut Errors) {
    refused(field, check::upstream(upstream), errors);
    if let Balancer::Chash(by) = &upstream.balancer {
        hash_by(&format!("{field}.balancer.chash"), by, errors);
    }
    let ejection = &upstream.ejection;
    for (name, value) in [("window", ejection.window), ("base", ejection.base), ("max", ejection.max)] {
        if !(Millis(10)..=Millis::secs(24 * 3600)).contains(&value) {
            wrong(errors, format!("{field}.ejection.{name}"), "has to be 10ms to 24h");
        }
    }
    if upstream.retry.retries > 10 {
        wrong(errors, format!("{field}.retry.retries"), "has to be 0 to 10");
    }
    let cookie = &upstream.sticky.cookie;
    if !is_token(cookie) {
        wrong(errors, format!("{field}.sticky.cookie"), "is not a cookie name");
    }
    for (index, name) in upstream.sticky.session_cookies.iter().enumerate() {
        if !is_token(name) {
            wrong(errors, format!("{field}.sticky.session_cookies[{index}]"), "is not a cookie name");
        }
    }
}

/// What gateways would refuse.
pub(crate) fn refused(field: &str, found: Vec<Wrong>, errors: &mut Errors) {
    for Wrong { field: inner, message } in found {
        let dot = if inner.starts_with('[') { "" } else { "." };
        wrong(errors, format!("{field}{dot}{inner}"), message);
    }
}

/// What a hash is taken of.
fn hash_by(field: &str, by: &HashBy, errors: &mut Errors) {
    match by {
        HashBy::Header(name) if !is_token(name) => {
            wrong(errors, format!("{field}.header"), "is not a header name");
        }
        HashBy::Cookie(name) if !is_token(name) => {
            wrong(errors, format!("{field}.cookie"), "is not a cookie name");
        }
        HashBy::Query(name) if !is_parameter(name) => {
            wrong(errors, format!("{field}.query"), "is not the name of a query parameter");
        }
        HashBy::Var(name) if !is_token(name) => {
            wrong(errors, format!("{field}.var"), "is not the name of a variable");
        }
        HashBy::Vars(text) if !text.contains('$') || text.len() > 256 => {
            wrong(errors, format!("{field}.vars"), "has to name variables, as in $http_x_user$arg_id");
        }
        HashBy::Address
        | HashBy::Uri
        | HashBy::Header(_)
        | HashBy::Cookie(_)
        | HashBy::Query(_)
        | HashBy::Var(_)
        | HashBy::Vars(_) => {}
    }
}

/// The name of a query parameter.
pub(crate) fn is_parameter(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic() && !b"&=#?".contains(&b))
}

/// A header or cookie name.
pub(crate) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 128
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

/// A free text.
pub(crate) fn text(field: &str, text: &str, errors: &mut Errors) {
    if text.len() > MAX_TEXT {
        wrong(errors, field, format!("has to be at most {MAX_TEXT} bytes"));
    } else if text.contains('\0') {
        wrong(errors, field, "cannot have a NUL character in it");
    }
}

/// A host of a route: lower-case labels, perhaps `*` as the first, or an IPv6 address in brackets.
pub(crate) fn host(field: &str, host: &str, errors: &mut Errors) {
    let labels = host.strip_prefix("*.").unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let address = host.starts_with('[');
    if !address && (host.len() > 253 || !labels.split('.').all(label)) {
        wrong(
            errors,
            field,
            "is not a host; write it in lower case without scheme and port, for example shop.example.com or *.example.com",
        );
    } else if let Err(message) = check::host(host) {
        wrong(errors, field, message);
    }
}

/// A path prefix of a route.
pub(crate) fn path(field: &str, path: &str, errors: &mut Errors) {
    let plain = |b: u8| b.is_ascii_graphic() && !b"?#\\\"<>^`{}|".contains(&b);
    let dots = path.split('/').any(|segment| segment == "." || segment == "..");
    let trailing = path.len() > 1 && path.ends_with('/');
    if path.len() > 512
        || !path.starts_with('/')
        || !path.bytes().all(plain)
        || path.contains("//")
        || dots
        || trailing
    {
        wrong(errors, field, "is not a path prefix; write for example / or /api, with no '/' at the end");
    } else if let Err(message) = check::path(path) {
        wrong(errors, field, message);
    }
}

/// `host/path` as a push names routes.
pub(crate) fn split_route(text: &str) -> (String, String) {
    match text.find('/') {
        Some(at) => {
            let (host, path) = text.split_at(at);
            let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
            (host.to_ascii_lowercase(), if path.is_empty() { "/".into() } else { path.to_owned() })
        }
        None => (text.to_ascii_lowercase(), "/".into()),
    }
}

/// Rules by which requests enter a lane.
pub(crate) fn entry(field: &str, rules: &[EntryRule], errors: &mut Errors) {
    refused(field, check::entry(rules), errors);
    for (index, rule) in rules.iter().enumerate() {
        hash_by(&format!("{field}[{index}].hash_by"), &rule.hash_by, errors);
        for (at, header) in rule.headers.iter().enumerate() {
            if !is_token(&header.name) {
                wrong(errors, format!("{field}[{index}].headers[{at}].name"), "is not a header name");
            }
        }
    }
}

#[cfg(test)]
mod agreement;

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(check: impl Fn(&mut Errors)) -> usize {
        let mut errors = Vec::new();
        check(&mut errors);
        errors.len()
    }

    #[test]
    fn hosts_and_paths_of_routes_are_checked() {
        for good in ["shop.localhost", "localhost", "*.example.com", "a-b.c_d.example"] {
            assert_eq!(errors(|e| host("h", good, e)), 0, "{good}");
        }
        for bad in
            ["", "Shop.x", "a..b", ".a", "a.", "*", "*.", "a.*.b", "http://a", "a:80", "-a.b", "ä.b", "a b"]
        {
            assert_eq!(errors(|e| host("h", bad, e)), 1, "{bad}");
        }
        for good in ["/", "/api", "/a/b.c", "/%20"] {
            assert_eq!(errors(|e| path("p", good, e)), 0, "{good}");
        }
        for bad in ["", "api", "/api/", "//", "/a//b", "/a?b", "/a#b", "/a/../b", "/ä", "/a b"] {
            assert_eq!(errors(|e| path("p", bad, e)), 1, "{bad}");
        }
        assert_eq!(split_route("Shop.example/api/"), ("shop.example".into(), "/api".into()));
        assert_eq!(split_route("shop.example"), ("shop.example".into(), "/".into()));
        assert_eq!(split_route("shop.example/"), ("shop.example".into(), "/".into()));
    }

    #[test]
    fn the_environment_is_checked() {
        let env_of = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), Some(value.to_owned()))]);
        for good in ["A", "_x1", "DATABASE_URL"] {
            assert_eq!(errors(|e| env("env", &env_of(good, "v"), e)), 0, "{good}");
        }
        for bad in ["", "1A", "A-B", "A B", "PORT", "TOWPATH_APP", "Ä"] {
            assert_eq!(errors(|e| env("env", &env_of(bad, "v"), e)), 1, "{bad}");
        }
        assert_eq!(errors(|e| env("env", &env_of("A", "a\0b"), e)), 1);
        assert_eq!(errors(|e| env("env", &env_of("A", &"x".repeat(MAX_ENV)), e)), 1);
    }
}
