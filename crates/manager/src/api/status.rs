//! The platform: managers, gateways, version.

use super::ApiState;
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
use towpath_types::{ErrorCode, GatewayId, Kind, ManagerId, Place, Revision};

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
    /// Apps in all spaces.
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

/// Who the token belongs to.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct WhoamiView {
    name: String,
    role: &'static str,
}

/// Whether the manager can do its work.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct HealthView {
    ok: bool,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The platform at one glance.
#[utoipa::path(get, path = "/v1/status", tag = "platform",
    responses((status = 200, body = StatusView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_status(State(state): State<ApiState>, _query: NoQuery) -> Outcome<Response> {
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
    let cells = super::cells::all(core);
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
        gateways: core.soft.gateways().iter().map(GatewayView::from).collect(),
        apps: core.cache.list(Kind::App, None, None).len(),
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
pub(crate) async fn list_gateways(State(state): State<ApiState>, _query: NoQuery) -> Outcome<Response> {
    let items = state.core.soft.gateways().iter().map(GatewayView::from).collect();
    Ok(read_answer(false, &List { items, next: None, revision: state.core.cache.revision() }))
}

/// The manager's version.
#[utoipa::path(get, path = "/v1/version", tag = "platform",
    responses((status = 200, body = VersionView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_version() -> Response {
    Json(VersionView { version: VERSION, api: "v1" }).into_response()
}

/// The caller's token.
#[utoipa::path(get, path = "/v1/whoami", tag = "platform",
    responses((status = 200, body = WhoamiView), (status = "default", body = ProblemBody)))]
pub(crate) async fn whoami(caller: Caller) -> Response {
    Json(WhoamiView { role: role_text(caller.role), name: caller.name }).into_response()
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
