//! What loggers say of a request.

use crate::plugins::vars::Vars;
use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION, SET_COOKIE};
use serde_json::{Map, Value, json};
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

fn all(vars: &Vars<'_>, bodies: &Bodies) -> Map<String, Value> {
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
