//! Operations: how they stand, and what they tell while they run.

use super::ApiState;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Params, Segments, Wait, in_space, name};
use super::reading::{List, page_query, read_answer, tagged};
use super::sse::{Frame, last_event_id, stream};
use super::view::{OperationView, unreadable};
use super::writing::{Conditions, wait_time};
use crate::core::keys;
use crate::operations::{Live, NewOperation, SubmitError};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{AppName, ErrorCode, Kind, Millis, OperationId, Record};

/// Events sent at once.
const BATCH: usize = 256;

in_space! {
    /// Which operations.
    OperationQuery {
        /// Of this app alone.
        #[param(value_type = Option<String>)]
        app: Option<AppName>,
        /// Most items in the answer, 1 to 1000; 100 when absent.
        limit: Option<usize>,
        /// `next` of the page before.
        cursor: Option<String>,
    }
}

/// One operation.
#[utoipa::path(get, path = "/v1/operations/{id}", tag = "operations", params(("id" = String, Path)),
    responses((status = 200, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_operation(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    let id: OperationId = name("id", &id)?;
    let read = state.read_existing(&keys::operation_key(id), format!("operation {id}")).await?;
    let view = state.operation_view(&read.value)?;
    Ok(tagged(read.value.revision, read.stale, &view))
}

/// Operations of a space, newest first.
#[utoipa::path(get, path = "/v1/operations", tag = "operations", params(OperationQuery),
    responses((status = 200, body = List<OperationView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_operations(
    State(state): State<ApiState>,
    Params(query): Params<OperationQuery>,
) -> Outcome<Response> {
    // Ids rise with time, so the newest are the last. The list is read from memory, backwards, no further than needed.
    let wanted = page_query(Kind::Operation, None, query.limit, query.cursor.as_deref())?;
    let of_space = |record: &Record| {
        record.spec::<OperationSpec>().is_ok_and(|spec| {
            spec.app.space_ref() == query.space() && query.app.as_ref().is_none_or(|app| spec.app.app == *app)
        })
    };
    let all = state.core.cache.list(Kind::Operation, None, None);
    let behind = |record: &&Arc<Record>| wanted.after.as_ref().is_none_or(|after| record.key < *after);
    let mut records: Vec<_> =
        all.iter().rev().filter(behind).filter(|record| of_space(record)).take(wanted.limit + 1).collect();
    let more = records.len() > wanted.limit;
    records.truncate(wanted.limit);
    let next = records.last().filter(|_| more).map(|last| super::reading::cursor(&last.key));
    let items = records.iter().filter_map(|record| state.operation_view(record).ok()).collect();
    let list = List { items, next, revision: state.core.cache.revision() };
    Ok(read_answer(!state.core.store_is_up(), &list))
}

/// What an operation tells, from its start, as server-sent events; the last is `done` with the operation.
#[utoipa::path(get, path = "/v1/operations/{id}/events", tag = "operations",
    params(("id" = String, Path), ("Last-Event-ID" = Option<u64>, Header, description = "Go on behind this event.")),
    responses((status = 200, content_type = "text/event-stream", body = String,
        description = "Events `phase`, `step`, `line`, `progress`, `gap`, and at the end `done`."),
        (status = "default", body = ProblemBody)))]
pub(crate) async fn operation_events(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
    _query: NoQuery,
    headers: HeaderMap,
) -> Outcome<Response> {
    let id: OperationId = name("id", &id)?;
    let after = last_event_id(&headers);
    let read = state.read_existing(&keys::operation_key(id), format!("operation {id}")).await?;
    let live = state.operations.find_live(id);
    Ok(stream(&state.clone(), move |out| async move {
        let told = match &live {
            Some(live) => relay(live, after, &out).await,
            None => state.wait_for_end(id, &read.value).await.map(|()| after),
        };
        let Some(last) = told else { return };
        let record = state.core.cache.get(&keys::operation_key(id)).unwrap_or(read.value);
        let status = live.map(|live| live.status().borrow().clone());
        if let Some(view) = OperationView::new(&record, status) {
            let _ = out.send(Frame::json("done", Some(last + 1), &view)).await;
        }
    }))
}

/// Sends what a live operation tells until it has ended; the number of the last event. `None` = the client went.
async fn relay(live: &Arc<Live>, after: u64, out: &mpsc::Sender<Frame>) -> Option<u64> {
    let (mut newest, mut status) = (live.events.watch(), live.status());
    let mut last = after;
    loop {
        newest.mark_unchanged();
        // The end first: what was told before it is then in the ring.
        let ended = is_ended(status.borrow_and_update().phase);
        loop {
            let batch = live.events.behind(last, BATCH);
            if batch.is_empty() {
                break;
            }
            for (number, event) in batch {
                last = number;
                out.send(Frame::json(event.name(), Some(number), &event)).await.ok()?;
            }
        }
        if ended {
            return Some(last);
        }
        tokio::select! {
            _ = newest.changed() => {}
            _ = status.changed() => {}
            () = out.closed() => return None,
        }
    }
}

/// Whether an operation has made its change, or ended.
fn is_under_way(record: &Record) -> bool {
    record
        .status::<OperationStatus>()
        .is_ok_and(|status| status.phase == OperationPhase::Rolling || is_ended(status.phase))
}

fn is_ended(phase: OperationPhase) -> bool {
    matches!(phase, OperationPhase::Succeeded | OperationPhase::Failed)
}

impl ApiState {
    /// Stores a new operation and answers 202; with `wait`, when its change (not: the whole rollout) is served.
    pub(crate) async fn accept(
        &self,
        new: NewOperation,
        conditions: &Conditions,
        wait: Option<Wait>,
        wait_timeout: Option<Millis>,
    ) -> Outcome<Response> {
        let (mut record, mut revision) = self.operations.submit(new, conditions.idempotency.clone()).await?;
        let deadline = Instant::now() + wait_time(wait_timeout);
        if wait.is_some()
            && let Some(changed) = self.wait_for_change(&record, deadline).await
        {
            revision = changed.revision;
            record = Record::clone(&changed);
        }
        let made = is_under_way(&record);
        // What runs it may not know yet of its own change.
        let stored = if made { OperationView::new(&record, None) } else { None };
        let view = stored.map_or_else(|| self.operation_view(&record), Ok)?;
        let mut response = (StatusCode::ACCEPTED, Json(&view)).into_response();
        let headers = response.headers_mut();
        if let Ok(location) = HeaderValue::from_str(&format!("/v1/operations/{}", view.id)) {
            headers.insert(header::LOCATION, location);
        }
        if wait.is_some() && !made {
            // Its change is not made yet, so nobody can serve it.
            return Ok(self.unserved(response, revision));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        Ok(self.changed(response, revision, wait, Some(left)).await)
    }

    /// Waits until an operation has made its change, or ended without one. The change and its step to `rolling` are
    /// one commit, so the record is then of the change's revision, or a later one. `None` = not by then.
    async fn wait_for_change(&self, record: &Record, deadline: Instant) -> Option<Arc<Record>> {
        let mut cache = self.core.cache.watch();
        let look = async {
            loop {
                cache.mark_unchanged();
                let present = self.core.cache.get(&record.key);
                if let Some(present) = present.filter(|present| is_under_way(present)) {
                    return Some(present);
                }
                cache.changed().await.ok()?;
            }
        };
        tokio::time::timeout_at(deadline, look).await.ok().flatten()
    }

    /// An operation as it stands now.
    pub(crate) fn operation_view(&self, record: &Record) -> Outcome<OperationView> {
        let live = record.key.name.parse().ok().and_then(|id| self.operations.find_live(id));
        let status = live.map(|live| live.status().borrow().clone());
        OperationView::new(record, status).ok_or_else(|| unreadable(record))
    }

    /// Waits until an operation that another manager runs, or ran, has ended. `None` = it is gone.
    async fn wait_for_end(&self, id: OperationId, record: &Record) -> Option<()> {
        let key = keys::operation_key(id);
        let mut cache = self.core.cache.watch();
        let mut present = Some(Arc::new(record.clone()));
        loop {
            cache.mark_unchanged();
            let status = present?.status::<OperationStatus>().ok()?;
            if is_ended(status.phase) {
                return Some(());
            }
            let _ = tokio::time::timeout(Duration::from_secs(5), cache.changed()).await;
            present = self.core.cache.get(&key);
        }
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Commit(error) => error.into(),
            SubmitError::Busy => Problem::new(ErrorCode::Busy, "too many operations run at the moment")
                .retry_after(Duration::from_secs(5)),
            SubmitError::KeyReused => {
                Problem::conflict("this Idempotency-Key was used for another request; take a new one")
            }
            error @ (SubmitError::Unreadable | SubmitError::Broken) => {
                Problem::new(ErrorCode::Internal, error.to_string())
            }
        }
    }
}
