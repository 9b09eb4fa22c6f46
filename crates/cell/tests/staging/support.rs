//! A cell with a blob store that takes what is built.

use crate::bench::{self, Stage};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use towpath_archive::{PackOptions, pack};
use towpath_bus::{Bus, Subscription};
use towpath_types::health::Probe;
use towpath_types::{AppName, AppRef, Digest, ErrorCode, InstanceId, Millis, OperationId, SpaceRef};
use towpath_wire::cell::{CellCommand, CellReply, InstanceState};
use towpath_wire::staging::{StageEvent, StageJob, StageOutput, StageResult};
use towpath_wire::subject;

/// Longest wait for one build.
pub const BUILD: Duration = Duration::from_secs(300);

type Stored = Arc<Mutex<HashMap<String, Bytes>>>;

/// A cell that can build.
pub struct Yard {
    pub stage: Stage,
    pub stored: Stored,
    _tasks: JoinSet<()>,
}

/// What a build said.
#[derive(Debug, Default)]
pub struct Said {
    pub steps: Vec<String>,
    pub lines: Vec<String>,
    pub alive: usize,
    pub events: u64,
}

impl Said {
    pub fn text(&self) -> String {
        self.lines.join("\n")
    }
}

impl Yard {
    pub async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// A cell with other settings.
    pub async fn with(change: impl FnOnce(&mut towpath_cell::CellSettings)) -> Self {
        let mut stage = Stage::new().await;
        let (stored, mut tasks) = (Stored::default(), JoinSet::new());
        stage.settings.api = vec![serve(stored.clone(), &mut tasks).await];
        change(&mut stage.settings);
        stage.start().await;
        Self { stage, stored, _tasks: tasks }
    }

    pub async fn end(self) {
        self.stage.end().await;
    }

    /// Packs and stores a source.
    pub fn upload(&self, dir: &Path) -> Digest {
        let mut bytes = Vec::new();
        let summary = pack(dir, &PackOptions::default(), &mut bytes, &mut |_| {}).unwrap();
        self.store_source(summary.digest, bytes);
        summary.digest
    }

    pub fn store_source(&self, digest: Digest, bytes: Vec<u8>) {
        self.stored.lock().unwrap().insert(format!("/internal/v1/sources/{digest}"), bytes.into());
    }

    /// A job for a source.
    pub fn job(&self, source: Digest) -> StageJob {
        let mut random = [0; 10];
        fastrand::fill(&mut random);
        StageJob {
            operation: OperationId::mint(1, random),
            app: AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap()),
            source,
            builder: None,
            command: None,
            env: BTreeMap::new(),
            timeout: Millis(u64::try_from(BUILD.as_millis()).unwrap()),
        }
    }

    /// Hands in a job and answers the stream of its output.
    pub async fn submit(&self, job: StageJob) -> Subscription {
        let output = self.stage.bus.subscribe(&subject::staging_output(job.operation)).await.unwrap();
        assert_eq!(self.stage.command(&CellCommand::Stage(job)).await, CellReply::Accepted);
        output
    }

    /// Builds files (path, content) and answers how it ended.
    pub async fn build(&self, files: &[(&str, &str)]) -> (Said, Result<StageResult, (ErrorCode, String)>) {
        let dir = tempfile::tempdir().unwrap();
        write_all(dir.path(), files);
        follow(self.submit(self.job(self.upload(dir.path()))).await).await
    }

    /// Runs what was built and waits until it is healthy; answers its port.
    pub async fn run(&self, result: &StageResult) -> (InstanceId, u16) {
        let mut spec = bench::spec((result.artifact, result.artifact_bytes), &result.command);
        spec.env = result.env.clone();
        spec.health.probe = Probe::Port;
        spec.health.start_timeout = Millis::secs(60);
        let id = spec.instance;
        self.stage.want(vec![spec]).await;
        let report = self.stage.until_state(id, InstanceState::Ready).await;
        (id, report.port)
    }

    /// Runs what was built, and answers what it serves at `/`. It is stopped by SIGTERM afterwards, and must end in its grace time.
    pub async fn serve(&self, result: &StageResult) -> String {
        let (id, port) = self.run(result).await;
        let answer = bench::fetch(port).await.unwrap();
        self.stage.want(vec![]).await;
        self.stage.until_gone(id).await;
        answer
    }

    /// Fails where the cell cannot build this: `make test` installs what the tests need.
    pub async fn can(&self, builder: &str) -> bool {
        let announce = self.stage.until("the builders", |announce| !announce.builders.is_empty()).await;
        let can = announce.builders.iter().any(|name| name == builder);
        assert!(can, "no tools for {builder} on this machine; `make test` installs them");
        can
    }

    /// The files of an artifact.
    pub fn unpack(&self, result: &StageResult) -> tempfile::TempDir {
        let stored = self.stored.lock().unwrap();
        let bytes = &stored[&format!("/internal/v1/artifacts/{}", result.artifact)];
        let dir = tempfile::tempdir().unwrap();
        let limits = towpath_archive::Limits::artifact();
        towpath_archive::unpack_artifact(
            &bytes[..],
            &dir.path().join("app"),
            &limits,
            Some(&result.artifact),
        )
        .unwrap();
        dir
    }
}

/// Follows a build to its end.
pub async fn follow(mut output: Subscription) -> (Said, Result<StageResult, (ErrorCode, String)>) {
    let mut said = Said::default();
    let last = tokio::time::timeout(BUILD, async {
        loop {
            let event: StageEvent = towpath_wire::decode(&output.next().await.unwrap().payload).unwrap();
            said.events += 1;
            assert!(event.seq >= said.events, "numbers count up");
            match event.event {
                StageOutput::Step { title } => said.steps.push(title),
                StageOutput::Line { text } => {
                    assert!(text.len() <= 4096 && !text.contains(['\n', '\u{1b}', '\0']), "{text:?}");
                    said.lines.push(text);
                }
                StageOutput::Alive => said.alive += 1,
                StageOutput::Done(result) => return Ok(result),
                StageOutput::Failed { code, message } => return Err((code, message)),
            }
        }
    });
    let last = last.await.expect("the build ends");
    (said, last)
}

pub fn write_all(dir: &Path, files: &[(&str, &str)]) {
    for (path, content) in files {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// A directory of the repository.
pub fn example(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/apps").join(name)
}

async fn serve(stored: Stored, tasks: &mut JoinSet<()>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stored = stored.clone();
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let stored = stored.clone();
                async move {
                    let path = request.uri().path().to_owned();
                    if request.method() == hyper::Method::PUT {
                        let body = request.into_body().collect().await?.to_bytes();
                        stored.lock().unwrap().insert(path, body);
                        return Ok::<_, hyper::Error>(hyper::Response::new(Full::new(Bytes::new())));
                    }
                    let found = stored.lock().unwrap().get(&path).cloned();
                    let status = if found.is_some() { 200 } else { 404 };
                    let response = hyper::Response::builder().status(status);
                    Ok(response.body(Full::new(found.unwrap_or_default())).unwrap())
                }
            });
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
    format!("http://{address}")
}
