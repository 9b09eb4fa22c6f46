//! What loggers say of a request.

use crate::plugins::vars::Vars;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION, SET_COOKIE};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use towpath_route::vars::Template;

/// The fields of an entry: texts with variables, or constants.
#[derive(Debug)]
pub(super) enum Form {
    /// All that is known.
    All,
    /// These.
    Fields(Vec<(String, Field)>),
}

#[derive(Debug)]
pub(super) enum Field {
    Text(Template),
    Constant(Value),
}

impl Form {
    /// The form that the plugin's use says, or its metadata, or none.
    pub(super) fn of(
        own: Option<&BTreeMap<String, Value>>,
        metadata: Option<&BTreeMap<String, Value>>,
    ) -> Self {
        let Some(fields) = own.or(metadata).filter(|fields| !fields.is_empty()) else { return Self::All };
        let field = |value: &Value| match value.as_str() {
            Some(text) => Field::Text(Template::new(text)),
            None => Field::Constant(value.clone()),
        };
        Self::Fields(fields.iter().map(|(name, value)| (name.clone(), field(value))).collect())
    }

    /// The entry of a request.
    pub(super) fn entry(&self, vars: &Vars<'_>) -> Value {
        match self {
            Self::All => all(vars),
            Self::Fields(fields) => {
                let value = |field: &Field| match field {
                    Field::Text(template) => Value::String(vars.fill(template).0),
                    Field::Constant(value) => value.clone(),
                };
                let mut entry: Map<String, Value> =
                    fields.iter().map(|(name, field)| (name.clone(), value(field))).collect();
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

/// Headers whose values prove who somebody is, and so are for no log.
fn is_secret(name: &HeaderName) -> bool {
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE, SET_COOKIE].contains(name)
}

fn headers(map: &HeaderMap) -> Value {
    let mut all = Map::new();
    for name in map.keys() {
        if is_secret(name) {
            all.insert(name.as_str().to_owned(), "(hidden)".into());
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

fn all(vars: &Vars<'_>) -> Value {
    let record = vars.record;
    let took = crate::clock::now_ns().saturating_sub(record.started_ns());
    let upstream = record.upstream_ns();
    let ms = |ns: u64| ns as f64 / 1e6;
    let target = record.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
    let host = String::from_utf8_lossy(record.host()).into_owned();
    let query: Map<String, Value> = record
        .uri
        .query()
        .into_iter()
        .flat_map(|query| query.split('&'))
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (
                crate::plugins::vars::decoded(key).into_owned(),
                crate::plugins::vars::decoded(value).into_owned().into(),
            )
        })
        .collect();
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
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_prove_who_somebody_is_are_not_told() {
        let mut map = HeaderMap::new();
        for name in ["authorization", "proxy-authorization", "cookie", "set-cookie", "accept"] {
            map.append(name, "value".parse().unwrap());
            map.append(name, "other".parse().unwrap());
        }
        let told = headers(&map);
        for name in ["authorization", "proxy-authorization", "cookie", "set-cookie"] {
            assert_eq!(told[name], "(hidden)");
        }
        assert_eq!(told["accept"], json!(["value", "other"]));
    }
}
