//! Lanes of a space, and how the space reads lane tags.

use super::ApiState;
use super::apps::{Patch, merged};
use super::body::{Checked, Doc};
use super::problem::{FieldError, Outcome, Problem, ProblemBody};
use super::query::{Change, InSpace, Listing, Params, Segments, name};
use super::quota::Ask;
use super::reading::{List, page_query, read_answer, resource, tagged};
use super::validate;
use super::view::{LaneView, SpaceView, unreadable};
use super::writing::{Conditions, first, written};
use crate::core::keys;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use std::time::Duration;
use towpath_store::{Expect, Write};
use towpath_types::lane::LanePolicy;
use towpath_types::spec::{LaneKind, LaneSpec, SpaceSpec};
use towpath_types::{AppName, Kind, LaneName, SpaceRef};

/// Longest wait for the cache to know a lane as it was read.
const CACHE: Duration = Duration::from_secs(5);

/// A lane to make or change.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LaneBody {
    /// `feature` when absent, or as it is.
    kind: Option<LaneKind>,
}

impl Checked for LaneBody {}

/// Settings of a space.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SpaceBody {
    /// How lane tags are read.
    pub(super) lanes: LanePolicy,
}

impl Checked for SpaceBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        for (field, value) in [("lanes.header", &self.lanes.header), ("lanes.cookie", &self.lanes.cookie)] {
            if !validate::is_token(value) {
                errors.push(FieldError::new(field, "is not a name that a header or cookie may have"));
            }
        }
        validate::refused("lanes", towpath_route::check::policy(&self.lanes), errors);
        if !validate::is_parameter(&self.lanes.query) {
            errors.push(FieldError::new("lanes.query", "is not the name of a query parameter"));
        }
    }
}

