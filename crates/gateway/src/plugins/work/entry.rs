//! What loggers say of a request.

use crate::plugins::vars::{Vars, decoded};
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION, SET_COOKIE};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use towpath_resources::plugins::logs::Format;
use towpath_route::vars::Template;

/// The fields of an entry.
#[derive(Debug)]
pub(crate) enum Form {
    /// All that is known, and these.
    All(Fields),
    /// These.
    Fields(Fields),
}

pub(crate) type Fields = Vec<(String, Field)>;

/// A field: a text with variables, a constant, or an object of such.
#[derive(Debug)]
pub(crate) enum Field {
    Text(Template),
    Constant(Value),
    Object(Fields),
    RequestBody,
    ResponseBody,
}

/// What there is of bodies.
struct Bodies {
    request: Option<String>,
    response: Option<String>,
}

fn fields(format: &Format) -> Fields {
    let field = |value: &Value| match value {
        Value::String(text) if text == "$request_body" => Field::RequestBody,
        Value::String(text) if text == "$resp_body" => Field::ResponseBody,
        Value::String(text) => Field::Text(Template::new(text)),
        Value::Object(inner) => Field::Object(fields(inner)),
        value => Field::Constant(value.clone()),
    };
    format.iter().map(|(name, value)| (name.clone(), field(value))).collect()
}

fn filled(fields: &Fields, vars: &Vars<'_>, bodies: &Bodies) -> Map<String, Value> {
    let value = |field: &Field| {
        Some(match field {
            Field::Text(template) => Value::String(vars.fill(template).0),
            Field::Constant(value) => value.clone(),
            Field::Object(fields) => Value::Object(filled(fields, vars, bodies)),
            Field::RequestBody => bodies.request.clone()?.into(),
            Field::ResponseBody => bodies.response.clone()?.into(),
        })
    };
    fields.iter().filter_map(|(name, field)| Some((name.clone(), value(field)?))).collect()
}

fn has(fields: &Fields, wanted: fn(&Field) -> bool) -> bool {
    fields.iter().any(|(_, field)| match field {
        Field::Object(inner) => has(inner, wanted),
        field => wanted(field),
    })
}

impl Form {
    /// With these fields, or with all that is known and some more.
    pub(crate) fn of(format: Option<&Format>, extra: Option<&Format>) -> Self {
        match format.filter(|format| !format.is_empty()) {
            Some(format) => Self::Fields(fields(format)),
            None => Self::All(extra.map(fields).unwrap_or_default()),
        }
    }

    /// Only the fields themselves.
    pub(crate) fn line(&self, vars: &Vars<'_>) -> Value {
        Value::Object(filled(self.fields(), vars, &Bodies { request: None, response: None }))
    }

    fn fields(&self) -> &Fields {
        match self {
            Self::All(fields) | Self::Fields(fields) => fields,
        }
    }

    /// Whether a field is the request's body.
    pub(super) fn names_request_body(&self) -> bool {
        has(self.fields(), |field| matches!(field, Field::RequestBody))
    }

    /// Whether a field is the response's body.
    pub(super) fn names_response_body(&self) -> bool {
        has(self.fields(), |field| matches!(field, Field::ResponseBody))
    }

    /// The entry of a request, with what there is of its bodies.
    pub(super) fn entry(&self, vars: &Vars<'_>, request: Option<String>, response: Option<String>) -> Value {
        let bodies = Bodies { request, response };
        match self {
            Self::All(extra) => {
                let mut entry = all(vars, &bodies);
                for (name, value) in filled(extra, vars, &bodies) {
                    entry.entry(name).or_insert(value);
                }
                Value::Object(entry)
            }
            Self::Fields(fields) => {
                let mut entry = filled(fields, vars, &bodies);
                about_route(vars, &mut entry);
                Value::Object(entry)
            }
        }
    }
}

fn about_route(vars: &Vars<'_>, entry: &mut Map<String, Value>) {
    let running = vars.record.running.as_ref();
    if let Some(program) = running.and_then(|running| running.program.as_ref()) {
        entry.insert("route_id".to_owned(), program.about.route.clone().into());
        entry.insert("service_id".to_owned(), program.about.service.clone().unwrap_or_default().into());
    }
}

/// What stands instead of a value that is for no log.
const HIDDEN: &str = "(hidden)";

/// Headers beside the standard ones whose values prove who somebody is.
const SECRET_HEADERS: [&str; 8] = [
    "x-access-token",
    "x-id-token",
    "x-raw-id-token",
    "x-refresh-token",
    "x-userinfo",
    "apikey",
    "x-api-key",
    "x-amz-security-token",
];

/// Arguments of queries whose values do.
const SECRET_ARGUMENTS: [&str; 6] =
    ["code", "state", "X-Amz-Signature", "X-Amz-Security-Token", "apikey", "jwt"];

