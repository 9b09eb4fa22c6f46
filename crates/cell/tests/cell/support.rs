//! A cell with a manager, a bus and a blob store that a test drives.
#![allow(dead_code, unreachable_pub, reason = "not every test file uses all of it")]

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use towpath_archive::{ArtifactOptions, pack_artifact};
use towpath_bus::{Bus, MemoryBus};
use towpath_cell::{Cell, CellSettings, ShimProgram, StopMode};
use towpath_types::health::HealthCheck;
use towpath_types::spec::{Limits, Wanted};
use towpath_types::upstream::Protocol;
use towpath_types::{AppName, AppRef, Digest, InstanceId, LaneName, Millis, Revision, SpaceRef};
use towpath_wire::cell::{
    CellAnnounce, CellCommand, CellOrder, CellPoke, CellReply, InstanceReport, InstanceSpec, InstanceState,
    SyncPage, SyncRequest,
};
use towpath_wire::subject;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program that a test's cells use as shim.
pub fn testbed() -> PathBuf {
    env!("CARGO_BIN_EXE_cell-testbed").into()
}

/// Artifacts by digest, served over HTTP as a manager would.
#[derive(Clone, Default)]
pub struct Blobs {
    stored: Arc<Mutex<HashMap<String, Bytes>>>,
    pub requests: Arc<Mutex<u32>>,
}

impl Blobs {
    pub async fn serve(&self, tasks: &mut JoinSet<()>) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let blobs = self.clone();
        tasks.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let blobs = blobs.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                        *blobs.requests.lock().unwrap() += 1;
                        assert_eq!(request.headers()["authorization"], "Bearer token");
                        let found = blobs.stored.lock().unwrap().get(request.uri().path()).cloned();
                        async move {
                            let status = if found.is_some() { 200 } else { 404 };
                            let body = Full::new(found.unwrap_or_default());
                            hyper::Response::builder().status(status).body(body)
                        }
                    });
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        address
    }

    /// Packs files (name, content) and stores them as an artifact.
    pub fn add(&self, files: &[(&str, &str)]) -> (Digest, u64) {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let mut packed = Vec::new();
        let summary = pack_artifact(dir.path(), &ArtifactOptions { owner: None }, &mut packed).unwrap();
        let size = packed.len() as u64;
        self.put(summary.digest, packed);
        (summary.digest, size)
    }

    pub fn put(&self, digest: Digest, bytes: Vec<u8>) {
        self.stored.lock().unwrap().insert(format!("/internal/v1/artifacts/{digest}"), bytes.into());
    }
}

/// What the fake manager answers.
#[derive(Clone)]
pub struct Wish {
    pub epoch: u64,
    pub revision: u64,
    pub instances: Vec<InstanceSpec>,
    pub page: usize,
    pub silent: bool,
    /// Whether a request for a later revision gets no answer, as a manager does it.
    pub strict: bool,
}

/// Ends the instances below a directory when a test fails: they are made to survive everything else.
pub struct Sweep(pub PathBuf);

impl Drop for Sweep {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, kill};
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let shims = shims_below(&self.0);
            if shims.is_empty() || Instant::now() > deadline {
                return;
            }
            for shim in shims {
                let _ = kill(nix::unistd::Pid::from_raw(shim), Signal::SIGUSR1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn shims_below(dir: &Path) -> Vec<i32> {
    let mark = format!("\0__shim\0instance\0{}/", dir.display());
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let is_it = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&mark)
    };
    pids.filter(is_it).collect()
}

/// A cell and everything around it.
pub struct Stage {
    _sweep: Sweep,
    pub dir: tempfile::TempDir,
    pub bus: Arc<MemoryBus>,
    pub blobs: Blobs,
    pub wish: Arc<Mutex<Wish>>,
    heard: Arc<Heard>,
    at: Mutex<usize>,
    pub settings: CellSettings,
    pub cell: Option<Cell>,
    tasks: JoinSet<()>,
}

