//! One resource, or a list of those that the query chooses.

use super::answer::{Answered, Failed, created_index, item};
use crate::api::ApiState;
use crate::api::query::Wait;
use crate::core::keys;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, Uri};
use serde_json::{Value, json};
use std::sync::Arc;
use towpath_resources::{Id, Key, Kind, finder};
use towpath_types::{Millis, Record};

/// What the query asks.
#[derive(Debug, Default)]
pub(super) struct Query {
    pages: Option<(usize, usize)>,
    name: Option<String>,
    uri: Option<String>,
    label: Option<String>,
    fields: Vec<(String, String)>,
    pub(super) force: bool,
    pub(super) schema_type: Option<String>,
    pub(super) wait: Option<Wait>,
    pub(super) wait_timeout: Option<Millis>,
}

impl Query {
    pub(super) fn of(uri: &Uri) -> Answered<Self> {
        let mut query = Self::default();
        let (mut page, mut size) = (None, None);
        let bad = |text: String| Failed::new(StatusCode::BAD_REQUEST, text);
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            let number =
                || value.parse::<usize>().map_err(|_| bad(format!("{name} must be a number, not {value:?}")));
            match &*name {
                "page" => page = Some(number()?.max(1)),
                "page_size" => size = Some(number()?),
                "name" => query.name = Some(value.into_owned()),
                "uri" => query.uri = Some(value.into_owned()),
                "label" => query.label = Some(value.into_owned()),
                "filter" => query.fields = form_urlencoded::parse(value.as_bytes()).into_owned().collect(),
                "force" => query.force = value == "true",
                "schema_type" => query.schema_type = Some(value.into_owned()),
                "wait" if value == "revision" => query.wait = Some(Wait::Revision),
                "wait_timeout" => {
                    let limit = value
                        .parse()
                        .map_err(|_| bad(format!("wait_timeout {value:?} is no length of time")))?;
                    query.wait_timeout = Some(limit);
                }
                // Clients name their space everywhere, and some ask for all of a list so.
                "org" | "space" | "all" | "subsystem" => {}
                other => return Err(bad(format!("there is no parameter {other:?} here"))),
            }
        }
        for (field, _) in &query.fields {
            if !matches!(field.as_str(), "service_id" | "upstream_id") {
                return Err(bad(format!("filter: {field:?} is not service_id or upstream_id")));
            }
        }
        query.pages = match (page, size) {
            (None, None) => None,
            (_, Some(size)) if !(10..=500).contains(&size) => {
                return Err(bad("page_size must be between 10 and 500".to_owned()));
            }
            (page, size) => Some((page.unwrap_or(1), size.unwrap_or(10))),
        };
        Ok(query)
    }

    /// Decides which documents are chosen.
    fn chooser(&self) -> Answered<impl Fn(&Value) -> bool> {
        let expression = |text: &Option<String>| {
            let made = text.as_deref().map(finder).transpose();
            made.map_err(|message| Failed::new(StatusCode::BAD_REQUEST, message))
        };
        let (name, uri) = (expression(&self.name)?, expression(&self.uri)?);
        let text = |value: &Value, field: &str| value.get(field).and_then(Value::as_str).map(str::to_owned);
        Ok(move |value: &Value| {
            let named = name.as_ref().is_none_or(|name| text(value, "name").is_some_and(|text| name(&text)));
            let labelled = self
                .label
                .as_ref()
                .is_none_or(|label| value.get("labels").is_some_and(|held| held.get(label).is_some()));
            let several =
                value.get("uris").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
            let found = uri.as_ref().is_none_or(|uri| {
                text(value, "uri").is_some_and(|text| uri(&text)) || several.clone().any(uri)
            });
            let fields = self.fields.iter().all(|(field, wanted)| match value.get(field) {
                Some(Value::String(text)) => text == wanted,
                Some(Value::Number(number)) => {
                    wanted.parse().is_ok_and(|wanted: u64| number.as_u64() == Some(wanted))
                }
                _ => false,
            });
            named && labelled && found && fields
        })
    }
}

/// The resource that a record holds.
pub(super) fn key_of(record: &Record) -> Option<Key> {
    let (kind, id) = record.key.name.split_once('/')?;
    let kind: Kind = kind.parse().ok()?;
    Some(Key::new(kind, Id::new(kind, id).ok()?))
}

impl ApiState {
    /// One resource.
    pub(super) async fn resource(&self, key: &Key) -> Answered<Response> {
        let stored = self
            .core
            .store
            .get(&keys::resource_key(key))
            .await
            .map_err(crate::api::problem::Problem::from)?;
        let record = stored.ok_or_else(Failed::not_found)?;
        Ok(Json(item(key, &record)).into_response())
    }

    /// All resources of a kind (credentials: of a consumer) that the query chooses, oldest first.
    pub(super) async fn resources(&self, kind: Kind, of: Option<&str>, query: &Query) -> Answered<Response> {
        let chosen = query.chooser()?;
        let prefix = of.map(|consumer| format!("{consumer}/credentials/"));
        let mut found: Vec<(Key, Arc<Record>)> = self
            .resources_of(kind)
            .await?
            .into_iter()
            .filter_map(|record| Some((key_of(&record)?, record)))
            .filter(|(key, record)| {
                prefix.as_ref().is_none_or(|prefix| key.id.as_str().starts_with(prefix))
                    && chosen(&record.spec)
            })
            .collect();
        found.sort_by_key(|(_, record)| (created_index(record), record.created_ms));
        let total = found.len();
        let (skip, take) =
            query.pages.map_or((0, usize::MAX), |(page, size)| ((page - 1).saturating_mul(size), size));
        let list: Vec<Value> =
            found.iter().skip(skip).take(take).map(|(key, record)| item(key, record)).collect();
        Ok(Json(json!({"total": total, "list": list})).into_response())
    }

    /// The stored records of a kind.
    pub(super) async fn resources_of(&self, kind: Kind) -> Answered<Vec<Arc<Record>>> {
        let start = format!("{kind}/");
        let mut wanted = towpath_store::Query {
            kind: Some(towpath_types::Kind::Resource),
            limit: 1000,
            after: Some(keys::resource_name(start.clone())),
            ..towpath_store::Query::default()
        };
        let mut found = Vec::new();
        loop {
            let page = self.read_list(wanted.clone()).await?;
            let more = page.next.is_some();
            let last = page.records.last().map(|record| record.key.clone());
            let before = found.len();
            let read = page.records.len();
            found.extend(page.records.into_iter().take_while(|record| record.key.name.starts_with(&start)));
            match last {
                // Names of a kind stand together.
                Some(last) if more && found.len() - before == read => wanted.after = Some(last),
                _ => return Ok(found),
            }
        }
    }
}
