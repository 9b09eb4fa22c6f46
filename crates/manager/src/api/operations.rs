//! Operations: how they stand, and what they tell while they run.

use super::ApiState;
use super::auth::Caller;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::{NoQuery, Params, Segments, Wait, in_space, name};
use super::quota::Ask;
use super::reading::{List, page_query, read_answer, tagged};
use super::sse::{Frame, last_event_id, stream};
use super::trail::Trail;
use super::view::{OperationView, unreadable};
use super::writing::{Conditions, wait_time};
use crate::core::keys::{self, GroupRef};
use crate::error::CommitError;
use crate::operations::{Input, Live, NewOperation, ROTATION, SubmitError, elsewhere};
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use towpath_store::{Expect, StoreError, Write};
use towpath_types::resource::Key;
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{AppName, ErrorCode, Kind, ManagerId, Millis, OperationId, Record, Revision};

/// Events sent at once.
const BATCH: usize = 256;
/// How long the manager that runs an operation may wait for the next event before it answers.
const ASKED: Duration = Duration::from_secs(5);
/// Pause between looks at an operation that nobody runs at the moment.
const LOOK: Duration = Duration::from_millis(500);

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
    let mut view = state.operation_view(&read.value)?;
    if let Some(owner) = state.runs_elsewhere(&read.value)
        && let Some(status) = elsewhere::ask_status(&state.core, owner, id).await
    {
        view = OperationView::new(&read.value, Some(status)).ok_or_else(|| unreadable(&read.value))?;
    }
    Ok(tagged(read.value.revision, read.stale, &view))
}

/// Operations of a space, newest first.
#[utoipa::path(get, path = "/v1/operations", tag = "operations", params(OperationQuery),
    responses((status = 200, body = List<OperationView>), (status = "default", body = ProblemBody)))]
