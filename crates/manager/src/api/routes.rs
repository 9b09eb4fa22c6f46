//! Routes: which host and path leads to which app.

use super::ApiState;
use super::auth::Caller;
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Params, Wait, in_space};
use super::quota::Ask;
use super::reading::{List, page_query, read_answer};
use super::validate;
use super::view::{RouteView, unreadable};
use super::writing::{Conditions, first, written};
use crate::core::keys;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use towpath_store::{Expect, Write};
use towpath_types::lane::EntryRule;
use towpath_types::spec::{RouteSpec, SpaceSpec};
use towpath_types::{AppName, AppRef, Kind, Millis, SpaceRef};

/// A route to make or replace.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct RouteBody {
    /// `shop.example.com`, or `*.example.com` for exactly one further label.
    #[schema(required = true, value_type = String)]
    host: Option<String>,
    /// Path prefix, matched by whole segments; `/` when absent.
    path: Option<String>,
    /// The app, in the request's space.
    #[schema(required = true, value_type = String)]
    app: Option<AppName>,
    /// Cut `path` off before the request is sent on.
    strip_path: bool,
    /// Gray releases: the first rule that holds decides the lane of an untagged request.
    entry: Vec<EntryRule>,
}

impl Checked for RouteBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        match &self.host {
            Some(host) => validate::host("host", &host.to_ascii_lowercase(), errors),
            None => errors.push(FieldError::new("host", "is needed")),
        }
        if let Some(path) = &self.path {
            validate::path("path", path, errors);
        }
        if self.app.is_none() {
            errors.push(FieldError::new("app", "is needed"));
        }
        validate::entry("entry", &self.entry, errors);
    }
}

in_space! {
    /// Which routes.
    RouteQuery {
        /// To this app alone.
        #[param(value_type = Option<String>)]
        app: Option<AppName>,
        /// Of every space that you may know of.
        all: bool,
        /// Most items in the answer, 1 to 1000; 100 when absent.
        limit: Option<usize>,
        /// `next` of the page before.
        cursor: Option<String>,
    }
}

in_space! {
    /// Which route.
    OneRoute {
        /// Its host.
        #[param(required = true)]
        host: String,
        /// Its path; `/` when absent.
        path: Option<String>,
        /// `revision` = answer only when all live gateways serve the change.
        #[param(inline)]
        wait: Option<Wait>,
        /// Longest wait for that; 10s when absent.
        #[param(value_type = Option<String>, example = "10s")]
        wait_timeout: Option<Millis>,
    }
}

