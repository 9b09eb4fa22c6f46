//! A worker's thread: one runtime, its sockets, its tick.

use crate::access_log::LogBuffer;
use crate::cache::Cache;
use crate::client::accept::{self, Kind};
use crate::client::open_connections::OpenConnections;
use crate::deadline::TICK;
use crate::metrics::Registry;
use crate::settings::GatewaySettings;
use crate::sticky::StickyKey;
use crate::stream_proxy::accept::Mode;
use crate::stream_proxy::{accept as streams, udp};
use crate::table::{LocalTable, SharedTable};
use crate::vital::Vital;
use crate::worker::{Shared, Worker};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// What a worker does at a listener.
#[derive(Clone)]
pub(crate) enum Serves {
    /// Requests.
    Http(Kind),
    /// Connections of stream routes.
    Stream(Mode),
    /// Datagrams of stream routes.
    Datagrams,
}

/// A worker's own socket.
pub(crate) enum WorkerSocket {
    Tcp(std::net::TcpListener),
    Udp(std::net::UdpSocket),
}

/// What workers are told about listeners, which are known by numbers.
pub(crate) enum Order {
    Open(u64, WorkerSocket, Serves),
    Close(u64),
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
    pub(crate) cache: Arc<Cache>,
    pub(crate) vital: Vital,
    pub(crate) orders: mpsc::UnboundedReceiver<Order>,
}

/// How the workers are to end, once they are to end at all.
pub(crate) type Drain = Option<End>;

/// See [`Drain`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// When, at the latest.
    pub(crate) at: std::time::Instant,
    /// Somebody else accepts already: clients that say nothing are waited for so long.
    pub(crate) quiet_ms: Option<u64>,
}

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
        Shared { sticky: parts.sticky, open_connections: parts.open_connections, cache: parts.cache },
    );
    let vital = parts.vital;
    let ticking = watched(&vital, "the tick of a worker", tick(worker.clone()));
    let mut listening = Listening { worker: worker.clone(), vital, open: HashMap::new() };
    let mut orders = parts.orders;
    let end = loop {
        if let Some(end) = *drain.borrow_and_update() {
            break end;
        }
        tokio::select! {
            changed = drain.changed() => if changed.is_err() { return },
            Some(order) = orders.recv() => listening.obey(order),
        }
    };
    worker.quiet_ms.set(end.quiet_ms);
    worker.draining.set(true);
    worker.deadlines.wake_all();
    listening.end(end).await;
    let end = Instant::from_std(end.at);
    while worker.metrics.connections.get() > 0 && Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    ticking.abort();
    worker.flush_log();
}

/// The listeners of a worker.
struct Listening {
    worker: Rc<Worker>,
    vital: Vital,
    open: HashMap<u64, (watch::Sender<Drain>, JoinHandle<()>)>,
}

impl Listening {
    fn obey(&mut self, order: Order) {
        match order {
            Order::Open(number, socket, serves) => match self.serve(socket, serves) {
                Ok(open) => drop(self.open.insert(number, open)),
                Err(error) => {
                    tracing::error!(%error, "a listener cannot be used");
                    self.vital.fails("a listener");
                }
            },
            Order::Close(number) => {
                if let Some((close, _)) = self.open.remove(&number) {
                    // Who is connected is served on.
                    let _ = close.send(Some(End { at: std::time::Instant::now(), quiet_ms: None }));
                }
            }
        }
    }

    fn serve(
        &self,
        socket: WorkerSocket,
        serves: Serves,
    ) -> io::Result<(watch::Sender<Drain>, JoinHandle<()>)> {
        let (close, closed) = watch::channel(None);
        let worker = self.worker.clone();
        let name = "a listener";
        let task = match (socket, serves) {
            (WorkerSocket::Tcp(listener), Serves::Http(kind)) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                passing(&self.vital, name, accept::run(worker, listener, kind, closed))
            }
            (WorkerSocket::Tcp(listener), Serves::Stream(mode)) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                passing(&self.vital, name, streams::run(worker, listener, mode, closed))
            }
            (WorkerSocket::Udp(socket), Serves::Datagrams) => {
                let socket = tokio::net::UdpSocket::from_std(socket)?;
                passing(&self.vital, name, udp::run(worker, socket, closed))
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        Ok((close, task))
    }

    /// Ends all of them; returns when what waits in their queues is accepted.
    async fn end(self, end: End) {
        for (close, _) in self.open.values() {
            let _ = close.send(Some(end));
        }
        for (_, task) in self.open.into_values() {
            let _ = task.await;
        }
    }
}

/// A listener may be closed; one that panics is missed.
fn passing(vital: &Vital, name: &'static str, part: impl Future<Output = ()> + 'static) -> JoinHandle<()> {
    let vital = vital.clone();
    tokio::task::spawn_local(async move { vital.watch_passing(name, part).await })
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
