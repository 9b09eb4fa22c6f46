//! All endpoints, and the documents made from them.

use super::problem::Problem;
use super::{
    ApiState, access, apisix, apps, audit, auth, cells, edge, explain, forward, groups, instances, lanes,
    login, logs, managers, members, operations, orgs, page, releases, routes, secrets, sources, status,
    tokens, users,
};
use axum::Router;
use axum::extract::State;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderValue, Method, header};
use towpath_types::ErrorCode;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, Info, License, OpenApi, OpenApiBuilder, OpenApiVersion, PathItem, Tag};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The OpenAPI document as JSON, and the page for people made from it.
pub(crate) struct Documents {
    json: String,
    html: String,
}

impl Documents {
    /// Made from the code.
    pub(crate) fn make() -> Self {
        let document = openapi();
        Self {
            json: serde_json::to_string_pretty(&document).unwrap_or_default(),
            html: page::render(&document),
        }
    }
}

/// The OpenAPI document, as JSON.
pub fn openapi() -> serde_json::Value {
    let (_, document) = endpoints().split_for_parts();
    let mut document = serde_json::to_value(with_roles(document)).unwrap_or_default();
    polish(&mut document);
    document
}

/// The whole API.
pub(crate) fn router(state: ApiState) -> Router {
    let (router, _) = endpoints().split_for_parts();
    router
        .fallback(|| async { Problem::new(ErrorCode::NotFound, "there is no such endpoint; see /docs") })
        .layer(from_fn_with_state(state.clone(), forward::to_owner))
        .layer(from_fn_with_state(state.clone(), auth::guard))
        .layer(from_fn(edge::edge))
        .with_state(state)
}

fn endpoints() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(OpenApiBuilder::new().info(info()).tags(Some(tags())).build())
        .routes(routes!(page_root))
        .routes(routes!(page_docs))
        .routes(routes!(document))
        .routes(routes!(apps::list_apps))
        .routes(routes!(apps::get_app, apps::put_app, apps::patch_app, apps::delete_app))
        .routes(routes!(apps::get_env, apps::patch_env))
        .routes(routes!(groups::list_groups))
        .routes(routes!(groups::patch_group, groups::delete_group))
        .routes(routes!(groups::restart_group))
        .routes(routes!(sources::head_source, sources::put_source))
        .routes(routes!(releases::list_releases, releases::push))
        .routes(routes!(releases::rollback))
        .routes(routes!(operations::list_operations))
        .routes(routes!(operations::get_operation))
        .routes(routes!(operations::operation_events))
        .routes(routes!(operations::cancel_operation))
        .routes(routes!(instances::list_app_instances))
        .routes(routes!(instances::list_instances))
        .routes(routes!(logs::app_logs))
        .routes(routes!(logs::instance_logs))
        .routes(routes!(routes::list_routes, routes::put_route, routes::delete_route))
        .routes(routes!(explain::explain))
        .routes(routes!(lanes::list_lanes))
        .routes(routes!(lanes::get_lane, lanes::put_lane, lanes::delete_lane))
        .routes(routes!(lanes::get_space, lanes::patch_space))
        .routes(routes!(tokens::list_tokens, tokens::create_token))
        .routes(routes!(tokens::delete_token))
        .routes(routes!(login::login))
        .routes(routes!(login::logout))
        .routes(routes!(login::put_password))
        .routes(routes!(orgs::list_orgs))
        .routes(routes!(orgs::get_org, orgs::put_org, orgs::delete_org))
        .routes(routes!(orgs::put_quota))
        .routes(routes!(orgs::list_spaces))
        .routes(routes!(orgs::put_space, orgs::delete_space))
        .routes(routes!(members::list_members))
        .routes(routes!(members::put_member, members::delete_member))
        .routes(routes!(users::list_users))
        .routes(routes!(users::put_user, users::delete_user))
        .routes(routes!(audit::list_audit))
        .routes(routes!(managers::list_managers))
        .routes(routes!(managers::get_owner))
        .routes(routes!(status::get_status))
        .routes(routes!(secrets::get_secrets))
        .routes(routes!(secrets::rotate_secrets))
        .routes(routes!(cells::list_cells))
        .routes(routes!(cells::get_cell, cells::patch_cell))
        .routes(routes!(status::list_gateways))
        .routes(routes!(status::get_version))
        .routes(routes!(status::whoami))
        .routes(routes!(status::healthz))
        .routes(routes!(status::readyz))
        .routes(routes!(apisix::get_kind, apisix::put_kind, apisix::post_kind))
        .routes(routes!(apisix::get_one, apisix::put_one, apisix::patch_one, apisix::delete_one))
        .routes(routes!(
            apisix::get_rest,
            apisix::put_rest,
            apisix::post_rest,
            apisix::patch_rest,
            apisix::delete_rest
        ))
        .routes(routes!(sources::get_source))
        .routes(routes!(sources::get_artifact, sources::head_artifact, sources::put_artifact))
}

