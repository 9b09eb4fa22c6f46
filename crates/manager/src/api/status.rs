//! The platform: managers, gateways, version.

use super::ApiState;
use super::access::{Grant, Reach};
use super::auth::{Caller, role_text};
use super::cells::CellView;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::NoQuery;
use super::reading::{List, read_answer};
use super::store_probe::{StoreState, StoreView};
use crate::core::soft::HeardGateway;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use towpath_bus::BusState;
use towpath_types::identity::Actor;
use towpath_types::{ErrorCode, GatewayId, Kind, ManagerId, OrgName, Place, Record, Revision, SpaceName};

/// A gateway.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Gateway)]
pub(crate) struct GatewayView {
    id: GatewayId,
    place: Place,
    version: String,
    listeners: Vec<String>,
    /// It serves at least this revision.
    revision: Revision,
    /// Items that it could not use, and why.
    refused: BTreeMap<String, String>,
    /// Time since it was heard.
    heard_ms: u64,
    /// Not heard for too long, or leaving.
    lost: bool,
}

impl From<&HeardGateway> for GatewayView {
    fn from(gateway: &HeardGateway) -> Self {
        let report = &gateway.report;
        Self {
            id: report.gateway,
            place: report.place.clone(),
            version: report.version.clone(),
            listeners: report.listeners.clone(),
            revision: report.revision,
            refused: report.refused.clone(),
            heard_ms: gateway.silent_ms,
            lost: gateway.lost,
        }
    }
}

/// A manager.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = Manager)]
pub(crate) struct ManagerView {
    id: ManagerId,
    address: String,
    version: String,
    started_ms: u64,
    silent_ms: u64,
    evicted: bool,
    /// The one that answers.
    this: bool,
}

/// The platform at one glance.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(crate) struct StatusView {
    version: &'static str,
    /// The manager that answers.
    manager: ManagerId,
    /// Its API.
    api: String,
    gateway_url: String,
    domain: String,
    /// Of the store, as this manager knows it.
    revision: Revision,
    store: StoreView,
    /// `up` or `down`.
    bus: &'static str,
    managers: Vec<ManagerView>,
    gateways: Vec<GatewayView>,
    cells: Vec<CellView>,
    /// Apps in all spaces that you may know of.
    apps: usize,
    /// Instances of all apps.
    instances: usize,
    /// Those that serve.
    ready: usize,
}

/// The version.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct VersionView {
    version: &'static str,
    api: &'static str,
}

/// Who is asking.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct WhoamiView {
    name: String,
    /// `user` or `token`.
    kind: &'static str,
    /// `operator`, `cell`, or that of a token; of a user: `member`.
    role: &'static str,
    /// Roles by org; operators have every org.
    orgs: Vec<RoleView>,
    /// When the session or token ends, milliseconds since 1970; absent = never.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
}

/// A role in an org.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct RoleView {
    org: OrgName,
    /// In this space alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    space: Option<SpaceName>,
    role: &'static str,
}

/// Whether the manager can do its work.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HealthView {
    ok: bool,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The gateways. What they refuse has names of apps in it, which are operators' alone to see.
fn gateways_seen(state: &ApiState, caller: &Caller) -> Vec<GatewayView> {
    let seen = |gateway: &HeardGateway| {
        let view = GatewayView::from(gateway);
        if caller.is_operator() { view } else { GatewayView { refused: BTreeMap::new(), ..view } }
    };
    state.core.soft.gateways().iter().map(seen).collect()
}

fn sees(caller: &Caller, app: &Record) -> bool {
    super::view::app_of(&app.key).is_some_and(|app| caller.reach.sees(&app.space_ref()))
}

