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
use futures::StreamExt;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towpath_bus::Subscription;
use towpath_types::{AppRef, CellId, InstanceId, LaneName, SpaceRef};
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
/// Pause before a cell that could not be asked is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// Instances that are read or followed at most.
const MAX_INSTANCES: usize = 256;
/// Cells that are asked at the same time.
const ASKED: usize = 16;
/// Lines of all instances together, about.
const MAX_LINES: usize = 200_000;

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
    /// It is gone; its cell keeps its log for a while.
    past: bool,
}

impl From<InstanceView> for Target {
    fn from(view: InstanceView) -> Self {
        Self { instance: view.id, cell: view.cell, lane: view.lane, ordinal: view.ordinal, past: false }
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
    let space = app.space_ref();
    let find = move |state: &ApiState| find_targets(state, &space, Some(&app), lane.as_ref());
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
        let mut targets = find_targets(state, &space, None, None);
        targets.retain(|target| target.instance == id);
        targets
    };
    if find(&state).is_empty() {
        return Err(Problem::not_found(format!("instance {id} in {}", query.space())));
    }
    answer(&state, &query, find).await
}

/// Instances that are there, and behind them those that are gone because of which a version failed.
fn find_targets(
    state: &ApiState,
    space: &SpaceRef,
    app: Option<&AppRef>,
    lane: Option<&LaneName>,
) -> Vec<Target> {
    let mut targets: Vec<Target> = state.instances(space, app, lane).into_iter().map(Target::from).collect();
    let present: BTreeSet<InstanceId> = targets.iter().map(|target| target.instance).collect();
    let cache = &state.core.cache;
    for (name, group) in app.map_or_else(|| cache.groups(), |app| cache.groups_of(app)) {
        if name.app.space_ref() != *space || lane.is_some_and(|lane| name.lane != *lane) {
            continue;
        }
        targets.extend(group.status.casualties.iter().filter(|gone| !present.contains(&gone.instance)).map(
            |gone| Target {
                instance: gone.instance,
                cell: gone.cell,
                lane: name.lane.clone(),
                ordinal: None,
                past: true,
            },
        ));
    }
    targets
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
    let core = &state.core;
    let read = |target: Target| async move {
        let lines = read_log(core, target.cell, target.instance, tail, Duration::ZERO).await;
        lines.map_err(|error| error.to_string())
    };
    Ok(read_answer(false, &read_all(find(state), read).await))
}

