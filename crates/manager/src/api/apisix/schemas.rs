//! Published schemas, and the judgement of a document that is not stored.

use super::answer::{Answered, Failed};
use crate::api::ApiState;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Map, Value};
use towpath_resources::plugins::{self, Plugin};
use towpath_resources::{Id, Key, Kind, read, schema_of};

/// `schema/{kind}`, in the plural as in addresses or in the singular, and `schema/plugins/{name}`.
pub(super) fn schema(kind: &str, rest: Option<&str>, schema_type: Option<&str>) -> Answered<Response> {
    if kind == "plugins" {
        return plugins(rest, schema_type);
    }
    let singular = |known: &Kind| known.noun().replace(' ', "_") == kind || singular_of(*known) == kind;
    let found = kind.parse().ok().or_else(|| Kind::ALL.into_iter().find(singular));
    match (found, rest) {
        (Some(kind), None) => Ok(Json(schema_of(kind)).into_response()),
        _ => Err(Failed::new(StatusCode::BAD_REQUEST, format!("not found schema: {kind}"))),
    }
}

/// What APISIX calls a kind's schema.
fn singular_of(kind: Kind) -> &'static str {
    match kind {
        Kind::PluginConfig => "plugin_config",
        Kind::Ssl => "ssl",
        Kind::GlobalRule => "global_rule",
        Kind::ConsumerGroup => "consumer_group",
        Kind::StreamRoute => "stream_route",
        _ => kind.as_str().trim_end_matches('s'),
    }
}

/// `plugins/list`: names by priority. `plugins/{name}`: a schema. `plugins`: all of them.
pub(super) fn plugins(name: Option<&str>, schema_type: Option<&str>) -> Answered<Response> {
    let mut all: Vec<&Plugin> = plugins::all().iter().collect();
    all.sort_by_key(|plugin| std::cmp::Reverse(plugin.priority));
    match name {
        Some("list") => Ok(Json(all.iter().map(|plugin| plugin.name).collect::<Vec<_>>()).into_response()),
        Some(name) => {
            let plugin = plugins::plugin(name).ok_or_else(|| {
                let message = plugins::refused(name).unwrap_or_else(|| format!("plugin not found: {name}"));
                Failed::new(StatusCode::NOT_FOUND, message)
            })?;
            let schema = match schema_type {
                None => Some(&plugin.schema),
                Some("consumer") => plugin.credential_schema.as_ref(),
                Some("metadata") => plugin.metadata_schema.as_ref(),
                Some(other) => {
                    return Err(Failed::new(
                        StatusCode::BAD_REQUEST,
                        format!("schema_type {other:?} is not consumer or metadata"),
                    ));
                }
            };
            let schema = schema.ok_or_else(|| {
                Failed::new(StatusCode::NOT_FOUND, format!("plugin {name} has no such schema"))
            })?;
            Ok(Json(schema).into_response())
        }
        None => {
            let whole: Map<String, Value> =
                all.iter().map(|plugin| (plugin.name.to_owned(), about(plugin))).collect();
            Ok(Json(whole).into_response())
        }
    }
}

fn about(plugin: &Plugin) -> Value {
    let mut about = Map::new();
    about.insert("priority".into(), plugin.priority.into());
    about.insert("schema".into(), plugin.schema.clone());
    if let Some(schema) = &plugin.credential_schema {
        about.insert("consumer_schema".into(), schema.clone());
        about.insert("type".into(), "auth".into());
    }
    if let Some(schema) = &plugin.metadata_schema {
        about.insert("metadata_schema".into(), schema.clone());
    }
    Value::Object(about)
}

/// Says what is wrong with a document. An id that is not given is made up.
pub(super) fn validate(state: &ApiState, kind: &str, body: &Value) -> Answered<Response> {
    let unknown = |_| Failed::new(StatusCode::NOT_FOUND, format!("Unsupported resource type: {kind}"));
    let kind: Kind = kind.trim_matches('/').parse().map_err(unknown)?;
    let text = |field: &str| match body.get(field) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let id = match kind {
        Kind::Consumer => text("username").unwrap_or_else(|| "consumer".to_owned()),
        Kind::Credential => text("id").filter(|id| id.contains('/')).unwrap_or_else(|| {
            format!("consumer/credentials/{}", text("id").unwrap_or_else(|| "id".to_owned()))
        }),
        Kind::Secret => text("id").filter(|id| id.contains('/')).unwrap_or_else(|| "vault/id".to_owned()),
        _ => text("id").unwrap_or_else(|| "id".to_owned()),
    };
    let id = Id::new(kind, &id).map_err(|fault| Failed::faults(vec![fault]))?;
    let plain = state.core.opened_resource(&Key::new(kind, id.clone()), body)?;
    read(kind, &id, &plain).map_err(Failed::faults)?;
    Ok(StatusCode::OK.into_response())
}
