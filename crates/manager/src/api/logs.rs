//! Log lines of instances: the last ones, or as they come.

mod follow;

use super::ApiState;
use super::instances::InstanceView;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::{Params, Segments, in_space, name};
use super::reading::read_answer;
use super::sse::stream;
use crate::core::keys;
use crate::operations::read_log;
use axum::extract::State;
use axum::response::Response;
use futures::StreamExt;
use serde::Serialize;
use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;
use towpath_types::{AppRef, CellId, InstanceId, LaneName, SpaceRef};
use towpath_wire::log::{LogLine, LogSource};

/// Most lines of one instance.
const MAX_TAIL: usize = 10_000;
/// Lines when the client does not say.
const TAIL: usize = 100;
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
}

/// Log lines of an app's instances.
#[utoipa::path(get, path = "/v1/apps/{app}/logs", tag = "instances", params(("app" = String, Path), LogsQuery),
    responses((status = 200, body = LogsView, description = "With `follow=true`: server-sent events `instance`, `line`, `gap`, `live` (an instance told what was there before), `begun` (all that are there were named), `end` (nothing will come any more: why)."),
        (status = "default", body = ProblemBody)))]
pub(crate) async fn app_logs(
    State(state): State<ApiState>,
    Segments(app): Segments<String>,
    Params(query): Params<LogsQuery>,
) -> Outcome<Response> {
    let app = query.app(&app)?;
    state.read_existing(&keys::app_key(&app), format!("app {}", app.app)).await?;
    let lane = query.lane.clone();
    if let Some(lane) = &lane
        && !app_exists(&state, &app, Some(lane))
    {
        return Err(Problem::not_found(format!("lane {lane} of app {}", app.app)));
    }
    let space = app.space_ref();
    let wanted = Wanted {
        what: match &lane {
            Some(lane) => format!("lane {lane} of app {}", app.app),
            None => format!("app {}", app.app),
        },
        exists: {
            let (app, lane) = (app.clone(), lane.clone());
            Box::new(move |state| app_exists(state, &app, lane.as_ref()))
        },
        find: Box::new(move |state| find_targets(state, &space, Some(&app), lane.as_ref())),
    };
    answer(&state, &query, wanted).await
}

/// Log lines of one instance.
#[utoipa::path(get, path = "/v1/instances/{id}/logs", tag = "instances", params(("id" = String, Path), LogsQuery),
    responses((status = 200, body = LogsView, description = "With `follow=true`: server-sent events `instance`, `line`, `gap`, `live` (an instance told what was there before), `begun` (all that are there were named), `end` (nothing will come any more: why)."),
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
    let exists = find.clone();
    let wanted = Wanted {
        what: format!("instance {id}"),
        exists: Box::new(move |state| !exists(state).is_empty()),
        find: Box::new(find),
    };
    answer(&state, &query, wanted).await
}

type Asked<T> = Box<dyn Fn(&ApiState) -> T + Send + Sync>;

/// Whose lines are read.
struct Wanted {
    /// For people: `app shop`.
    what: String,
    /// Lines can still come of it.
    exists: Asked<bool>,
    /// Its instances that are known now.
    find: Asked<Vec<Target>>,
}

/// The app, or the lane of it that is asked for, is there.
fn app_exists(state: &ApiState, app: &AppRef, lane: Option<&LaneName>) -> bool {
    let cache = &state.core.cache;
    match lane {
        None => cache.app(app).is_some(),
        Some(lane) => cache.groups_of(app).iter().any(|(name, _)| name.lane == *lane),
    }
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

async fn answer(state: &ApiState, query: &LogsQuery, wanted: Wanted) -> Outcome<Response> {
    let tail = query.tail.unwrap_or(TAIL);
    if tail > MAX_TAIL {
        return Err(Problem::field("tail", format!("has to be at most {MAX_TAIL}")));
    }
    if query.follow {
        let state = state.clone();
        return Ok(stream(&state.clone(), move |out| follow::all(state, wanted, tail, out)));
    }
    let core = &state.core;
    let read = |target: Target| async move {
        let lines = read_log(core, target.cell, target.instance, tail, Duration::ZERO).await;
        lines.map_err(|error| error.to_string())
    };
    Ok(read_answer(false, &read_all((wanted.find)(state), read).await))
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
}