impl Stage {
    pub async fn new() -> Self {
        let mut tasks = JoinSet::new();
        let dir = tempfile::tempdir().unwrap();
        open_to_all(dir.path());
        let bus = Arc::new(MemoryBus::new());
        let blobs = Blobs::default();
        let api = blobs.serve(&mut tasks).await;
        let wish = Arc::new(Mutex::new(Wish {
            epoch: 1,
            revision: 1,
            instances: vec![],
            page: 100,
            silent: false,
            strict: false,
        }));
        spawn_manager(&bus, &wish, &mut tasks).await;
        let heard = Arc::new(Heard::default());
        spawn_listener(&bus, &heard, &mut tasks).await;
        let mut settings = CellSettings::new(dir.path().join("data"), format!("http://{api}"), "token");
        settings.shim = ShimProgram { program: testbed(), args: vec!["__shim".into()] };
        settings.sync_interval = Duration::from_millis(200);
        Self {
            _sweep: Sweep(dir.path().to_owned()),
            dir,
            bus,
            blobs,
            wish,
            heard,
            at: Mutex::new(0),
            settings,
            cell: None,
            tasks,
        }
    }

    pub async fn start(&mut self) {
        self.cell = Some(Cell::start(self.settings.clone(), self.bus.clone()).await.unwrap());
    }

    pub async fn stop(&mut self, mode: StopMode) {
        self.cell.take().unwrap().stop(mode).await;
    }

    /// Ends everything that runs.
    pub async fn end(mut self) {
        self.stop(StopMode::StopInstances(Duration::from_secs(2))).await;
    }

    /// Changes what should run and pokes the cell.
    pub async fn want(&self, instances: Vec<InstanceSpec>) {
        let (epoch, revision) = {
            let mut wish = self.wish.lock().unwrap();
            wish.revision += 1;
            wish.instances = instances;
            (wish.epoch, wish.revision)
        };
        let poke = CellPoke { epoch, revision: Revision(revision) };
        if let Some(cell) = &self.cell {
            self.bus
                .publish(&subject::cell_poke(cell.id()), towpath_wire::encode(&poke).into())
                .await
                .unwrap();
        }
    }

    /// Waits until an announcement satisfies the condition: the last one that was waited for, or a later one. None is missed.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&CellAnnounce) -> bool) -> CellAnnounce {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let arrival = self.heard.arrived.notified();
            {
                let all = self.heard.all.lock().unwrap();
                let mut at = self.at.lock().unwrap();
                while *at < all.len() {
                    if holds(&all[*at]) {
                        return all[*at].clone();
                    }
                    *at += 1;
                }
                // The last one stays to be looked at again.
                *at = all.len().saturating_sub(1);
                assert!(Instant::now() < deadline, "{what} did not come; last: {:#?}", all.last());
            }
            let _ = tokio::time::timeout(Duration::from_secs(1), arrival).await;
        }
    }

    /// The last announcement.
    pub fn last(&self) -> CellAnnounce {
        self.heard.all.lock().unwrap().last().unwrap().clone()
    }

    /// Every announcement so far.
    pub fn all(&self) -> Vec<CellAnnounce> {
        self.heard.all.lock().unwrap().clone()
    }

    /// Waits until the instance is announced in this state.
    pub async fn until_state(&self, instance: InstanceId, state: InstanceState) -> InstanceReport {
        let is_it = |report: &&InstanceReport| report.instance == instance && report.state == state;
        let found = self.until(&format!("{state:?}"), |a| a.instances.iter().any(|r| is_it(&r))).await;
        found.instances.iter().find(is_it).unwrap().clone()
    }

    /// Waits until the instance is announced with a reason that begins so.
    pub async fn until_reason(&self, instance: InstanceId, begin: &str) -> InstanceReport {
        let is_it =
            |report: &&InstanceReport| report.instance == instance && report.reason.starts_with(begin);
        let found = self.until(begin, |a| a.instances.iter().any(|r| is_it(&r))).await;
        found.instances.iter().find(is_it).unwrap().clone()
    }

    pub async fn until_gone(&self, instance: InstanceId) {
        self.until("its end", |a| a.instances.iter().all(|r| r.instance != instance)).await;
    }

    pub async fn command(&self, command: &CellCommand) -> CellReply {
        self.order(&CellOrder { epoch: 0, command: command.clone() }).await
    }

    pub async fn order(&self, command: &CellOrder) -> CellReply {
        let subject = subject::cell_command(self.cell.as_ref().unwrap().id());
        let answer =
            self.bus.request(&subject, towpath_wire::encode(command).into(), PATIENCE).await.unwrap();
        towpath_wire::decode(&answer).unwrap()
    }

    /// A spec that runs `command` beside these files.
    pub fn spec(&self, files: &[(&str, &str)], command: &str) -> InstanceSpec {
        spec(self.blobs.add(files), command)
    }

    pub fn instance_dir(&self, instance: InstanceId) -> PathBuf {
        self.dir.path().join("data/run/instances").join(instance.to_string())
    }
}

