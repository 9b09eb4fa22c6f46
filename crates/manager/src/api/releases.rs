//! Releases: pushes make them, rollbacks return to them.

use super::ApiState;
use super::auth::Caller;
use super::body::{Checked, Doc};
use super::groups::no_group;
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Change, Listing, Params, Segments};
use super::reading::{List, page_query, read_answer};
use super::validate;
use super::variables::{self, EnvBody};
use super::view::{OperationView, ReleaseView};
use super::writing::Conditions;
use crate::blobs::BlobKind;
use crate::core::cache::CachedGroup;
use crate::core::keys::{self, GroupRef};
use crate::operations::{Failure, Input, NewOperation, Push};
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use towpath_types::health::HealthCheck;
use towpath_types::spec::{Limits, RouteSpec};
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppRef, Digest, Kind, LaneName, Millis};

/// What to push, and how it is to run.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PushBody {
    /// Digest of a source that was uploaded before.
    #[schema(required = true, value_type = String)]
    source: Option<Digest>,
    /// The lane; `base` when absent.
    lane: Option<LaneName>,
    /// Wanted instances; absent = as before, 1 for a new app.
    instances: Option<u32>,
    /// Limits; each that is there replaces the present one.
    limits: Limits,
    /// Variables to merge into the lane's; `null` removes one.
    env: Option<EnvBody>,
    /// Recipe; absent = detected.
    builder: Option<String>,
    /// Start command; absent = the recipe's.
    command: Option<String>,
    /// Health check; absent = the recipe's.
    health: Option<HealthCheck>,
    /// Protocol on the app's port.
    protocol: Protocol,
    /// From SIGTERM to SIGKILL; 10s when absent.
    grace: Option<Millis>,
    /// Further routes: `host` or `host/path`.
    #[schema(example = json!(["shop.example.com", "example.com/shop"]))]
    routes: Vec<String>,
    /// Free text, for example a commit.
    note: String,
    /// How gateways treat the app; absent = as before.
    upstream: Option<UpstreamSpec>,
}

impl Checked for PushBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        if self.source.is_none() {
            errors.push(FieldError::new("source", "is needed: the digest of an uploaded source"));
        }
        if let Some(instances) = self.instances {
            validate::count("instances", instances, errors);
        }
        validate::limits("limits", &self.limits, errors);
        if let Some(env) = &self.env {
            variables::check("env", &env.0, errors);
        }
        if let Some(builder) = &self.builder
            && (builder.is_empty() || !validate::is_token(builder))
        {
            errors.push(FieldError::new("builder", "is not the name of a builder"));
        }
        if let Some(command) = &self.command {
            validate::text("command", command, errors);
            if command.trim().is_empty() {
                errors.push(FieldError::new("command", "is empty; leave it out to take the recipe's"));
            }
        }
        if let Some(health) = &self.health {
            validate::health("health", health, errors);
        }
        if self.grace.is_some_and(|grace| grace > Millis::secs(3600)) {
            errors.push(FieldError::new("grace", "has to be at most 1h"));
        }
        validate::text("note", &self.note, errors);
        for (index, route) in self.routes.iter().enumerate() {
            let (host, path) = validate::split_route(route);
            validate::host(&format!("routes[{index}]"), &host, errors);
            validate::path(&format!("routes[{index}]"), &path, errors);
        }
        if let Some(upstream) = &self.upstream {
            validate::upstream("upstream", upstream, errors);
        }
    }
}

/// Where to go back.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RollbackBody {
    /// The lane; `base` when absent.
    lane: Option<LaneName>,
    /// A release, by its digest or at least six of its first hex digits; absent = the one that ran well before.
    release: Option<String>,
}

impl Checked for RollbackBody {}

