//! Reading resources: from memory once it is up to date with the store, else from the store; from memory as it is when the
//! store is gone (and the answer says so).

use super::ApiState;
use super::edge::STALE;
use super::problem::{FieldError, Outcome, Problem};
use axum::Json;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use towpath_store::{Query, StoreError};
use towpath_types::resource::Key;
use towpath_types::{Kind, Record, Revision, SpaceRef};

/// How long a read waits for the store before memory answers.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long a read waits for memory to be up to date before it asks the store itself.
const MEMORY: Duration = Duration::from_millis(250);
/// Items in a page when the client does not say.
const DEFAULT_LIMIT: usize = 100;
/// Most items in a page.
const MAX_LIMIT: usize = 1000;

/// Something that was read, and whether it may be out of date.
#[derive(Debug, Clone)]
pub(crate) struct Read<T> {
    pub(crate) value: T,
    pub(crate) stale: bool,
}

/// A list as clients get it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct List<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// Where the next page begins; absent on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    /// The store's revision when this page was read.
    pub(crate) revision: Revision,
}

/// Records of one page.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    pub(crate) records: Vec<Arc<Record>>,
    pub(crate) next: Option<String>,
    pub(crate) revision: Revision,
    pub(crate) stale: bool,
}

impl ApiState {
    /// A resource: what was committed before this was asked. Readers share one small question to the store, and then
    /// read memory.
    pub(crate) async fn read(&self, key: &Key) -> Outcome<Read<Option<Arc<Record>>>> {
        let loaded = *self.core.cache_loaded().borrow();
        if loaded && tokio::time::timeout(MEMORY, self.core.catch_up()).await == Ok(true) {
            return Ok(Read { value: self.core.cache.get(key), stale: false });
        }
        match tokio::time::timeout(PATIENCE, self.core.store.get(key)).await {
            Ok(Ok(record)) => Ok(Read { value: record.map(Arc::new), stale: false }),
            Ok(Err(StoreError::Unavailable { .. })) | Err(_) => {
                self.has_memory()?;
                Ok(Read { value: self.core.cache.get(key), stale: true })
            }
            Ok(Err(error)) => Err(error.into()),
        }
    }

    /// A resource that has to be there.
    pub(crate) async fn read_existing(
        &self,
        key: &Key,
        what: impl std::fmt::Display,
    ) -> Outcome<Read<Arc<Record>>> {
        let Read { value, stale } = self.read(key).await?;
        let value = value.ok_or_else(|| Problem::not_found(what))?;
        Ok(Read { value, stale })
    }

    /// A page of resources.
    pub(crate) async fn read_list(&self, query: Query) -> Outcome<Records> {
        match tokio::time::timeout(PATIENCE, self.core.store.list(&query)).await {
            Ok(Ok(page)) => {
                let next = page.records.last().filter(|_| page.more).map(|last| cursor(&last.key));
                let records = page.records.into_iter().map(Arc::new).collect();
                Ok(Records { records, next, revision: page.revision, stale: false })
            }
            Ok(Err(StoreError::Unavailable { .. })) | Err(_) => {
                self.has_memory()?;
                Ok(self.list_from_memory(&query))
            }
            Ok(Err(error)) => Err(error.into()),
        }
    }

    fn has_memory(&self) -> Outcome<()> {
        if self.core.cache.revision() > Revision(0) {
            return Ok(());
        }
        Err(Problem::new(
            towpath_types::ErrorCode::StoreUnavailable,
            "the store cannot be reached, and nothing was read yet",
        )
        .retry_after(Duration::from_secs(2)))
    }

    fn list_from_memory(&self, query: &Query) -> Records {
        let revision = self.core.cache.revision();
        let Some(kind) = query.kind else {
            return Records { records: Vec::new(), next: None, revision, stale: true };
        };
        let mut records = self.core.cache.list(kind, query.org.as_ref(), query.space.as_ref());
        records.retain(|record| {
            query.after.as_ref().is_none_or(|after| record.key > *after)
                && query.name_prefix.as_ref().is_none_or(|prefix| record.key.name.starts_with(prefix))
        });
        let more = query.limit > 0 && records.len() > query.limit;
        if more {
            records.truncate(query.limit);
        }
        let next = records.last().filter(|_| more).map(|last| cursor(&last.key));
        Records { records, next, revision, stale: true }
    }
}

/// The query for a page of a kind in a space.
pub(crate) fn page_query(
    kind: Kind,
    space: Option<&SpaceRef>,
    limit: Option<usize>,
    cursor: Option<&str>,
) -> Outcome<Query> {
    let limit = limit.unwrap_or(DEFAULT_LIMIT);
    let mut errors = Vec::new();
    if !(1..=MAX_LIMIT).contains(&limit) {
        errors.push(FieldError::new("limit", format!("has to be 1 to {MAX_LIMIT}")));
    }
    let after = cursor.and_then(|text| {
        let key =
            URL_SAFE_NO_PAD.decode(text).ok().and_then(|json| serde_json::from_slice::<Key>(&json).ok());
        if key.as_ref().is_none_or(|key| key.kind != kind) {
            errors.push(FieldError::new("cursor", "take it from `next` of the page before"));
        }
        key
    });
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    Ok(Query {
        kind: Some(kind),
        org: space.map(|space| space.org.clone()),
        space: space.map(|space| space.space.clone()),
        name_prefix: None,
        after,
        limit,
    })
}

/// A page's end as opaque text.
pub(crate) fn cursor(key: &Key) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(key).unwrap_or_default())
}

/// The ETag of a revision.
pub(crate) fn etag(revision: Revision) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{revision}\"")).unwrap_or(HeaderValue::from_static("\"0\""))
}

/// The answer with a resource: 304 when the client has it already.
pub(crate) fn resource<T: Serialize>(
    headers: &HeaderMap,
    revision: Revision,
    stale: bool,
    view: &T,
) -> Response {
    let tag = etag(revision);
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|value| names(value, revision));
    let mut response =
        if known { StatusCode::NOT_MODIFIED.into_response() } else { Json(view).into_response() };
    response.headers_mut().insert(header::ETAG, tag);
    mark(response, stale)
}

/// The answer with a resource whose view holds more than the resource itself: the tag is for `If-Match` alone, since the
/// rest may change while the revision stays.
pub(crate) fn tagged<T: Serialize>(revision: Revision, stale: bool, view: &T) -> Response {
    let mut response = Json(view).into_response();
    response.headers_mut().insert(header::ETAG, etag(revision));
    mark(response, stale)
}

/// The answer with something read.
pub(crate) fn read_answer<T: Serialize>(stale: bool, view: &T) -> Response {
    mark(Json(view).into_response(), stale)
}

fn mark(mut response: Response, stale: bool) -> Response {
    if stale {
        response.headers_mut().insert(STALE, HeaderValue::from_static("true"));
    }
    response
}

/// Whether a list of entity tags names the revision (weak or strong; `*` names all).
pub(crate) fn names(value: &HeaderValue, revision: Revision) -> bool {
    let Ok(text) = value.to_str() else { return false };
    text.split(',')
        .map(str::trim)
        .any(|tag| tag == "*" || tag.trim_start_matches("W/").trim_matches('"') == revision.to_string())
}
