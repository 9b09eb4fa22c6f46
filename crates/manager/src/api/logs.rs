//! Log lines of instances: the last ones, or as they come.

use super::ApiState;
use super::instances::InstanceView;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::{Params, Segments, in_space, name};
use super::reading::read_answer;
use super::sse::{Frame, stream};
use crate::core::{Core, keys};
use crate::operations::read_log;
use axum::extract::State;
use axum::response::Response;
use futures::future::join_all;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towpath_bus::Subscription;
use towpath_types::{AppRef, CellId, InstanceId, LaneName};
use towpath_wire::log::{LogChunk, LogLine, LogSource};
use towpath_wire::{decode, subject};

/// Most lines of one instance.
const MAX_TAIL: usize = 10_000;
/// Lines when the client does not say.
const TAIL: usize = 100;
/// A cell publishes lines for so long after it was asked.
const LEASE: Duration = Duration::from_secs(30);
/// It is asked again that often.
const RENEW: Duration = Duration::from_secs(10);
/// Instances that a stream follows at most.
const MAX_FOLLOWED: usize = 256;

in_space! {
    /// Which lines.
    LogsQuery {
        /// Of this lane alone.
        #[param(value_type = Option<String>)]
        lane: Option<LaneName>,
        /// The last so many lines of each instance, at most 10000; 100 when absent.
        tail: Option<usize>,
        /// Go on with new lines, as server-sent events.
        follow: bool,
    }
}

/// A line.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(crate) struct LineView {
    instance: InstanceId,
    lane: LaneName,
    /// Number of the instance in its group.
    ordinal: Option<u32>,
    /// When the cell read it, milliseconds since 1970.
    at_ms: u64,
    /// `stdout`, `stderr` or `cell`.
    #[schema(value_type = String)]
    source: LogSource,
    text: String,
}

/// An instance whose lines could not be read.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct MissingLog {
    instance: InstanceId,
    why: String,
}

/// The last lines.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct LogsView {
    /// By time.
    lines: Vec<LineView>,
    missing: Vec<MissingLog>,
}

/// An instance that a stream follows, or no longer.
#[derive(Debug, Serialize)]
struct FollowedView {
    instance: InstanceId,
    lane: LaneName,
    ordinal: Option<u32>,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct GapView {
    instance: InstanceId,
    missed: u64,
}

/// An instance whose log is read.
#[derive(Debug, Clone)]
struct Target {
    instance: InstanceId,
    cell: CellId,
    lane: LaneName,
    ordinal: Option<u32>,
}

impl From<InstanceView> for Target {
    fn from(view: InstanceView) -> Self {
        Self { instance: view.id, cell: view.cell, lane: view.lane, ordinal: view.ordinal }
    }
}

impl Target {
    fn line(&self, line: LogLine) -> LineView {
        LineView {
            instance: self.instance,
            lane: self.lane.clone(),
            ordinal: self.ordinal,
            at_ms: line.at_ms,
            source: line.source,
            text: line.text,
        }
    }

    fn followed(&self, state: &'static str) -> FollowedView {
        FollowedView { instance: self.instance, lane: self.lane.clone(), ordinal: self.ordinal, state }
    }
}

/// Log lines of an app's instances.
#[utoipa::path(get, path = "/v1/apps/{app}/logs", tag = "instances", params(("app" = String, Path), LogsQuery),
    responses((status = 200, body = LogsView, description = "With `follow=true`: server-sent events `line`, `instance`, `gap`."),
        (status = "default", body = ProblemBody)))]
pub(crate) async fn app_logs(
    State(state): State<ApiState>,
    Segments(app): Segments<String>,
    Params(query): Params<LogsQuery>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    state.read_existing(&keys::app_key(&app), format!("app {}", app.app)).await?;
    let lane = query.lane.clone();
    let find = move |state: &ApiState| find_targets(state, &app, lane.as_ref());
    answer(&state, &query, find).await
}

/// Log lines of one instance.
#[utoipa::path(get, path = "/v1/instances/{id}/logs", tag = "instances", params(("id" = String, Path), LogsQuery),
    responses((status = 200, body = LogsView, description = "With `follow=true`: server-sent events `line`, `instance`, `gap`."),
        (status = "default", body = ProblemBody)))]
pub(crate) async fn instance_logs(
    State(state): State<ApiState>,
    Segments(id): Segments<String>,
    Params(query): Params<LogsQuery>,
) -> Outcome<Response> {
    let id: InstanceId = name("id", &id)?;
    let space = query.space();
    let find = move |state: &ApiState| -> Vec<Target> {
        state
            .instances(&space, None, None)
            .into_iter()
            .filter(|view| view.id == id)
            .map(Target::from)
            .collect()
    };
    if find(&state).is_empty() {
        return Err(Problem::not_found(format!("instance {id} in {}", query.space())));
    }
    answer(&state, &query, find).await
}

fn find_targets(state: &ApiState, app: &AppRef, lane: Option<&LaneName>) -> Vec<Target> {
    state.instances(&app.space_ref(), Some(app), lane).into_iter().map(Target::from).collect()
}

