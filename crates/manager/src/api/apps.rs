//! Apps, and the environment of all their instances.

use super::ApiState;
use super::auth::Caller;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Change, InSpace, Listing, Params, Segments, Wait, in_space};
use super::quota::Ask;
use super::reading::{List, page_query, read_answer, resource, tagged};
use super::validate;
use super::variables::{EnvBody, Secrets, replaced, shown};
use super::view::{AppView, OperationView, sees_env};
use super::writing::{Conditions, first, merge, written};
use crate::core::keys::{self, GroupRef};
use crate::operations::{GroupChange, Input, NewOperation};
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use towpath_store::{Expect, Write};
use towpath_types::spec::{AppSpec, GroupSpec};
use towpath_types::upstream::UpstreamSpec;
use towpath_types::{AppRef, Kind, LaneName, Millis};

/// An app to make or replace.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AppBody {
    /// Environment of every instance.
    env: BTreeMap<String, String>,
    /// How gateways treat it.
    upstream: UpstreamSpec,
}

impl Checked for AppBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        let env = self.env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
        validate::env("env", &env, errors);
        validate::upstream("upstream", &self.upstream, errors);
    }
}

/// Any JSON object; checked after it was merged.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
pub(crate) struct Patch(pub(crate) Value);

impl Checked for Patch {
    fn check(&self, errors: &mut Vec<FieldError>) {
        if !self.0.is_object() {
            errors.push(FieldError::new(".", "expected an object"));
        }
    }
}

in_space! {
    /// Which space, and which lane.
    EnvQuery {
        /// The lane; absent = what all lanes of the app share.
        #[param(value_type = Option<String>)]
        lane: Option<LaneName>,
        /// `revision` = answer only when all live gateways serve the change.
        #[param(inline)]
        wait: Option<Wait>,
        /// Longest wait for that; 10s when absent.
        #[param(value_type = Option<String>, example = "10s")]
        wait_timeout: Option<Millis>,
    }
}

/// An environment.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct EnvView {
    env: BTreeMap<String, String>,
    /// Secret variables, without their values.
    #[serde(skip_serializing_if = "Secrets::is_empty")]
    #[schema(value_type = BTreeMap<String, super::variables::SecretView>)]
    secrets: Secrets,
    /// The lane; absent = what all lanes of the app share.
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<LaneName>,
}

fn no_app(app: &AppRef) -> String {
    format!("app {} in {}", app.app, app.space_ref())
}