/// Routes, by host and path.
#[utoipa::path(get, path = "/v1/routes", tag = "routes", params(RouteQuery),
    responses((status = 200, body = List<RouteView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_routes(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<RouteQuery>,
) -> Outcome<Response> {
    let mut wanted = page_query(Kind::Route, None, query.limit, query.cursor.as_deref())?;
    let limit = wanted.limit;
    let (space, mut items, mut next) = (query.space(), Vec::new(), None);
    let ours = |route: &RouteView| {
        (route.app.space_ref() == space || (query.all && caller.reach.sees(&route.app.space_ref())))
            && query.app.as_ref().is_none_or(|app| route.app.app == *app)
    };
    // Routes are in no space, so pages are read on until enough of this one are found.
    loop {
        wanted.limit = 1000;
        let page = state.read_list(wanted.clone()).await?;
        let last = page.records.last().map(|record| record.key.clone());
        for record in &page.records {
            let Some(view) = RouteView::new(&state.core, record).filter(ours) else { continue };
            if items.len() == limit {
                next = items
                    .last()
                    .map(|view: &RouteView| super::reading::cursor(&keys::route_key(&view.host, &view.path)));
                break;
            }
            items.push(view);
        }
        match (page.next.is_some() && next.is_none(), last) {
            (true, Some(last)) => wanted.after = Some(last),
            _ => return Ok(read_answer(page.stale, &List { items, next, revision: page.revision })),
        }
    }
}

/// Makes or replaces the route of a host and path.
#[utoipa::path(put, path = "/v1/routes", tag = "routes", params(super::query::Change), request_body(content = RouteBody, example = json!({"host": "shop.example.com", "path": "/", "app": "shop"})),
    responses((status = 200, body = RouteView), (status = 201, body = RouteView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_route(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<super::query::Change>,
    conditions: Conditions,
    Doc(body): Doc<RouteBody>,
) -> Outcome<Response> {
    let (Some(host), Some(app)) = (body.host, body.app) else {
        return Err(Problem::field("host", "is needed"));
    };
    let (host, path) = (host.to_ascii_lowercase(), body.path.unwrap_or_else(|| "/".into()));
    let app = AppRef::new(&query.space(), app);
    if state.core.store.get(&keys::app_key(&app)).await?.is_none() {
        return Err(Problem::field("app", format!("there is no app {} in {}", app.app, query.space())));
    }
    let key = keys::route_key(&host, &path);
    let mut created = false;
    let ask = Ask::Route(app.org.clone(), key.name.clone());
    let commit = state
        .change_within(&key, &conditions, Some(&ask), |present, expect| {
            created = present.is_none();
            let held = present.and_then(|record| record.spec::<RouteSpec>().ok());
            if let Some(holder) = held.as_ref().map(|route| &route.app).filter(|holder| **holder != app) {
                let holder = holder_text(&caller, holder);
                return Err(Problem::conflict(format!("{host}{path} belongs to {holder}")));
            }
            let spec = RouteSpec {
                host: host.clone(),
                path: path.clone(),
                app: app.clone(),
                strip_path: body.strip_path,
                entry: body.entry.clone(),
                automatic: held.is_some_and(|route| route.automatic),
            };
            // The app must still be there when this is committed.
            let there = Write::Put {
                key: keys::app_key(&app),
                id: state.core.mint_record_id(),
                expect: Expect::Present,
                spec: None,
                status: None,
            };
            Ok(vec![state.put(key.clone(), expect, &spec), there])
        })
        .await?;
    let record = first(&commit)?;
    let view = RouteView::new(&state.core, record).ok_or_else(|| unreadable(record))?;
    let response = written(conditions.made(created), record.revision, &view);
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

/// Removes the route of a host and path.
#[utoipa::path(delete, path = "/v1/routes", tag = "routes", params(OneRoute),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_route(
    State(state): State<ApiState>,
    Params(query): Params<OneRoute>,
    conditions: Conditions,
) -> Outcome<Response> {
    if query.host.is_empty() {
        return Err(Problem::field("host", "is needed"));
    }
    let path = query.path.clone().unwrap_or_else(|| "/".into());
    let key = keys::route_key(&query.host.to_ascii_lowercase(), &path);
    let commit = state
        .change(&key, &conditions, |present, expect| {
            let in_space = |route: RouteSpec| route.app.space_ref() == query.space();
            match present {
                Some(record) if record.spec().is_ok_and(in_space) => {
                    Ok(vec![Write::Delete { key: key.clone(), expect }])
                }
                _ => Err(Problem::not_found(format!("route {}{path} in {}", query.host, query.space()))),
            }
        })
        .await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

/// Who holds a route, as far as the caller may know it.
pub(crate) fn holder_text(caller: &Caller, holder: &AppRef) -> String {
    match caller.reach.sees(&holder.space_ref()) {
        true => format!("app {holder}; delete that route first"),
        false => "somebody else".to_owned(),
    }
}

impl ApiState {
    /// The space has to be there.
    pub(crate) async fn space_exists(&self, space: &SpaceRef) -> Outcome<SpaceSpec> {
        let record = self.core.store.get(&keys::space_key(space)).await?;
        let record = record.ok_or_else(|| Problem::not_found(format!("space {space}")))?;
        record.spec().map_err(|_| unreadable(&record))
    }

    /// The route that comes with a new app; `None` when its host leads elsewhere already.
    pub(crate) async fn automatic_route(&self, app: &AppRef) -> Outcome<Option<RouteSpec>> {
        let host = crate::operations::automatic_host(app, &self.core.settings.domain);
        let taken = self.core.store.get(&keys::route_key(&host, "/")).await?.is_some();
        let route = RouteSpec {
            host,
            path: "/".into(),
            app: app.clone(),
            strip_path: false,
            entry: Vec::new(),
            automatic: true,
        };
        Ok((!taken).then_some(route))
    }
}