async fn answer<F>(state: &ApiState, query: &LogsQuery, find: F) -> Outcome<Response>
where
    F: Fn(&ApiState) -> Vec<Target> + Send + Sync + 'static,
{
    let tail = query.tail.unwrap_or(TAIL);
    if tail > MAX_TAIL {
        return Err(Problem::field("tail", format!("has to be at most {MAX_TAIL}")));
    }
    if query.follow {
        let state = state.clone();
        return Ok(stream(&state.clone(), move |out| follow_all(state, find, tail, out)));
    }
    let targets = find(state);
    let read = join_all(
        targets
            .iter()
            .map(|target| read_log(&state.core, target.cell, target.instance, tail, Duration::ZERO)),
    );
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    for (target, answer) in targets.iter().zip(read.await) {
        match answer {
            Ok(read) => lines.extend(read.into_iter().map(|line| target.line(line))),
            Err(error) => missing.push(MissingLog { instance: target.instance, why: error.to_string() }),
        }
    }
    // A stable sort: lines of one instance keep their order.
    lines.sort_by_key(|line| line.at_ms);
    Ok(read_answer(false, &LogsView { lines, missing }))
}

/// Follows every instance that is there or comes, until the client goes.
async fn follow_all<F>(state: ApiState, find: F, tail: usize, out: mpsc::Sender<Frame>)
where
    F: Fn(&ApiState) -> Vec<Target> + Send + Sync + 'static,
{
    let mut ticks = state.core.soft.watch();
    let mut followed: BTreeMap<InstanceId, Target> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut first = true;
    loop {
        ticks.mark_unchanged();
        let present: BTreeMap<InstanceId, Target> =
            find(&state).into_iter().take(MAX_FOLLOWED).map(|target| (target.instance, target)).collect();
        for (id, target) in &present {
            if followed.contains_key(id) {
                continue;
            }
            if out.send(Frame::json("instance", None, &target.followed("found"))).await.is_err() {
                return;
            }
            // Of an instance that came later, everything is new.
            let tail = if first { tail } else { MAX_TAIL };
            let handle = tasks.spawn(follow_one(state.core.clone(), target.clone(), tail, out.clone()));
            drop(handle);
            followed.insert(*id, target.clone());
        }
        let gone: Vec<InstanceId> = followed.keys().filter(|id| !present.contains_key(id)).copied().collect();
        for id in gone {
            if let Some(target) = followed.remove(&id)
                && out.send(Frame::json("instance", None, &target.followed("gone"))).await.is_err()
            {
                return;
            }
        }
        first = false;
        // Announcements come in bursts; looking twice a second is enough.
        tokio::time::sleep(Duration::from_millis(500)).await;
        tokio::select! {
            _ = ticks.changed() => {}
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Follows one instance until its cell no longer knows it.
async fn follow_one(core: Arc<Core>, target: Target, tail: usize, out: mpsc::Sender<Frame>) {
    // Listen first, so that nothing falls between the last lines and the next ones.
    let Ok(mut chunks) = core.bus.subscribe(&subject::instance_log(target.instance)).await else { return };
    let Ok(lines) = read_log(&core, target.cell, target.instance, tail, LEASE).await else { return };
    // Lines that came while the question was answered may be in both.
    let mut shown: HashSet<(u64, String)> =
        lines.iter().rev().take(1000).map(|line| (line.at_ms, line.text.clone())).collect();
    for line in lines {
        if out.send(Frame::json("line", None, &target.line(line))).await.is_err() {
            return;
        }
    }
    let mut next_seq = None;
    let mut renew = tokio::time::interval_at(tokio::time::Instant::now() + RENEW, RENEW);
    loop {
        tokio::select! {
            chunk = next_chunk(&mut chunks) => {
                let Some(chunk) = chunk else { return };
                if relay(&target, chunk, &mut next_seq, &mut shown, &out).await.is_err() {
                    return;
                }
            }
            _ = renew.tick() => {
                shown.clear();
                if read_log(&core, target.cell, target.instance, 0, LEASE).await.is_err()
                    && core.soft.instance(target.instance).is_none()
                {
                    return;
                }
            }
        }
    }
}

async fn next_chunk(chunks: &mut Subscription) -> Option<LogChunk> {
    loop {
        if let Ok(chunk) = decode(&chunks.next().await?.payload) {
            return Some(chunk);
        }
    }
}

/// Sends the new lines of a chunk, and a gap before them where lines are missing.
async fn relay(
    target: &Target,
    chunk: LogChunk,
    next_seq: &mut Option<u64>,
    shown: &mut HashSet<(u64, String)>,
    out: &mpsc::Sender<Frame>,
) -> Result<(), mpsc::error::SendError<Frame>> {
    let expected = next_seq.unwrap_or(chunk.seq);
    if chunk.seq > expected {
        let gap = GapView { instance: target.instance, missed: chunk.seq - expected };
        out.send(Frame::json("gap", None, &gap)).await?;
    }
    // Another follower's question may make the cell repeat itself; what is below the expected number was sent.
    let repeated = usize::try_from(expected.saturating_sub(chunk.seq)).unwrap_or(usize::MAX);
    let count = chunk.lines.len() as u64;
    for line in chunk.lines.into_iter().skip(repeated) {
        if shown.remove(&(line.at_ms, line.text.clone())) {
            continue;
        }
        out.send(Frame::json("line", None, &target.line(line))).await?;
    }
    *next_seq = Some(expected.max(chunk.seq + count));
    Ok(())
}