/// All apps of a space.
#[utoipa::path(get, path = "/v1/apps", tag = "apps", params(Listing),
    responses((status = 200, body = List<AppView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_apps(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<Listing>,
) -> Outcome<Response> {
    let page = page_query(Kind::App, Some(&query.space()), query.limit, query.cursor.as_deref())?;
    let page = state.read_list(page).await?;
    let items = state.app_views(&page.records, &caller);
    Ok(read_answer(page.stale, &List { items, next: page.next, revision: page.revision }))
}

/// One app.
#[utoipa::path(get, path = "/v1/apps/{app}", tag = "apps", params(("app" = String, Path), InSpace),
    responses((status = 200, body = AppView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_app(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<InSpace>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    let read = state.read_existing(&keys::app_key(&app), no_app(&app)).await?;
    let view = state.app_view(&read.value, &caller)?;
    Ok(tagged(read.value.revision, read.stale, &view))
}

/// Makes an app, or replaces its settings. Its automatic route comes with it.
#[utoipa::path(put, path = "/v1/apps/{app}", tag = "apps", params(("app" = String, Path), Change), request_body(content = AppBody, example = json!({"env": {"LOG": "debug"}})),
    responses((status = 200, body = AppView), (status = 201, body = AppView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_app(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(body): Doc<AppBody>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    state.space_exists(&query.space()).await?;
    let route = state.automatic_route(&app).await?;
    let mut created = false;
    // It comes with a new app alone; one that was removed later stays away.
    let is_new = state.core.store.get(&keys::app_key(&app)).await?.is_none();
    let ask = route
        .as_ref()
        .filter(|_| is_new)
        .map(|route| Ask::Route(app.org.clone(), keys::route_key(&route.host, &route.path).name));
    let commit = state
        .change_within(&keys::app_key(&app), &conditions, ask.as_ref(), |present, expect| {
            created = present.is_none();
            let before = present.and_then(|present| present.spec::<AppSpec>().ok());
            let env = replaced(before.as_ref().map(|spec| &spec.env), body.env.clone())?;
            state.has_room(before.as_ref().map(|spec| &spec.env), &env)?;
            let spec = AppSpec { env, upstream: body.upstream.clone() };
            let mut writes = vec![state.put(keys::app_key(&app), expect, &spec)];
            if created && !is_new {
                return Err(Problem::conflict("the app was deleted at the same time; try again"));
            }
            if created {
                writes.push(state.join_space(&app.space_ref()));
            }
            if let (true, Some(route)) = (created, &route) {
                writes.push(state.put(keys::route_key(&route.host, &route.path), Expect::Absent, route));
            }
            Ok(writes)
        })
        .await?;
    let record = first(&commit)?;
    let response = written(conditions.made(created), record.revision, &state.app_view(record, &caller)?);
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

/// Changes some of an app's settings: a JSON merge patch of `{"env", "upstream"}`.
#[utoipa::path(patch, path = "/v1/apps/{app}", tag = "apps", params(("app" = String, Path), Change), request_body(content = Patch, example = json!({"upstream": {"balancer": "ewma"}})),
    responses((status = 200, body = AppView), (status = "default", body = ProblemBody)))]
pub(crate) async fn patch_app(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(patch): Doc<Patch>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    let commit = state
        .change(&keys::app_key(&app), &conditions, |present, expect| {
            let present = present.ok_or_else(|| Problem::not_found(no_app(&app)))?;
            let mut before: AppSpec = present.spec().map_err(|_| super::view::unreadable(present))?;
            let removed =
                |name: &String| patch.0.get("env").and_then(|env| env.get(name)) == Some(&Value::Null);
            let whole = before.env.clone();
            before.env.retain(|name, value| value.plain().is_some() || !removed(name));
            let body: AppBody = merged(&plain_document(&before), &patch.0)?;
            let env = replaced(Some(&before.env), body.env)?;
            state.has_room(Some(&whole), &env)?;
            Ok(vec![state.put(present.key.clone(), expect, &AppSpec { env, upstream: body.upstream })])
        })
        .await?;
    let record = first(&commit)?;
    let response = written(false, record.revision, &state.app_view(record, &caller)?);
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

/// What a merge patch of an app is applied to: secrets are not in it.
fn plain_document(spec: &AppSpec) -> Value {
    serde_json::json!({"env": shown(&spec.env).0, "upstream": spec.upstream})
}

/// The document after a merge patch, checked as a whole.
pub(crate) fn merged<T: Checked>(present: &Value, patch: &Value) -> Outcome<T> {
    let mut merged = present.clone();
    merge(&mut merged, patch);
    super::body::check_value(merged)
}

/// Deletes an app with its routes, groups and releases. Instances drain first.
#[utoipa::path(delete, path = "/v1/apps/{app}", tag = "apps", params(("app" = String, Path), Change),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_app(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
) -> Outcome<Response> {
    if let Some(before) = state.accepted_before(&conditions, query.wait, query.wait_timeout).await? {
        return Ok(before);
    }
    let app = query.app(&app)?;
    let present =
        state.core.store.get(&keys::app_key(&app)).await?.ok_or_else(|| Problem::not_found(no_app(&app)))?;
    conditions.check(Some(&present))?;
    let expected = conditions.expected(&present);
    let new = NewOperation { app, lane: LaneName::base(), input: Input::Delete, expected, by: caller.name };
    state.accept(new, &conditions, query.wait, query.wait_timeout).await
}

/// The environment of an app, or of one of its lanes (without the app's).
#[utoipa::path(get, path = "/v1/apps/{app}/env", tag = "apps", params(("app" = String, Path), EnvQuery),
    responses((status = 200, body = EnvView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_env(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<EnvQuery>,
    headers: HeaderMap,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    if !sees_env(&caller) {
        return Err(Problem::new(towpath_types::ErrorCode::Forbidden, "environments may hold secrets"));
    }
    let (read, env) = match &query.lane {
        None => {
            let read = state.read_existing(&keys::app_key(&app), no_app(&app)).await?;
            let env = read.value.spec::<AppSpec>().map(|spec| spec.env);
            (read, env)
        }
        Some(lane) => {
            let group = GroupRef::new(app.clone(), lane.clone());
            let read =
                state.read_existing(&group.key(), format!("group of app {} in lane {lane}", app.app)).await?;
            let env = read.value.spec::<GroupSpec>().map(|spec| spec.env);
            (read, env)
        }
    };
    let env = env.map_err(|_| super::view::unreadable(&read.value))?;
    let (env, secrets) = shown(&env);
    Ok(resource(&headers, read.value.revision, read.stale, &EnvView { env, secrets, lane: query.lane }))
}

/// Sets and removes variables of an app, or of one of its lanes; what runs is replaced, rolling.
#[utoipa::path(patch, path = "/v1/apps/{app}/env", tag = "apps", params(("app" = String, Path), EnvQuery), request_body(content = EnvBody, example = json!({"LEVEL": "debug", "TOKEN": {"secret": "…"}, "OLD": null})),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn patch_env(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<EnvQuery>,
    conditions: Conditions,
    Doc(body): Doc<EnvBody>,
) -> Outcome<Response> {
    if let Some(before) = state.accepted_before(&conditions, query.wait, query.wait_timeout).await? {
        return Ok(before);
    }
    let app = query.app(&app)?;
    let group = query.lane.map(|lane| GroupRef::new(app.clone(), lane));
    let key = group.as_ref().map_or_else(|| keys::app_key(&app), GroupRef::key);
    let present = state.core.store.get(&key).await?.ok_or_else(|| Problem::not_found(no_app(&app)))?;
    let unreadable = |_| super::view::unreadable(&present);
    let (lane, input) = match group {
        None => {
            let before: AppSpec = present.spec().map_err(unreadable)?;
            (LaneName::base(), Input::Env { env: state.given(&app, Some(&before.env), body)? })
        }
        Some(group) => {
            let before: GroupSpec = present.spec().map_err(unreadable)?;
            let env = state.given(&app, Some(&before.env), body)?;
            (group.lane, Input::Update(GroupChange { env, ..GroupChange::default() }))
        }
    };
    conditions.check(Some(&present))?;
    let expected = conditions.expected(&present);
    let new = NewOperation { app, lane, input, expected, by: caller.name };
    state.accept(new, &conditions, query.wait, query.wait_timeout).await
}

impl ApiState {
    /// The write of a spec.
    pub(crate) fn put<S: Serialize>(
        &self,
        key: towpath_types::resource::Key,
        expect: Expect,
        spec: &S,
    ) -> Write {
        Write::Put {
            key,
            id: self.core.mint_record_id(),
            expect,
            spec: serde_json::to_value(spec).ok(),
            status: None,
        }
    }
}
