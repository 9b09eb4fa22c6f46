//! A worker's thread: one runtime, its sockets, its tick.

use crate::access_log::LogBuffer;
use crate::client::accept::{self, Kind};
use crate::client::open_connections::OpenConnections;
use crate::deadline::TICK;
use crate::metrics::Registry;
use crate::settings::GatewaySettings;
use crate::sticky::StickyKey;
use crate::table::{LocalTable, SharedTable};
use crate::tls::TlsListener;
use crate::vital::Vital;
use crate::worker::Worker;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use towpath_types::NetBlock;

/// A worker's own listening socket.
pub(crate) struct WorkerSocket {
    pub(crate) listener: std::net::TcpListener,
    pub(crate) tls: Option<Arc<TlsListener>>,
    /// Proxies whose connections begin with a header of the PROXY protocol.
    pub(crate) proxies: Arc<[NetBlock]>,
}

/// What a worker is made of.
pub(crate) struct WorkerParts {
    pub(crate) index: usize,
    pub(crate) settings: Arc<GatewaySettings>,
    pub(crate) shared: Arc<SharedTable>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) log: LogBuffer,
    pub(crate) sticky: StickyKey,
    pub(crate) open_connections: OpenConnections,
    pub(crate) vital: Vital,
    pub(crate) sockets: Vec<WorkerSocket>,
}

/// When the workers are to end, once they are to end at all.
pub(crate) type Drain = Option<std::time::Instant>;

/// Starts the thread. It ends when `drain` says so and its connections are done, or their time is up.
pub(crate) fn spawn(
    parts: WorkerParts,
    drain: watch::Receiver<Drain>,
) -> io::Result<std::thread::JoinHandle<()>> {
    let vital = parts.vital.clone();
    let mut builder = Builder::new_current_thread();
    builder.enable_io().enable_time().event_interval(61);
    std::thread::Builder::new().name(format!("towpath-gw-{}", parts.index)).spawn(move || {
        match builder.build_local(LocalOptions::default()) {
            Ok(runtime) => vital.watch_thread("a worker", || runtime.block_on(run(parts, drain))),
            Err(error) => {
                tracing::error!(%error, "a worker cannot start");
                vital.fails("a worker");
            }
        }
    })
}

async fn run(parts: WorkerParts, mut drain: watch::Receiver<Drain>) {
    let table = LocalTable::new(parts.shared, parts.index);
    let worker = Worker::new(
        parts.index,
        parts.settings,
        table,
        parts.registry,
        parts.log,
        parts.sticky,
        parts.open_connections,
    );
    let vital = parts.vital;
    let ticking = watched(&vital, "the tick of a worker", tick(worker.clone()));
    let mut accepting = Vec::new();
    for socket in parts.sockets {
        match tokio::net::TcpListener::from_std(socket.listener) {
            Ok(listener) => {
                let accept = accept::run(
                    worker.clone(),
                    listener,
                    Kind { tls: socket.tls, proxies: socket.proxies },
                    drain.clone(),
                );
                accepting.push(watched(&vital, "a listener", accept));
            }
            Err(error) => {
                tracing::error!(%error, "a listener cannot be used");
                vital.fails("a listener");
            }
        }
    }
    let end = loop {
        if let Some(end) = *drain.borrow_and_update() {
            break end;
        }
        if drain.changed().await.is_err() {
            return;
        }
    };
    worker.draining.set(true);
    worker.deadlines.wake_all();
    for accepting in accepting {
        let _ = accepting.await;
    }
    let end = Instant::from_std(end);
    while worker.metrics.connections.get() > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ticking.abort();
    worker.flush_log();
}

fn watched(
    vital: &Vital,
    name: &'static str,
    part: impl Future<Output = ()> + 'static,
) -> tokio::task::JoinHandle<()> {
    let vital = vital.clone();
    tokio::task::spawn_local(async move { vital.watch(name, part).await })
}

/// Deadlines every tick, log lines several times a second, everything else about once a second.
async fn tick(worker: Rc<Worker>) {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for n in 0_u64.. {
        ticks.tick().await;
        worker.tick();
        if n % 20 == 0 {
            worker.sweep();
        } else if n % 4 == 0 {
            worker.flush_log();
        }
    }
}