pub(crate) async fn list_operations(
    State(state): State<ApiState>,
    caller: Caller,
    Params(query): Params<OperationQuery>,
) -> Outcome<Response> {
    // Ids rise with time, so the newest are the last. The list is read from memory, backwards, no further than needed.
    let wanted = page_query(Kind::Operation, None, query.limit, query.cursor.as_deref())?;
    let of_space = |record: &Record| {
        record.spec::<OperationSpec>().is_ok_and(|spec| {
            (spec.verb != ROTATION || caller.is_operator())
                && spec.app.space_ref() == query.space()
                && query.app.as_ref().is_none_or(|app| spec.app.app == *app)
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
    Ok(stream(&state.clone(), move |out| async move {
        let key = keys::operation_key(id);
        let Some((last, live)) = tell(&state, id, after, read.value.clone(), &out).await else { return };
        let record = state.core.cache.get(&key).unwrap_or(read.value);
        let status = live.map(|live| live.status().borrow().clone());
        if let Some(view) = OperationView::new(&record, status) {
            let _ = out.send(Frame::json("done", Some(last + 1), &view)).await;
        }
    }))
}

/// Gives an operation up, if its change is not made yet. What is built for it is ended.
#[utoipa::path(post, path = "/v1/operations/{id}/cancel", tag = "operations", params(("id" = String, Path)),
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn cancel_operation(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
    _query: NoQuery,
    caller: Caller,
    trail: Trail,
) -> Outcome<Response> {
    let id: OperationId = name("id", &id)?;
    let key = keys::operation_key(id);
    for _ in 0..12 {
        let present = state.core.store.get(&key).await?;
        let record = present.ok_or_else(|| Problem::not_found(format!("operation {id}")))?;
        let mut status: OperationStatus = record.status().map_err(|_| unreadable(&record))?;
        match status.phase {
            phase if is_ended(phase) => return Err(Problem::conflict("it has ended already")),
            OperationPhase::Rolling => {
                let detail = "its change is made already; roll back, or change it again";
                return Err(Problem::conflict(detail));
            }
            _ => status.cancel = Some(caller.name.clone()),
        }
        let write = Write::Put {
            key: key.clone(),
            id: record.id.clone(),
            expect: Expect::At(record.revision),
            spec: None,
            status: serde_json::to_value(&status).ok(),
        };
        let entry = state.audit_write(&trail.of_cancel(&record));
        match state.core.commit(vec![write, entry]).await {
            Ok(commit) => {
                let record = commit.records.into_iter().flatten().next().unwrap_or(record);
                let view = state.operation_view(&record)?;
                return Ok((StatusCode::ACCEPTED, Json(&view)).into_response());
            }
            // Its change, its end, or its new owner was faster.
            Err(CommitError::Store(StoreError::Conflict { .. })) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(CommitError::Contended.into())
}

/// Sends what an operation tells, whoever runs it, until it has ended; the number of the last event, and the operation if
/// it ran here. `None` = the client went, or the operation is gone.
async fn tell(
    state: &ApiState,
    id: OperationId,
    after: u64,
    first: Arc<Record>,
    out: &mpsc::Sender<Frame>,
) -> Option<(u64, Option<Arc<Live>>)> {
    let (mut last, mut present) = (after, first);
    let key = keys::operation_key(id);
    let mut cache = state.core.cache.watch();
    loop {
        cache.mark_unchanged();
        if let Some(live) = state.operations.find_live(id) {
            let (told, ended) = relay(&live, last, out).await?;
            last = told;
            if ended {
                return Some((last, Some(live)));
            }
        } else if is_ended(present.status::<OperationStatus>().ok()?.phase) {
            return Some((last, None));
        } else if let Some(owner) = state.runs_elsewhere(&present)
            && let Some(page) = elsewhere::ask(&state.core, owner, id, last, ASKED).await
        {
            for event in page.events {
                last = event.number;
                out.send(Frame::json(&event.name, Some(last), &event.data)).await.ok()?;
            }
            if !page.ended {
                continue;
            }
        }
        // Nobody runs it at the moment, or it has ended and the end is on its way here.
        let _ = tokio::time::timeout(LOOK, cache.changed()).await;
        present = state.core.cache.get(&key)?;
    }
}

/// Sends what an operation of this manager tells until it has ended, or is another manager's; the number of the last
/// event, and whether it has ended. `None` = the client went.
async fn relay(live: &Arc<Live>, after: u64, out: &mpsc::Sender<Frame>) -> Option<(u64, bool)> {
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
            return Some((last, true));
        }
        tokio::select! {
            () = live.left() => return Some((last, false)),
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
        let (record, revision) = self.submit(new, conditions).await?;
        self.accepted(record, revision, wait, wait_timeout).await
    }

    /// The answer to a request that was accepted before, as things stand now.
    pub(crate) async fn accepted_before(
        &self,
        conditions: &Conditions,
        wait: Option<Wait>,
        wait_timeout: Option<Millis>,
    ) -> Outcome<Option<Response>> {
        let Some(commit) = &conditions.first else { return Ok(None) };
        let first = super::writing::first(commit)?;
        let present = self.core.store.get(&first.key).await?.unwrap_or_else(|| first.clone());
        self.accepted(present, commit.revision, wait, wait_timeout).await.map(Some)
    }

    /// Likewise for what belongs to the platform and counts towards nobody's quota. `key`: the resource that it is about.
    pub(crate) async fn accept_of_platform(
        &self,
        new: NewOperation,
        key: &Key,
        conditions: &Conditions,
    ) -> Outcome<Response> {
        let entry = self.operation_entry(conditions.trail.as_ref(), &new, key);
        let also = move |id| entry.map(|entry| entry(id)).into_iter().collect();
        let (named, until) = (conditions.idempotency.clone(), conditions.until);
        let (record, revision) = self.operations.submit(new, named, until, Box::new(also)).await?;
        self.accepted(record, revision, None, None).await
    }

    async fn accepted(
        &self,
        mut record: Record,
        mut revision: Revision,
        wait: Option<Wait>,
        wait_timeout: Option<Millis>,
    ) -> Outcome<Response> {
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

    /// Stores a new operation, within the org's quota, with its entry in the audit log.
    async fn submit(&self, new: NewOperation, conditions: &Conditions) -> Outcome<(Record, Revision)> {
        let group = GroupRef::new(new.app.clone(), new.lane.clone());
        let app = keys::app_key(&new.app);
        let (mut key, mut joins) = (group.key(), false);
        match &new.input {
            Input::Env { .. } | Input::Delete => key = app,
            // Who is about to delete the space as empty is too late then.
            Input::Push(_) => joins = self.core.cache.get(&app).is_none(),
            _ => {}
        }
        let ask = Ask::Operation(Box::new(new.clone()));
        for _ in 0..12 {
            let claim = self.claim(&ask).await?;
            let entry = self.operation_entry(conditions.trail.as_ref(), &new, &key);
            let joined = joins.then(|| self.join_space(&new.app.space_ref()));
            let more: Vec<Write> = claim.iter().map(|claim| claim.write.clone()).chain(joined).collect();
            let also = move |id| entry.map(|entry| entry(id)).into_iter().chain(more).collect();
            let (named, until) = (conditions.idempotency.clone(), conditions.until);
            let submitted = self.operations.submit(new.clone(), named, until, Box::new(also)).await;
            match submitted {
                Err(SubmitError::Commit(CommitError::Store(StoreError::Conflict { key, .. })))
                    if key.kind == Kind::Org => {}
                submitted => return Ok(submitted?),
            }
        }
        Err(CommitError::Contended.into())
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

    /// The other manager that runs an operation.
    fn runs_elsewhere(&self, record: &Record) -> Option<ManagerId> {
        let spec: OperationSpec = record.spec().ok()?;
        let over = is_ended(record.status::<OperationStatus>().ok()?.phase);
        let here = spec.owner == self.core.manager || self.operations.find_live(spec.operation).is_some();
        (!over && !here && self.core.members.is_member(spec.owner)).then_some(spec.owner)
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Commit(error) => error.into(),
            SubmitError::Busy => Problem::new(ErrorCode::Busy, "too many operations run at the moment")
                .retry_after(Duration::from_secs(5)),
            SubmitError::KeyReused => Problem::key_reused(),
            SubmitError::Refused(refused) => refused.into(),
            error @ (SubmitError::Unreadable | SubmitError::Broken) => {
                Problem::new(ErrorCode::Internal, error.to_string())
            }
        }
    }
}