pub fn spec((artifact, artifact_bytes): (Digest, u64), command: &str) -> InstanceSpec {
    let mut random = [0; 10];
    fastrand::fill(&mut random);
    InstanceSpec {
        instance: InstanceId::mint(1, random),
        app: AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap()),
        lane: LaneName::base(),
        ordinal: 3,
        release: artifact,
        artifact,
        artifact_bytes,
        command: command.into(),
        env: BTreeMap::new(),
        secrets: Default::default(),
        limits: Limits::default(),
        health: HealthCheck {
            interval: Millis(200),
            timeout: Millis(1000),
            start_timeout: Millis::secs(10),
            ..HealthCheck::default()
        },
        protocol: Protocol::Http1,
        grace: Millis::secs(5),
        wanted: Wanted::Run,
    }
}

/// Temporary directories are closed; instances run as other users when root.
pub fn open_to_all(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o711)).unwrap();
}

async fn spawn_manager(bus: &Arc<MemoryBus>, wish: &Arc<Mutex<Wish>>, tasks: &mut JoinSet<()>) {
    let mut requests = bus.subscribe_queue(subject::CELL_SYNC, subject::MANAGERS).await.unwrap();
    let (bus, wish) = (bus.clone(), wish.clone());
    tasks.spawn(async move {
        while let Some(message) = requests.next().await {
            let request: SyncRequest = towpath_wire::decode(&message.payload).unwrap();
            let wish = wish.lock().unwrap().clone();
            // A manager gives no answer that is older than what was asked for.
            if wish.silent || (wish.strict && request.at_least > Revision(wish.revision)) {
                continue;
            }
            let from: usize = request.cursor.map_or(0, |cursor| cursor.parse().unwrap());
            let to = (from + wish.page).min(wish.instances.len());
            let page = SyncPage {
                epoch: wish.epoch,
                revision: Revision(wish.revision),
                instances: wish.instances[from..to].to_vec(),
                next: (to < wish.instances.len()).then(|| to.to_string()),
                parcel: None,
                withheld: BTreeMap::new(),
                kept: Vec::new(),
                stamps: BTreeMap::new(),
            };
            bus.publish(&message.reply.unwrap(), towpath_wire::encode(&page).into()).await.unwrap();
        }
    });
}

/// All announcements.
#[derive(Default)]
struct Heard {
    all: Mutex<Vec<CellAnnounce>>,
    arrived: Notify,
}

async fn spawn_listener(bus: &Arc<MemoryBus>, heard: &Arc<Heard>, tasks: &mut JoinSet<()>) {
    let mut announcements = bus.subscribe(subject::CELL_ANNOUNCE_ALL).await.unwrap();
    let heard = heard.clone();
    tasks.spawn(async move {
        while let Some(message) = announcements.next().await {
            heard.all.lock().unwrap().push(towpath_wire::decode(&message.payload).unwrap());
            heard.arrived.notify_waiters();
        }
    });
}

/// Polls until the condition holds.
pub async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Living processes of the instance.
pub fn processes_of(instance: InstanceId) -> Vec<u32> {
    let mark = format!("TOWPATH_INSTANCE={instance}");
    let pids =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    let is_marked = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|env| env.split(|b| *b == 0).any(|entry| entry == mark.as_bytes()))
    };
    pids.filter(is_marked).collect()
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// An HTTP server that says which variant it is, in files of an artifact.
pub const SERVER: &str = r#"
import http.server, os, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer((os.environ.get("HOST", "127.0.0.1"), int(os.environ["PORT"])), Handler).serve_forever()
"#;

/// What the server answers, or why not.
pub async fn fetch(port: u16) -> std::io::Result<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