/// The kept releases of an app, newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/releases", tag = "releases", params(("app" = String, Path), Listing),
    responses((status = 200, body = List<ReleaseView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_releases(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<Listing>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    state.read_existing(&keys::app_key(&app), format!("app {}", app.app)).await?;
    let mut page = page_query(Kind::Release, Some(&query.space()), query.limit, query.cursor.as_deref())?;
    page.name_prefix = Some(format!("{}:", app.app));
    let page = state.read_list(page).await?;
    let groups = state.core.cache.groups_of(&app);
    let mut items: Vec<ReleaseView> = page
        .records
        .iter()
        .filter_map(|record| {
            let running = groups
                .iter()
                .filter(|(_, group)| record.key == keys::release_key(&app, runs(group)))
                .map(|(name, _)| name.lane.clone())
                .collect();
            ReleaseView::new(record, running, &caller)
        })
        .collect();
    items.sort_by_key(|release| std::cmp::Reverse(release.used_ms.max(release.created_ms)));
    Ok(read_answer(page.stale, &List { items, next: page.next, revision: page.revision }))
}

/// The release that requests to a group get now; while none does alone, the wanted one.
fn runs(group: &CachedGroup) -> Digest {
    group.status.serving.map_or(group.spec.release, |version| version.release)
}

/// Pushes: builds an uploaded source, unless that was done before, and rolls it out.
#[utoipa::path(post, path = "/v1/apps/{app}/releases", tag = "releases", request_body(content = PushBody, example = json!({"source": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "lane": "base", "instances": 2, "env": {"LOG": "debug"}})),
    params(("app" = String, Path), Change),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn push(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(body): Doc<PushBody>,
) -> Outcome<Response> {
    if let Some(before) = state.accepted_before(&conditions, query.wait, query.wait_timeout).await? {
        return Ok(before);
    }
    let app = query.app(&app)?;
    state.space_exists(&query.space()).await?;
    let source = body.source.ok_or_else(|| Problem::field("source", "is needed"))?;
    if state.blobs.find(BlobKind::Source, &source).await.is_none() {
        let missing =
            FieldError::new("source", "was not uploaded, or not used for long; PUT it to /v1/sources first");
        return Err(Problem { errors: vec![missing], ..Problem::not_found(format!("source {source}")) });
    }
    let routes: Vec<(String, String)> =
        body.routes.iter().map(|route| validate::split_route(route)).collect();
    state.routes_are_free(&caller, &app, &routes).await?;
    let lane = body.lane.unwrap_or_else(LaneName::base);
    let before = state.core.cache.group(&GroupRef::new(app.clone(), lane.clone()));
    let env = body.env.unwrap_or_default();
    let env = state.given(&app, before.as_ref().map(|group| &group.spec.env), env)?;
    let push = Push {
        source: Some(source),
        instances: body.instances,
        limits: body.limits,
        env,
        builder: body.builder,
        command: body.command,
        health: body.health,
        protocol: body.protocol,
        grace: body.grace,
        routes,
        note: body.note,
        upstream: body.upstream,
    };
    let new = NewOperation { app, lane, input: Input::Push(Box::new(push)), expected: None, by: caller.name };
    state.accept(new, &conditions, query.wait, query.wait_timeout).await
}

/// Returns to an earlier release, rolling.
#[utoipa::path(post, path = "/v1/apps/{app}/rollback", tag = "releases", request_body(content = RollbackBody, example = json!({"lane": "base"})),
    params(("app" = String, Path), Change),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn rollback(
    State(state): State<ApiState>,
    caller: Caller,
    Segments(app): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(body): Doc<RollbackBody>,
) -> Outcome<Response> {
    if let Some(before) = state.accepted_before(&conditions, query.wait, query.wait_timeout).await? {
        return Ok(before);
    }
    let app = query.app(&app)?;
    let lane = body.lane.unwrap_or_else(LaneName::base);
    let group = GroupRef::new(app, lane);
    if state.core.store.get(&group.key()).await?.is_none() {
        return Err(no_group(&group.app, &group.lane));
    }
    let release = state.operations.choose_release(&group, body.release.as_deref()).await?;
    let new = NewOperation {
        app: group.app,
        lane: group.lane,
        input: Input::Rollback { release },
        expected: None,
        by: caller.name,
    };
    state.accept(new, &conditions, query.wait, query.wait_timeout).await
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        Problem::new(failure.code, failure.message)
    }
}

impl ApiState {
    /// None of the routes leads to another app.
    async fn routes_are_free(
        &self,
        caller: &Caller,
        app: &AppRef,
        routes: &[(String, String)],
    ) -> Outcome<()> {
        for (index, (host, path)) in routes.iter().enumerate() {
            let held = self.core.store.get(&keys::route_key(host, path)).await?;
            let holder = held.and_then(|record| record.spec::<RouteSpec>().ok()).map(|route| route.app);
            if let Some(holder) = holder.filter(|holder| holder != app) {
                let holder = super::routes::holder_text(caller, &holder);
                let message = format!("{host}{path} belongs to {holder}");
                let error = FieldError::new(format!("routes[{index}]"), message.clone());
                return Err(Problem { errors: vec![error], ..Problem::conflict(message) });
            }
        }
        Ok(())
    }
}