/// The lanes of a space.
#[utoipa::path(get, path = "/v1/lanes", tag = "lanes", params(Listing),
    responses((status = 200, body = List<LaneView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_lanes(
    State(state): State<ApiState>,
    Params(query): Params<Listing>,
) -> Outcome<Response> {
    let space = query.space();
    let page = page_query(Kind::Lane, Some(&space), query.limit, query.cursor.as_deref())?;
    let page = state.read_list(page).await?;
    let items = page
        .records
        .iter()
        .filter_map(|record| LaneView::new(record, state.apps_in(&space, &record.key.name)))
        .collect();
    Ok(read_answer(page.stale, &List { items, next: page.next, revision: page.revision }))
}

/// One lane.
#[utoipa::path(get, path = "/v1/lanes/{lane}", tag = "lanes", params(("lane" = String, Path), InSpace),
    responses((status = 200, body = LaneView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_lane(
    State(state): State<ApiState>,
    Segments(lane): Segments<String>,
    Params(query): Params<InSpace>,
) -> Outcome<Response> {
    let (space, lane): (_, LaneName) = (query.space(), name("lane", &lane)?);
    let read = state.read_existing(&keys::lane_key(&space, &lane), format!("lane {lane} in {space}")).await?;
    let view = LaneView::new(&read.value, state.apps_in(&space, lane.as_str()))
        .ok_or_else(|| unreadable(&read.value))?;
    Ok(tagged(read.value.revision, read.stale, &view))
}

/// Makes a lane, or changes its kind.
#[utoipa::path(put, path = "/v1/lanes/{lane}", tag = "lanes", params(("lane" = String, Path), Change), request_body(content = LaneBody, example = json!({"kind": "feature"})),
    responses((status = 200, body = LaneView), (status = 201, body = LaneView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_lane(
    State(state): State<ApiState>,
    Segments(lane): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(body): Doc<LaneBody>,
) -> Outcome<Response> {
    let (space, lane): (_, LaneName) = (query.space(), name("lane", &lane)?);
    if body.kind.is_some_and(|kind| (kind == LaneKind::Base) != lane.is_base()) {
        return Err(Problem::field(
            "kind",
            "the lane `base`, and it alone, is of kind base; use feature or local",
        ));
    }
    state.space_exists(&space).await?;
    let key = keys::lane_key(&space, &lane);
    let mut created = false;
    let ask = Ask::Lane(space.clone(), lane.clone());
    let commit = state
        .change_within(&key, &conditions, Some(&ask), |present, expect| {
            created = present.is_none();
            let before = present.and_then(|record| record.spec::<LaneSpec>().ok()).map(|spec| spec.kind);
            let kind = body.kind.or(before).unwrap_or_default();
            let joined = created.then(|| state.join_space(&space));
            let lane = state.put(key.clone(), expect, &LaneSpec { kind });
            Ok(std::iter::once(lane).chain(joined).collect())
        })
        .await?;
    let record = first(&commit)?;
    let view =
        LaneView::new(record, state.apps_in(&space, lane.as_str())).ok_or_else(|| unreadable(record))?;
    let response = written(conditions.made(created), record.revision, &view);
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

/// Removes a lane that no app has anything in.
#[utoipa::path(delete, path = "/v1/lanes/{lane}", tag = "lanes", params(("lane" = String, Path), Change),
    responses((status = 204), (status = "default", body = ProblemBody)))]
pub(crate) async fn delete_lane(
    State(state): State<ApiState>,
    Segments(lane): Segments<String>,
    Params(query): Params<Change>,
    conditions: Conditions,
) -> Outcome<Response> {
    let (space, lane): (_, LaneName) = (query.space(), name("lane", &lane)?);
    if lane.is_base() {
        return Err(Problem::conflict("every space keeps its base lane"));
    }
    let key = keys::lane_key(&space, &lane);
    // First the lane, then who is in it: whoever comes later changes the lane's revision.
    let seen = state.core.store.get(&key).await?.map(|record| record.revision);
    if let Some(revision) = seen {
        state.core.wait_cache(revision, CACHE).await;
    }
    let apps = state.apps_in(&space, lane.as_str());
    if !apps.is_empty() {
        let names: Vec<&str> = apps.iter().map(AppName::as_str).collect();
        return Err(Problem::conflict(format!(
            "lane {lane} is in use by: {}; delete them there first, as with: towpath delete {} --lane {lane}",
            names.join(", "),
            names.first().copied().unwrap_or_default()
        )));
    }
    let commit = state
        .change(&key, &conditions, |present, expect| match present {
            Some(record) if Some(record.revision) != seen => {
                Err(Problem::conflict(format!("lane {lane} was changed at the same time; try again")))
            }
            Some(_) => Ok(vec![Write::Delete { key: key.clone(), expect }]),
            None if conditions.idempotency.is_some() => {
                Ok(vec![Write::Delete { key: key.clone(), expect: Expect::Any }])
            }
            None => Err(Problem::not_found(format!("lane {lane} in {space}"))),
        })
        .await?;
    let response = StatusCode::NO_CONTENT.into_response();
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

/// A space's settings.
#[utoipa::path(get, path = "/v1/space", tag = "lanes", params(InSpace),
    responses((status = 200, body = SpaceView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_space(
    State(state): State<ApiState>,
    Params(query): Params<InSpace>,
    headers: HeaderMap,
) -> Outcome<Response> {
    let space = query.space();
    let read = state.read_existing(&keys::space_key(&space), format!("space {space}")).await?;
    let view = SpaceView::new(&state.core, &read.value).ok_or_else(|| unreadable(&read.value))?;
    Ok(resource(&headers, read.value.revision, read.stale, &view))
}

/// Changes how a space reads lane tags: a JSON merge patch of `{"lanes": {…}}`.
#[utoipa::path(patch, path = "/v1/space", tag = "lanes", params(Change), request_body(content = Patch, example = json!({"lanes": {"mode": "strict"}})),
    responses((status = 200, body = SpaceView), (status = "default", body = ProblemBody)))]
pub(crate) async fn patch_space(
    State(state): State<ApiState>,
    Params(query): Params<Change>,
    conditions: Conditions,
    Doc(patch): Doc<Patch>,
) -> Outcome<Response> {
    let space = query.space();
    let key = keys::space_key(&space);
    let commit = state
        .change(&key, &conditions, |present, expect| {
            let present = present.ok_or_else(|| Problem::not_found(format!("space {space}")))?;
            let body: SpaceBody = merged(&present.spec, &patch.0)?;
            Ok(vec![state.put(key.clone(), expect, &SpaceSpec { lanes: body.lanes })])
        })
        .await?;
    let record = first(&commit)?;
    let view = SpaceView::new(&state.core, record).ok_or_else(|| unreadable(record))?;
    let response = written(false, record.revision, &view);
    Ok(state.changed(response, commit.revision, query.wait, query.wait_timeout).await)
}

impl ApiState {
    /// Apps that have something in a lane.
    fn apps_in(&self, space: &SpaceRef, lane: &str) -> Vec<AppName> {
        self.core
            .cache
            .group_names()
            .into_iter()
            .filter(|group| group.app.space_ref() == *space && group.lane.as_str() == lane)
            .map(|group| group.app.app)
            .collect()
    }
}