/// Reads the last lines of instances: of so many, and so many at a time, that neither the cells nor this manager's
/// memory are overrun. What is left out is told.
async fn read_all<F, Fut>(targets: Vec<Target>, read: F) -> LogsView
where
    F: Fn(Target) -> Fut,
    Fut: Future<Output = Result<Vec<LogLine>, String>>,
{
    let (mut lines, mut missing) = (Vec::new(), Vec::new());
    // The log of an only one that is gone was asked for by its id.
    let (count, asked_for) = (targets.len(), targets.len() == 1);
    let left_out = targets.get(MAX_INSTANCES.min(count)..).unwrap_or_default().to_vec();
    let answers = futures::stream::iter(targets.into_iter().take(MAX_INSTANCES))
        .map(|target| {
            let answer = read(target.clone());
            async move { (target, answer.await) }
        })
        .buffered(ASKED);
    let mut answers = std::pin::pin!(answers);
    let mut unread = Vec::new();
    while let Some((target, answer)) = answers.next().await {
        match answer {
            Ok(_) if lines.len() >= MAX_LINES => unread.push(target),
            Ok(read) => lines.extend(read.into_iter().map(|line| target.line(line))),
            // Its cell has forgotten it, as it may.
            Err(_) if target.past && !asked_for => {}
            Err(why) => missing.push(MissingLog { instance: target.instance, why }),
        }
    }
    missing.extend(unread.iter().chain(&left_out).map(|target| MissingLog {
        instance: target.instance,
        why: format!(
            "too much to read at once ({MAX_INSTANCES} instances and {MAX_LINES} lines at most); ask for fewer lines, or \
             for this instance alone"
        ),
    }));
    // A stable sort: lines of one instance keep their order.
    lines.sort_by_key(|line| line.at_ms);
    LogsView { lines, missing }
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
            find(&state).into_iter().take(MAX_INSTANCES).map(|target| (target.instance, target)).collect();
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

/// Follows one instance until nobody knows it any more. A cell that does not answer, or a bus that is away, is tried
/// again.
async fn follow_one(core: Arc<Core>, target: Target, tail: usize, out: mpsc::Sender<Frame>) {
    let mut sent = Sent::default();
    let mut tail = tail;
    loop {
        if follow_once(&core, &target, &mut tail, &mut sent, &out).await.is_err() {
            return;
        }
        let known =
            core.soft.instance(target.instance).is_some() || core.cache.group_of(target.instance).is_some();
        if target.past || !known {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The newest lines that were sent, to tell what is new after an interruption.
#[derive(Debug, Default)]
struct Sent {
    at_ms: u64,
    /// Texts of that time.
    texts: HashSet<String>,
}

impl Sent {
    fn note(&mut self, line: &LogLine) {
        if line.at_ms > self.at_ms {
            self.at_ms = line.at_ms;
            self.texts.clear();
        }
        if line.at_ms == self.at_ms {
            self.texts.insert(line.text.clone());
        }
    }

    fn is_new(&self, line: &LogLine) -> bool {
        line.at_ms > self.at_ms || (line.at_ms == self.at_ms && !self.texts.contains(&line.text))
    }
}

/// Follows until the cell does not answer. Error: the client went.
async fn follow_once(
    core: &Core,
    target: &Target,
    tail: &mut usize,
    sent: &mut Sent,
    out: &mpsc::Sender<Frame>,
) -> Result<(), mpsc::error::SendError<Frame>> {
    // Listen first, so that nothing falls between the last lines and the next ones.
    let Ok(mut chunks) = core.bus.subscribe(&subject::instance_log(target.instance)).await else {
        return Ok(());
    };
    let lease = if target.past { Duration::ZERO } else { LEASE };
    let Ok(lines) = read_log(core, target.cell, target.instance, *tail, lease).await else { return Ok(()) };
    // After an interruption, everything that was not sent yet is wanted.
    *tail = MAX_TAIL;
    // Lines that came while the question was answered may be in both.
    let mut shown: HashSet<(u64, String)> =
        lines.iter().rev().take(1000).map(|line| (line.at_ms, line.text.clone())).collect();
    let fresh: Vec<LogLine> = lines.into_iter().filter(|line| sent.is_new(line)).collect();
    for line in fresh {
        sent.note(&line);
        out.send(Frame::json("line", None, &target.line(line))).await?;
    }
    if target.past {
        return Ok(());
    }
    let mut next_seq = None;
    let mut renew = tokio::time::interval_at(tokio::time::Instant::now() + RENEW, RENEW);
    loop {
        tokio::select! {
            chunk = next_chunk(&mut chunks) => {
                let Some(chunk) = chunk else { return Ok(()) };
                chunk.lines.iter().for_each(|line| sent.note(line));
                relay(target, chunk, &mut next_seq, &mut shown, out).await?;
            }
            _ = renew.tick() => {
                shown.clear();
                if read_log(core, target.cell, target.instance, 0, LEASE).await.is_err() {
                    return Ok(());
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn target(n: usize) -> Target {
        let mut random = [0; 10];
        random[..8].copy_from_slice(&n.to_be_bytes());
        let (instance, cell) = (InstanceId::mint(1, random), CellId::mint(1, random));
        Target { instance, cell, lane: LaneName::base(), ordinal: None, past: false }
    }

    fn line(at_ms: u64) -> LogLine {
        LogLine { at_ms, source: LogSource::Stdout, text: at_ms.to_string() }
    }

    #[tokio::test]
    async fn few_are_asked_at_a_time_and_who_is_left_out_is_told() {
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let read = |_| async {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            now.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![line(2), line(3)])
        };
        let view = read_all((0..MAX_INSTANCES + 3).map(target).collect(), read).await;
        assert!((2..=ASKED).contains(&most.load(Ordering::SeqCst)), "{most:?}");
        assert_eq!((view.lines.len(), view.missing.len()), (2 * MAX_INSTANCES, 3));
        let much = |_| async { Ok((0..MAX_LINES as u64).map(line).collect()) };
        let view = read_all((0..2).map(target).collect(), much).await;
        assert_eq!((view.lines.len(), view.missing.len()), (MAX_LINES, 1));
    }

    #[test]
    fn after_an_interruption_what_was_sent_is_not_sent_again() {
        let mut sent = Sent::default();
        for at_ms in [1, 2, 2] {
            sent.note(&line(at_ms));
        }
        let other = LogLine { text: "other".into(), ..line(2) };
        let new: Vec<_> =
            [line(1), line(2), other.clone(), line(3)].into_iter().filter(|l| sent.is_new(l)).collect();
        assert_eq!(new, [other, line(3)]);
    }
}
