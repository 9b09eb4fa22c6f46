//! The part of a cell that takes commands: builds and logs.

use crate::client::Client;
use crate::fleet::Fleet;
use http::Method;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use towpath_bus::Bus;
use towpath_types::{CellId, Digest, ErrorCode, InstanceId};
use towpath_wire::cell::{CellCommand, CellReply};
use towpath_wire::log::{LogChunk, LogLine, LogQuery, LogSource};
use towpath_wire::staging::{StageEvent, StageJob, StageOutput, StageResult};
use towpath_wire::{decode, encode, subject};

/// Whether the silent cell was asked already. Each test is a process of its own.
static SILENCED: Mutex<bool> = Mutex::new(false);

#[derive(Default)]
struct State {
    jobs: Vec<StageJob>,
    cancelled: usize,
    log_queries: Vec<LogQuery>,
    held: bool,
}

/// Takes the commands of one cell; ends when dropped. What a build does is said by the push's `builder`: `fail`,
/// `refuse`, `silent-once` (the first cell that is asked takes the job and says nothing more); all else works.
pub(crate) struct Stager {
    state: Arc<Mutex<State>>,
    bus: Arc<dyn Bus>,
    task: JoinHandle<()>,
}

impl Drop for Stager {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Stager {
    pub(crate) async fn start(fleet: &Fleet, cell: CellId, token: String) -> Self {
        Self::start_held(fleet, cell, token, false).await
    }

    /// Likewise; builds do not end while it is held.
    pub(crate) async fn start_held(fleet: &Fleet, cell: CellId, token: String, held: bool) -> Self {
        let (bus, state) = (fleet.bus(), Arc::new(Mutex::new(State { held, ..State::default() })));
        let mut commands = bus.subscribe(&subject::cell_command(cell)).await.unwrap();
        let running = fleet.manager.as_ref().map(towpath_manager::Manager::api_address);
        // One that is held needs none.
        let address = running.unwrap_or_else(|| ([127, 0, 0, 1], 1).into());
        let api = Client { address, token: Some(token), headers: Vec::new() };
        let (replies, shared) = (bus.clone(), state.clone());
        let task = tokio::spawn(async move {
            // Builds end with the cell.
            let mut builds = JoinSet::new();
            while let Some(message) = commands.next().await {
                let reply = match decode::<CellCommand>(&message.payload).unwrap() {
                    CellCommand::Stage(job) => take(&mut builds, &replies, &api, &shared, job),
                    CellCommand::CancelStage { .. } => {
                        shared.lock().unwrap().cancelled += 1;
                        CellReply::Accepted
                    }
                    CellCommand::Logs(query) => {
                        shared.lock().unwrap().log_queries.push(query.clone());
                        CellReply::Log { lines: lines(&query) }
                    }
                    CellCommand::Cordon { .. } => CellReply::Accepted,
                };
                replies.publish(&message.reply.unwrap(), encode(&reply).into()).await.unwrap();
            }
        });
        Self { state, bus, task }
    }

    /// Dies.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// The jobs so far.
    pub(crate) fn jobs(&self) -> Vec<StageJob> {
        self.state.lock().unwrap().jobs.clone()
    }

    pub(crate) fn cancelled(&self) -> usize {
        self.state.lock().unwrap().cancelled
    }

    /// Questions for logs that asked for further lines.
    pub(crate) fn follows(&self, instance: InstanceId) -> usize {
        let state = self.state.lock().unwrap();
        state.log_queries.iter().filter(|query| query.instance == instance && query.follow_ms > 0).count()
    }

    /// Builds that are under way do not end while this is on.
    pub(crate) fn hold(&self, held: bool) {
        self.state.lock().unwrap().held = held;
    }

    /// A line as the cell publishes it.
    pub(crate) async fn say(&self, instance: InstanceId, seq: u64, text: &str) {
        let chunk = LogChunk { instance, seq, lines: vec![line(seq, text)] };
        self.bus.publish(&subject::instance_log(instance), encode(&chunk).into()).await.unwrap();
    }
}

fn line(at_ms: u64, text: &str) -> LogLine {
    LogLine { at_ms, source: LogSource::Stdout, text: text.into() }
}

fn lines(query: &LogQuery) -> Vec<LogLine> {
    let all = [line(1, "listening on nothing"), line(2, "boom")];
    all.into_iter().rev().take(query.tail).rev().collect()
}

fn take(
    builds: &mut JoinSet<()>,
    bus: &Arc<dyn Bus>,
    api: &Client,
    state: &Arc<Mutex<State>>,
    job: StageJob,
) -> CellReply {
    state.lock().unwrap().jobs.push(job.clone());
    let kind = job.builder.clone().unwrap_or_default();
    if kind == "refuse" {
        return CellReply::Refused { code: ErrorCode::NoBuilder, message: "no builder knows this".into() };
    }
    let first = !std::mem::replace(&mut *SILENCED.lock().unwrap(), kind == "silent-once");
    if kind != "silent-once" || !first {
        builds.spawn(build(bus.clone(), api.clone(), state.clone(), job));
    }
    CellReply::Accepted
}

async fn build(bus: Arc<dyn Bus>, api: Client, state: Arc<Mutex<State>>, job: StageJob) {
    let mut seq = 0;
    let mut tell = async |event| {
        seq += 1;
        let payload = encode(&StageEvent { seq, event }).into();
        bus.publish(&subject::staging_output(job.operation), payload).await.unwrap();
    };
    tell(StageOutput::Step { title: "Copying files".into() }).await;
    tell(StageOutput::Line { text: "index.html".into() }).await;
    while state.lock().unwrap().held {
        tell(StageOutput::Alive).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let source = api.get(&format!("/internal/v1/sources/{}", job.source)).await;
    assert_eq!(source.status, 200, "the source can be fetched");
    if job.builder.as_deref() == Some("fail") {
        // As the cell says it: with the last lines.
        let message = "npm ended with status 1\n  index.html".into();
        return tell(StageOutput::Failed { code: ErrorCode::BuildFailed, message }).await;
    }
    let artifact = format!("artifact of {} {:?}", job.source, job.env).into_bytes();
    let digest = Digest::from_bytes(Sha256::digest(&artifact).into());
    let bytes = artifact.len() as u64;
    let stored = api.send(Method::PUT, &format!("/internal/v1/artifacts/{digest}"), artifact).await;
    assert!(stored.status.is_success(), "{stored:?}");
    tell(StageOutput::Done(StageResult {
        builder: job.builder.unwrap_or_else(|| "static".into()),
        artifact: digest,
        artifact_bytes: bytes,
        command: "serve".into(),
        env: [("FROM_BUILD".to_owned(), "1".to_owned())].into(),
        health: Default::default(),
    }))
    .await;
}