/// Headers whose values prove who somebody is, and so are for no log.
fn is_secret(name: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, SET_COOKIE].contains(name)
        || SECRET_HEADERS.contains(&name.as_str())
}

/// The same of arguments, by their names as they are written.
fn is_secret_argument(name: &str) -> bool {
    let name = decoded(name);
    SECRET_ARGUMENTS.iter().any(|secret| secret.eq_ignore_ascii_case(&name))
}

/// A path and query without values that are for no log.
fn shown(target: &str) -> Cow<'_, str> {
    let Some((path, query)) = target.split_once('?') else { return target.into() };
    let proves = |pair: &str| pair.split('=').next().is_some_and(is_secret_argument);
    if !query.split('&').any(proves) {
        return target.into();
    }
    let pairs: Vec<String> = query
        .split('&')
        .map(|pair| match pair.split_once('=') {
            Some((name, _)) if is_secret_argument(name) => format!("{name}={HIDDEN}"),
            _ => pair.to_owned(),
        })
        .collect();
    format!("{path}?{}", pairs.join("&")).into()
}

/// The arguments of a query, decoded.
fn arguments(query: Option<&str>) -> Map<String, Value> {
    let pairs = query.into_iter().flat_map(|query| query.split('&')).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = if is_secret_argument(name) { HIDDEN.into() } else { decoded(value) };
            (decoded(name).into_owned(), value.into_owned().into())
        })
        .collect()
}

fn headers(map: &HeaderMap) -> Value {
    let mut all = Map::new();
    for name in map.keys() {
        if is_secret(name) {
            all.insert(name.as_str().to_owned(), HIDDEN.into());
            continue;
        }
        let mut values =
            map.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let first = values.next().unwrap_or_default();
        let rest: Vec<String> = values.collect();
        let value = if rest.is_empty() {
            first.into()
        } else {
            json!(std::iter::once(first).chain(rest).collect::<Vec<_>>())
        };
        all.insert(name.as_str().to_owned(), value);
    }
    Value::Object(all)
}

fn all(vars: &Vars<'_>, bodies: &Bodies) -> Map<String, Value> {
    let record = vars.record;
    let took = crate::clock::now_ns().saturating_sub(record.started_ns());
    let upstream = record.upstream_ns();
    let ms = |ns: u64| ns as f64 / 1e6;
    let target = record.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = String::from_utf8_lossy(record.host()).into_owned();
    let target = shown(target);
    let query = arguments(record.uri.query());
    let mut entry = Map::new();
    about_route(vars, &mut entry);
    let rest = json!({
        "client_ip": record.client().to_string(),
        "start_time": crate::clock::unix_ms().saturating_sub(took / 1_000_000),
        "latency": ms(took),
        "upstream_latency": upstream.map(ms),
        "apisix_latency": ms(took.saturating_sub(upstream.unwrap_or_default())),
        "upstream": record.chosen.as_ref().map(|chosen| chosen.endpoint.address().to_string()),
        "consumer": record.running.as_ref().and_then(|running| running.consumer.as_ref()).map(|consumer| json!({"username": consumer.name})),
        "request_id": String::from_utf8_lossy(record.id.as_bytes()),
        "request": {
            "url": format!("{}://{host}{target}", record.scheme()), "uri": target, "method": record.method.as_str(),
            "headers": headers(vars.headers), "querystring": query, "size": record.bytes_in(),
        },
        "response": {
            "status": record.status, "headers": vars.reply.map(headers), "size": record.bytes_out,
        },
        "server": {"version": env!("CARGO_PKG_VERSION")},
    });
    if let Value::Object(rest) = rest {
        entry.extend(rest);
    }
    for (part, body) in [("request", &bodies.request), ("response", &bodies.response)] {
        if let (Some(Value::Object(part)), Some(body)) = (entry.get_mut(part), body) {
            part.insert("body".to_owned(), body.clone().into());
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_prove_who_somebody_is_are_not_told() {
        let mut map = HeaderMap::new();
        for name in ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-userinfo", "accept"] {
            map.append(name, "value".parse().unwrap());
            map.append(name, "other".parse().unwrap());
        }
        let told = headers(&map);
        for name in ["authorization", "proxy-authorization", "cookie", "set-cookie", "x-userinfo"] {
            assert_eq!(told[name], "(hidden)");
        }
        assert_eq!(told["accept"], json!(["value", "other"]));
        let query = "x=1&X-Amz-Signature=abc&st%61te=s&jwt&API";
        assert_eq!(shown("/a?b"), "/a?b");
        let path = format!("/code=1?{query}");
        assert_eq!(shown(&path), "/code=1?x=1&X-Amz-Signature=(hidden)&st%61te=(hidden)&jwt&API");
        let told = arguments(Some(query));
        assert_eq!(
            (&told["x"], &told["state"], &told["X-Amz-Signature"]),
            (&json!("1"), &json!(HIDDEN), &json!(HIDDEN))
        );
    }
}
