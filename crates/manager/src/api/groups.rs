//! Groups: the copies of an app in a lane.

use super::ApiState;
use super::auth::Caller;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Change, InSpace, Params, Segments, name};
use super::reading::{List, read_answer};
use super::validate;
use super::variables::{self, EnvBody};
use super::view::{GroupView, OperationView};
use super::writing::Conditions;
use crate::core::keys::{self, GroupRef};
use crate::operations::{GroupChange, Input, NewOperation, RouteIndex};
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Deserializer};
use towpath_types::AppRef;
use towpath_types::health::HealthCheck;
use towpath_types::spec::Limits;

/// Changes of a group; what is absent stays.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct GroupBody {
    /// Wanted instances.
    count: Option<u32>,
    /// No instances at all, whatever `count` says.
    stopped: Option<bool>,
    /// Variables to set; `null` removes one.
    env: Option<EnvBody>,
    /// Limits; each that is there replaces the present one.
    limits: Limits,
    /// Health check; `null` = back to the release's own.
    #[serde(deserialize_with = "present")]
    #[schema(value_type = Option<HealthCheck>)]
    health: Option<Option<HealthCheck>>,
}

/// Tells `null` from absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<HealthCheck>>, D::Error> {
    Option::<HealthCheck>::deserialize(deserializer).map(Some)
}

impl Checked for GroupBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        if let Some(count) = self.count {
            validate::count("count", count, errors);
        }
        if let Some(env) = &self.env {
            variables::check("env", &env.0, errors);
        }
        validate::limits("limits", &self.limits, errors);
        if let Some(Some(health)) = &self.health {
            validate::health("health", health, errors);
        }
    }
}

/// The groups of an app.
#[utoipa::path(get, path = "/v1/apps/{app}/groups", tag = "apps", params(("app" = String, Path), InSpace),
    responses((status = 200, body = List<GroupView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_groups(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<InSpace>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    let read = state.read_existing(&keys::app_key(&app), format!("app {}", app.app)).await?;
    let routes = RouteIndex::of(&state.core, Some(&app));
    let items = state.group_views(&app, &routes, &caller);
    Ok(read_answer(read.stale, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// Scales a group, or changes its settings.
#[utoipa::path(patch, path = "/v1/apps/{app}/groups/{lane}", tag = "apps", request_body(content = GroupBody, example = json!({"count": 3, "limits": {"memory": "256M"}})),
    params(("app" = String, Path), ("lane" = String, Path), Change),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn patch_group(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((app, lane)): Segments<(String, String)>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(body): Doc<GroupBody>,
) -> Outcome<Response> {
    let name = query.app(&app)?;
    let lane_name = self::name("lane", &lane)?;
    let before = state.core.cache.group(&GroupRef::new(name.clone(), lane_name));
    let env = body.env.unwrap_or_default();
    let change = GroupChange {
        count: body.count,
        stopped: body.stopped,
        env: state.given(&name, before.as_ref().map(|group| &group.spec.env), env)?,
        limits: body.limits,
        health: body.health,
    };
    let settings = !change.env.is_empty() || change.limits != Limits::default() || change.health.is_some();
    let input = if settings { Input::Update(change) } else { Input::Scale(change) };
    state.begin(input, &app, &lane, &query, caller, &conditions).await
}

/// Replaces every instance of a group, rolling.
#[utoipa::path(post, path = "/v1/apps/{app}/groups/{lane}/restart", tag = "apps",
    params(("app" = String, Path), ("lane" = String, Path), Change),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn restart_group(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((app, lane)): Segments<(String, String)>,
    Params(query): Params<Change>,
    conditions: Conditions,
) -> Outcome<Response> {
    state.begin(Input::Restart, &app, &lane, &query, caller, &conditions).await
}

/// Removes an app from a lane. Instances drain first.
#[utoipa::path(delete, path = "/v1/apps/{app}/groups/{lane}", tag = "apps",
    params(("app" = String, Path), ("lane" = String, Path), Change),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_group(
    State(state): State<ApiState>,
    caller: Caller,
    Segments((app, lane)): Segments<(String, String)>,
    Params(query): Params<Change>,
    conditions: Conditions,
) -> Outcome<Response> {
    state.begin(Input::DeleteGroup, &app, &lane, &query, caller, &conditions).await
}

impl ApiState {
    /// Accepts an operation on a group that is there and fits the request's conditions.
    async fn begin(
        &self,
        input: Input,
        app: &str,
        lane: &str,
        query: &Change,
        caller: Caller,
        conditions: &Conditions,
    ) -> Outcome<Response> {
        if let Some(before) = self.accepted_before(conditions, query.wait, query.wait_timeout).await? {
            return Ok(before);
        }
        let group = GroupRef::new(query.app(app)?, name("lane", lane)?);
        let present = self.core.store.get(&group.key()).await?;
        let present = present.ok_or_else(|| no_group(&group.app, &group.lane))?;
        conditions.check(Some(&present))?;
        let expected = conditions.expected(&present);
        let new = NewOperation { app: group.app, lane: group.lane, input, expected, by: caller.name };
        self.accept(new, conditions, query.wait, query.wait_timeout).await
    }
}

/// The problem that an app has nothing in a lane.
pub(crate) fn no_group(app: &AppRef, lane: &towpath_types::LaneName) -> Problem {
    Problem::not_found(format!("app {} in lane {lane} of {}", app.app, app.space_ref()))
}