/// The platform at one glance.
#[utoipa::path(get, path = "/v1/status", tag = "platform",
    responses((status = 200, body = StatusView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_status(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
) -> Outcome<Response> {
    let core = &state.core;
    let found = state.probe.look(core).await;
    let managers = found
        .managers
        .into_iter()
        .map(|row| ManagerView {
            this: row.manager == core.manager,
            id: row.manager,
            address: row.address,
            version: row.version,
            started_ms: row.started_ms,
            silent_ms: row.silent_ms,
            evicted: row.evicted,
        })
        .collect();
    let cells = super::cells::seen(core, &caller);
    let live = || cells.iter().filter(|cell| !cell.lost);
    let view = StatusView {
        version: VERSION,
        manager: core.manager,
        api: state.url.clone(),
        gateway_url: core.settings.gateway_url.clone(),
        domain: core.settings.domain.clone(),
        revision: core.cache.revision(),
        bus: if *core.bus.state().borrow() == BusState::Up { "up" } else { "down" },
        managers,
        gateways: gateways_seen(&state, &caller),
        apps: core.cache.list(Kind::App, None, None).iter().filter(|app| sees(&caller, app)).count(),
        instances: live().map(|cell| cell.counts().0).sum(),
        ready: live().map(|cell| cell.counts().1).sum(),
        cells,
        store: found.store,
    };
    Ok(read_answer(view.store.state == StoreState::Down, &view))
}

/// All gateways that were heard.
#[utoipa::path(get, path = "/v1/gateways", tag = "platform",
    responses((status = 200, body = List<GatewayView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_gateways(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
) -> Outcome<Response> {
    let items = gateways_seen(&state, &caller);
    Ok(read_answer(false, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// The manager's version.
#[utoipa::path(get, path = "/v1/version", tag = "platform",
    responses((status = 200, body = VersionView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_version() -> Response {
    Json(VersionView { version: VERSION, api: "v1" }).into_response()
}

/// Who is asking, and what they may do.
#[utoipa::path(get, path = "/v1/whoami", tag = "platform",
    responses((status = 200, body = WhoamiView), (status = "default", body = ProblemBody)))]
pub(crate) async fn whoami(caller: Caller) -> Response {
    let orgs = match &caller.reach {
        Reach::Orgs(grants) => grants.as_slice(),
        Reach::Operator | Reach::Cell => &[],
    };
    let role = |grant: &Grant| RoleView {
        org: grant.org.clone(),
        space: grant.space.clone(),
        role: role_text(grant.role),
    };
    let is_user = matches!(caller.actor, Actor::User { .. });
    Json(WhoamiView {
        kind: if is_user { "user" } else { "token" },
        role: match (&caller.reach, orgs) {
            (Reach::Operator, _) => "operator",
            (Reach::Cell, _) => "cell",
            (Reach::Orgs(_), [grant]) if !is_user => role_text(grant.role),
            (Reach::Orgs(_), _) => "member",
        },
        orgs: orgs.iter().map(role).collect(),
        expires_ms: caller.expires_ms,
        name: caller.name,
    })
    .into_response()
}

/// Whether the manager lives: 200, or 503 when a part of it broke, and it has to be started again. A store that is gone is no
/// reason for that; see readyz. No token needed.
#[utoipa::path(get, path = "/v1/healthz", tag = "platform", security(()),
    responses((status = 200, body = HealthView), (status = 503, body = ProblemBody)))]
pub(crate) async fn healthz(State(state): State<ApiState>) -> Outcome<Response> {
    alive(&state)?;
    Ok(Json(HealthView { ok: true }).into_response())
}

/// Whether the manager can take changes: 200, or 503 with why it cannot. No token needed.
#[utoipa::path(get, path = "/v1/readyz", tag = "platform", security(()),
    responses((status = 200, body = HealthView), (status = 503, body = ProblemBody)))]
pub(crate) async fn readyz(State(state): State<ApiState>) -> Outcome<Response> {
    alive(&state)?;
    let found = state.probe.look(&state.core).await;
    if !found.store.ok {
        return Err(
            Problem::new(ErrorCode::StoreUnavailable, found.store.why).retry_after(Duration::from_secs(2))
        );
    }
    Ok(Json(HealthView { ok: true }).into_response())
}

fn alive(state: &ApiState) -> Outcome<()> {
    match state.core.vitals.failure() {
        Some(what) => Err(Problem::new(
            ErrorCode::ManagerBroken,
            format!("a part of this manager broke ({what}); it has to be started again"),
        )),
        None => Ok(()),
    }
}