fn info() -> Info {
    let mut info = Info::new("Towpath", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "Push an app, get a URL. Every call but those marked otherwise needs `Authorization: Bearer twp_…`. Errors are \
         `application/problem+json` with a stable `code`. Lists have `limit`, `cursor` and `next`. Changes take \
         `If-Match`, `Idempotency-Key`, and `?wait=revision` to answer only when all live gateways serve them."
            .into(),
    );
    let mut license = License::new("Apache-2.0");
    license.identifier = Some("Apache-2.0".into());
    info.license = Some(license);
    info
}

fn tags() -> Vec<Tag> {
    [
        ("apps", "Apps and their groups: the copies in each lane."),
        ("sources", "Uploads."),
        ("releases", "Pushes and rollbacks."),
        ("operations", "Long work, and what it tells."),
        ("instances", "Running copies and their logs."),
        ("routes", "Which address leads where."),
        ("lanes", "Lanes, and how they are chosen."),
        ("identity", "Orgs, spaces, users, and who may do what."),
        ("tokens", "Tokens for programs."),
        ("platform", "Managers, cells, gateways."),
        ("apisix", "Resources of the dynamic gateway, as APISIX's Admin API has them; `X-API-KEY` is a token of an operator."),
        ("internal", "Between cells and managers."),
    ]
    .into_iter()
    .map(|(name, description)| {
        let mut tag = Tag::new(name);
        tag.description = Some(description.into());
        tag
    })
    .collect()
}

/// Adds the security scheme, and to each operation the least role from the table.
fn with_roles(mut document: OpenApi) -> OpenApi {
    document.openapi = OpenApiVersion::Version31;
    let scheme = SecurityScheme::Http(
        HttpBuilder::new().scheme(HttpAuthScheme::Bearer).bearer_format("twp_…").build(),
    );
    document.components.get_or_insert_with(Components::new).add_security_scheme("token", scheme);
    document.security = Some(vec![SecurityRequirement::new("token", Vec::<String>::new())]);
    for (path, item) in &mut document.paths.paths {
        for (method, operation) in operations_of(item) {
            let Some(entry) = access::find(&method, path) else { continue };
            let note = format!("Least role: {}.", access::least(entry.needs));
            operation.description = Some(match operation.description.take() {
                Some(text) if !text.is_empty() => format!("{text}\n\n{note}"),
                _ => note,
            });
            if entry.needs == access::Permission::Public {
                operation.security = Some(vec![SecurityRequirement::default()]);
            }
        }
    }
    document
}

fn operations_of(item: &mut PathItem) -> Vec<(Method, &mut Operation)> {
    let PathItem { get, put, post, delete, patch, head, .. } = item;
    [
        (Method::GET, get),
        (Method::PUT, put),
        (Method::POST, post),
        (Method::DELETE, delete),
        (Method::PATCH, patch),
        (Method::HEAD, head),
    ]
    .into_iter()
    .filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
    .collect()
}

/// Puts right what the generator leaves: `null` as the default of something that may be absent, single-precision
/// numbers with their rounding errors, responses without a description, the content type of problems.
fn polish(value: &mut serde_json::Value) {
    use serde_json::Value;
    match value {
        Value::Object(map) => {
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            for (status, response) in
                map.get_mut("responses").and_then(Value::as_object_mut).into_iter().flatten()
            {
                polish_response(status, response);
            }
            map.values_mut().for_each(polish);
        }
        Value::Array(items) => items.iter_mut().for_each(polish),
        Value::Number(number) => {
            let rounded = number.as_f64().filter(|_| number.is_f64()).map(|n| (n * 1e6).round() / 1e6);
            if let Some(rounded) = rounded.and_then(serde_json::Number::from_f64) {
                *number = rounded;
            }
        }
        _ => {}
    }
}

fn polish_response(status: &str, response: &mut serde_json::Value) {
    let Some(response) = response.as_object_mut() else { return };
    if response.get("description").is_none_or(|text| text.as_str() == Some("")) {
        let reason = status.parse::<http::StatusCode>().ok().and_then(|status| status.canonical_reason());
        response.insert("description".into(), reason.unwrap_or("A problem").into());
    }
    let content = response.get_mut("content").and_then(serde_json::Value::as_object_mut);
    if let Some(content) = content.filter(|_| !status.starts_with('2'))
        && let Some(body) = content.remove("application/json")
    {
        content.insert("application/problem+json".into(), body);
    }
}

/// This API as a page for people.
#[utoipa::path(get, path = "/", tag = "platform", responses((status = 200, content_type = "text/html", body = String)))]
async fn page_root(State(state): State<ApiState>) -> Response {
    html(&state)
}

/// This API as a page for people.
#[utoipa::path(get, path = "/docs", tag = "platform", responses((status = 200, content_type = "text/html", body = String)))]
async fn page_docs(State(state): State<ApiState>) -> Response {
    html(&state)
}

/// This API as an OpenAPI 3.1 document.
#[utoipa::path(get, path = "/openapi.json", tag = "platform",
    responses((status = 200, content_type = "application/json", body = String)))]
async fn document(State(state): State<ApiState>) -> Response {
    let mut response = state.documents.json.clone().into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn html(state: &ApiState) -> Response {
    let mut response = Html(state.documents.html.clone()).into_response();
    let policy = HeaderValue::from_static(
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    );
    response.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}
