//! `/apisix/admin`: resources of the dynamic gateway, in the addresses and shapes of APISIX 3's Admin API.
//!
//! A resource is a stored document like any other: it has a revision, its changes are audited, gateways get it by the feed.
//! `X-API-KEY` is a token of this platform with the operator's role.
//!
//! What is secret in a resource is stored sealed, and shown so: what was read can be written back, and a key is never told.

mod address;
mod answer;
mod change;
mod find;
mod schemas;

pub(super) use answer::body_of;

use super::ApiState;
use super::body::read_bytes;
use super::query::Segments;
use super::writing::Conditions;
use address::Address;
use answer::{Answered, Failed};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Method, StatusCode, Uri};
use serde_json::Value;
use towpath_resources::Kind;

/// Where the Admin API begins.
pub(super) const ROOT: &str = "/apisix/";

/// All resources of a kind. `page` and `page_size` (10 to 500), `name` and `uri` (regular expressions), `label`, `filter`
/// (`service_id=1&upstream_id=2`) choose.
#[utoipa::path(get, path = "/apisix/admin/{kind}", tag = "apisix", params(("kind" = String, Path)),
    responses((status = 200, description = "`{\"total\", \"list\": […]}`"), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn get_kind(
    State(state): State<ApiState>,
    Segments(kind): Segments<String>,
    uri: Uri,
) -> Response {
    answer::of(read(&state, &kind, None, None, &uri).await)
}

/// Makes or replaces the resource whose id is in the document (consumers: `username`).
#[utoipa::path(put, path = "/apisix/admin/{kind}", tag = "apisix", params(("kind" = String, Path)),
    responses((status = 200), (status = 201), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn put_kind(
    State(state): State<ApiState>,
    Segments(kind): Segments<String>,
    uri: Uri,
    conditions: Conditions,
    body: Body,
) -> Response {
    answer::of(write(&state, Method::PUT, (&kind, None, None), &uri, conditions, body).await)
}

/// Makes a resource with an id of its own.
#[utoipa::path(post, path = "/apisix/admin/{kind}", tag = "apisix", params(("kind" = String, Path)),
    responses((status = 201), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn post_kind(
    State(state): State<ApiState>,
    Segments(kind): Segments<String>,
    uri: Uri,
    conditions: Conditions,
    body: Body,
) -> Response {
    answer::of(write(&state, Method::POST, (&kind, None, None), &uri, conditions, body).await)
}

/// A resource; `schema/{kind}`: the schema of a kind; `plugins/list`, `plugins/{name}`: plugins and their schemas.
#[utoipa::path(get, path = "/apisix/admin/{kind}/{id}", tag = "apisix", params(("kind" = String, Path), ("id" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn get_one(
    State(state): State<ApiState>,
    Segments((kind, id)): Segments<(String, String)>,
    uri: Uri,
) -> Response {
    answer::of(read(&state, &kind, Some(&id), None, &uri).await)
}

/// Makes or replaces a resource.
#[utoipa::path(put, path = "/apisix/admin/{kind}/{id}", tag = "apisix", params(("kind" = String, Path), ("id" = String, Path)),
    responses((status = 200), (status = 201), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn put_one(
    State(state): State<ApiState>,
    Segments((kind, id)): Segments<(String, String)>,
    uri: Uri,
    conditions: Conditions,
    body: Body,
) -> Response {
    answer::of(write(&state, Method::PUT, (&kind, Some(&id), None), &uri, conditions, body).await)
}

/// Merges a patch into a resource: `null` deletes a field.
#[utoipa::path(patch, path = "/apisix/admin/{kind}/{id}", tag = "apisix", params(("kind" = String, Path), ("id" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn patch_one(
    State(state): State<ApiState>,
    Segments((kind, id)): Segments<(String, String)>,
    uri: Uri,
    conditions: Conditions,
    body: Body,
) -> Response {
    answer::of(write(&state, Method::PATCH, (&kind, Some(&id), None), &uri, conditions, body).await)
}

/// Deletes a resource that nothing refers to; with `force=true` in any case.
#[utoipa::path(delete, path = "/apisix/admin/{kind}/{id}", tag = "apisix", params(("kind" = String, Path), ("id" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn delete_one(
    State(state): State<ApiState>,
    Segments((kind, id)): Segments<(String, String)>,
    uri: Uri,
    conditions: Conditions,
) -> Response {
    answer::of(write(&state, Method::DELETE, (&kind, Some(&id), None), &uri, conditions, Body::empty()).await)
}

/// A credential of a consumer, a secret, or the schema of a plugin.
#[utoipa::path(get, path = "/apisix/admin/{kind}/{id}/{*rest}", tag = "apisix",
    params(("kind" = String, Path), ("id" = String, Path), ("rest" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn get_rest(
    State(state): State<ApiState>,
    Segments((kind, id, rest)): Segments<(String, String, String)>,
    uri: Uri,
) -> Response {
    answer::of(read(&state, &kind, Some(&id), Some(&rest), &uri).await)
}

/// Makes or replaces a credential of a consumer, or a secret.
#[utoipa::path(put, path = "/apisix/admin/{kind}/{id}/{*rest}", tag = "apisix",
    params(("kind" = String, Path), ("id" = String, Path), ("rest" = String, Path)),
    responses((status = 200), (status = 201), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn put_rest(
    State(state): State<ApiState>,
    Segments((kind, id, rest)): Segments<(String, String, String)>,
    uri: Uri,
    conditions: Conditions,
    body: Body,
) -> Response {
    answer::of(write(&state, Method::PUT, (&kind, Some(&id), Some(&rest)), &uri, conditions, body).await)
}

/// `schema/validate/{kind}`: says what is wrong with a document and stores nothing.
#[utoipa::path(post, path = "/apisix/admin/{kind}/{id}/{*rest}", tag = "apisix",
    params(("kind" = String, Path), ("id" = String, Path), ("rest" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn post_rest(
    State(state): State<ApiState>,
    Segments((kind, id, rest)): Segments<(String, String, String)>,
    body: Body,
) -> Response {
    let judged = async {
        if (kind.as_str(), id.as_str()) != ("schema", "validate") {
            return Err(Failed::method("POST"));
        }
        schemas::validate(&state, &rest, &read_json(body).await?)
    };
    answer::of(judged.await)
}

/// Replaces what stands at a path in a resource (`upstream/nodes`), or merges a patch into a secret.
#[utoipa::path(patch, path = "/apisix/admin/{kind}/{id}/{*rest}", tag = "apisix",
    params(("kind" = String, Path), ("id" = String, Path), ("rest" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn patch_rest(
    State(state): State<ApiState>,
    Segments((kind, id, rest)): Segments<(String, String, String)>,
    uri: Uri,
    conditions: Conditions,
    body: Body,
) -> Response {
    answer::of(write(&state, Method::PATCH, (&kind, Some(&id), Some(&rest)), &uri, conditions, body).await)
}

/// Deletes a credential of a consumer, or a secret.
#[utoipa::path(delete, path = "/apisix/admin/{kind}/{id}/{*rest}", tag = "apisix",
    params(("kind" = String, Path), ("id" = String, Path), ("rest" = String, Path)),
    responses((status = 200), (status = "default", description = "`{\"error_msg\"}`")))]
pub(crate) async fn delete_rest(
    State(state): State<ApiState>,
    Segments((kind, id, rest)): Segments<(String, String, String)>,
    uri: Uri,
    conditions: Conditions,
) -> Response {
    answer::of(
        write(&state, Method::DELETE, (&kind, Some(&id), Some(&rest)), &uri, conditions, Body::empty()).await,
    )
}

type Segmented<'a> = (&'a str, Option<&'a str>, Option<&'a str>);

async fn read(
    state: &ApiState,
    kind: &str,
    id: Option<&str>,
    rest: Option<&str>,
    uri: &Uri,
) -> Answered<Response> {
    let query = find::Query::of(uri)?;
    match (kind, id) {
        ("schema", Some(id)) => return schemas::schema(id, rest, query.schema_type.as_deref()),
        ("plugins", id) => return schemas::plugins(id, query.schema_type.as_deref()),
        _ => {}
    }
    match address::of(kind, id, rest)? {
        Address::All(kind) => state.resources(kind, None, &query).await,
        Address::CredentialsOf(consumer) => state.resources(Kind::Credential, Some(&consumer), &query).await,
        Address::One(key, path) if path.is_empty() => state.resource(&key).await,
        Address::One(..) => Err(Failed::not_found()),
    }
}

async fn write(
    state: &ApiState,
    method: Method,
    (kind, id, rest): Segmented<'_>,
    uri: &Uri,
    conditions: Conditions,
    body: Body,
) -> Answered<Response> {
    let query = find::Query::of(uri)?;
    let address = address::of(kind, id, rest)?;
    if method == Method::DELETE {
        return match address {
            Address::One(key, path) if path.is_empty() => {
                state.delete_resource(key, &conditions, &query).await
            }
            _ => Err(Failed::new(StatusCode::BAD_REQUEST, "the id of what is to be deleted is missing")),
        };
    }
    let body = read_json(body).await?;
    match (method, address) {
        (Method::PUT, Address::One(key, path)) if path.is_empty() => {
            state.put_resource(key, body, &conditions, &query).await
        }
        (Method::PUT, Address::All(kind)) => {
            let key = address::key_in(kind, &body)?;
            state.put_resource(key, body, &conditions, &query).await
        }
        (Method::POST, Address::All(kind)) => state.post_resource(kind, body, &conditions, &query).await,
        (Method::PATCH, Address::One(key, path)) => {
            state.patch_resource(key, &path, &body, &conditions, &query).await
        }
        (method, _) => Err(Failed::method(method.as_str())),
    }
}

async fn read_json(body: Body) -> Answered<Value> {
    let bytes = read_bytes(body).await?;
    if bytes.is_empty() {
        return Err(Failed::new(
            StatusCode::BAD_REQUEST,
            "missing configurations: the body has to be a JSON document",
        ));
    }
    serde_json::from_slice(&bytes)
        .map_err(|error| Failed::new(StatusCode::BAD_REQUEST, format!("invalid request body: {error}")))
}
