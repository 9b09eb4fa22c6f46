//! The gateway as a whole: what starts, in which order, and how it ends.

use crate::access_log::{self, LogWriter};
use crate::cache::Cache;
use crate::client::open_connections::OpenConnections;
use crate::control::{self, ControlParts, Identity};
use crate::hand_over::{self, Giver, Taken, Word};
use crate::listeners::{Listeners, Speaks};
use crate::metrics::Registry;
use crate::settings::GatewaySettings;
use crate::sticky::StickyKey;
use crate::table::SharedTable;
use crate::tls::{Certificates, TicketKeys, TlsError, TlsListener};
use crate::vital::Vital;
use crate::worker_thread::{self, Drain, End, Order, WorkerParts};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use towpath_bus::Bus;
use towpath_types::{GatewayId, NetBlock};

/// A running gateway. It owns its threads; dropping it without [`Gateway::drain`] ends them at once.
pub struct Gateway {
    id: GatewayId,
    listeners: Listeners,
    admin: Option<SocketAddr>,
    successor: watch::Sender<Option<u32>>,
    vital: Vital,
    drain: watch::Sender<Drain>,
    leaving: watch::Sender<bool>,
    stop_control: Option<oneshot::Sender<()>>,
    workers: Vec<JoinHandle<()>>,
    control: Option<JoinHandle<()>>,
    log: Option<LogWriter>,
}

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// An address cannot be listened on.
    #[error("{address} cannot be listened on")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The data directory cannot be used.
    #[error("the gateway's data directory {path} cannot be used")]
    DataDir {
        /// The directory.
        path: std::path::PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The shared key of sticky cookies cannot be used.
    #[error("sticky_key: the file {path} cannot be used")]
    StickyKey {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// A certificate or key cannot be used.
    #[error("a TLS listener cannot be set up")]
    Tls(#[from] TlsError),
    /// The process that served until now has not handed over.
    #[error("the running gateway does not let this one take over; it goes on serving")]
    TakeOver(#[source] io::Error),
    /// A thread cannot be started.
    #[error("a thread cannot be started")]
    Thread(#[source] io::Error),
}

/// How long clients that say nothing are waited for once another process has taken over, at most.
const QUIET: Duration = Duration::from_secs(10);

impl Gateway {
    /// Starts a gateway and returns once it listens. It serves from its snapshot file at once, and takes part in the bus
    /// as soon as that is there; without a bus it only ever serves the snapshot.
    pub async fn start(
        settings: GatewaySettings,
        bus: Option<Arc<dyn Bus>>,
    ) -> Result<Gateway, GatewayError> {
        let settings = Arc::new(settings);
        crate::descriptors::raise_limit(settings.limits.connections);
        let data_dir = |source| GatewayError::DataDir { path: settings.data_dir.clone(), source };
        std::fs::create_dir_all(&settings.data_dir).map_err(data_dir)?;
        let sticky = load_sticky(&settings)?;
        let tickets = match settings.sticky_key {
            Some(_) => TicketKeys::shared(&sticky),
            None => TicketKeys::random().map_err(TlsError::Random)?,
        };
        let certificates = Certificates::new(tickets);
        let (orders, order_queues) = (0..settings.workers).map(|_| mpsc::unbounded_channel()).unzip();
        let mut taken = settings.take_over.as_ref().and_then(hand_over::TakeOver::take);
        let inherited = taken.as_mut().map(|taken| std::mem::take(&mut taken.sockets)).unwrap_or_default();
        let listeners = Listeners::new(orders, inherited, certificates.clone());
        open_all(&listeners, &settings, &certificates)?;
        let (admin, admin_address) = open_admin(&listeners, &settings)?;
        let identity = Identity::load(&settings.data_dir).map_err(data_dir)?;
        let vital = Vital::default();
        let log = access_log::start(&settings.access_log, &settings.data_dir, &vital).map_err(data_dir)?;
        let registry = Arc::new(Registry::new(settings.workers));
        let cache = Cache::new(&settings.cache, &settings.data_dir);
        let state = control::load_state(&settings);
        let shared = SharedTable::new(control::view_of(&state), settings.workers);
        let (drain, drained) = watch::channel(None);
        let (leaving, leaves) = watch::channel(false);
        let (stop_control, control_stops) = oneshot::channel();
        let (give, giver) = oneshot::channel();
        let mut gateway = Gateway {
            id: identity.gateway,
            listeners: listeners.clone(),
            admin: admin_address,
            successor: watch::Sender::new(None),
            vital: vital.clone(),
            drain,
            leaving,
            stop_control: Some(stop_control),
            workers: Vec::new(),
            control: None,
            log: None,
        };
        let (ready, is_ready) = oneshot::channel();
        let word = Word::new(taken.is_some());
        let parts = ControlParts {
            settings: settings.clone(),
            identity,
            listeners: listeners.clone(),
            shared: shared.clone(),
            registry: registry.clone(),
            sticky: sticky.clone(),
            vital: vital.clone(),
            state,
            certificates,
            admin,
            bus,
            word: word.clone(),
            giver,
            ready: Some(ready),
        };
        gateway.control = Some(spawn_control(parts, leaves, control_stops).map_err(GatewayError::Thread)?);
        // A gateway that runs alone has its table before the first client comes.
        let _ = is_ready.await;
        let way = match taken {
            Some(taken) => Some(until_it_may_go(taken, &shared).await.map_err(GatewayError::TakeOver)?),
            None => None,
        };
        listeners.forget_inherited();
        let workers =
            Workers { settings: &settings, shared, registry, log: &log, sticky, cache, vital, drained };
        gateway.workers = workers.start(order_queues).map_err(GatewayError::Thread)?;
        gateway.log = Some(log);
        if let Some(way) = way {
            // It waits for the other process to end, and so does what is merged with what that one says.
            tokio::spawn(way.serves(word.clone()));
        }
        if let Some(kept) = &settings.hand_over {
            gateway.offer(&settings, kept.0.clone(), word, give);
        }
        Ok(gateway)
    }

    /// From now on another process may take over.
    fn offer(
        &self,
        settings: &GatewaySettings,
        kept: Vec<(String, Arc<OwnedFd>)>,
        word: Word,
        give: oneshot::Sender<control::Offer>,
    ) {
        let listener = match hand_over::listen(&settings.data_dir) {
            Ok(listener) => listener,
            Err(error) => return tracing::warn!(%error, "this gateway cannot be handed over"),
        };
        let giver = Giver {
            listeners: self.listeners.clone(),
            kept,
            word,
            successor: self.successor.clone(),
            flush: None,
        };
        let _ = give.send((giver, listener));
    }

    /// Waits until another process serves in the place of this one, and gives its id. What is under way here is to be drained then.
    pub fn handed_over(&self) -> impl Future<Output = u32> + Send + use<> {
        let mut successor = self.successor.subscribe();
        async move {
            match successor.wait_for(Option::is_some).await.ok().and_then(|pid| *pid) {
                Some(pid) => pid,
                None => std::future::pending().await,
            }
        }
    }

    /// The gateway's id, the same for the life of its data directory.
    pub fn id(&self) -> GatewayId {
        self.id
    }

    /// Where it listens, real ports included, clear text before TLS.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let clear = self.listeners.addresses(|speaks| matches!(speaks, Speaks::Http));
        clear
            .into_iter()
            .chain(self.listeners.addresses(|speaks| matches!(speaks, Speaks::Https(_))))
            .collect()
    }

    /// Where it takes connections and datagrams of stream routes by its settings, real ports included: TCP, TLS that is passed on, UDP.
    pub fn stream_addresses(&self) -> Vec<SocketAddr> {
        let tcp = self.listeners.addresses(|speaks| matches!(speaks, Speaks::Tcp));
        let passed = self.listeners.addresses(|speaks| matches!(speaks, Speaks::TlsPassthrough));
        let tls = self.listeners.addresses(|speaks| matches!(speaks, Speaks::Tls(_)));
        tcp.into_iter()
            .chain(tls)
            .chain(passed)
            .chain(self.listeners.addresses(|speaks| matches!(speaks, Speaks::Udp)))
            .collect()
    }

    /// Where `/metrics` is.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Waits for the death of a part that the gateway cannot do without, and says which: a bug, but one that must not be
    /// missed. The process should end then, so that it is started again.
    pub fn failure(&self) -> impl Future<Output = &'static str> + Send + use<> {
        self.vital.failure()
    }

    /// Stops accepting, tells managers and clients, finishes what is under way until the deadline, ends all threads.
    pub async fn drain(mut self, deadline: Duration) {
        self.vital.ends();
        // The other process lives on under the same id.
        if self.successor.borrow().is_none() {
            let _ = self.leaving.send(true);
        }
        let quiet = self.successor.borrow().map(|_| QUIET.min(deadline / 2));
        let quiet_ms = quiet.map(|quiet| u64::try_from(quiet.as_millis()).unwrap_or(u64::MAX).max(1));
        // The workers' own copies of the sockets are the last ones then.
        self.listeners.let_go();
        let _ = self.drain.send(Some(End { at: Instant::now() + deadline, quiet_ms }));
        let workers = std::mem::take(&mut self.workers);
        let (control, log, stop) = (self.control.take(), self.log.take(), self.stop_control.take());
        let ended = tokio::task::spawn_blocking(move || {
            workers.into_iter().for_each(|worker| drop(worker.join()));
            if let Some(log) = log {
                log.finish();
            }
            // Dropped, it would end at once, without writing down what it knows.
            let _ = stop.map(|stop| stop.send(()));
            control.map(JoinHandle::join)
        });
        let _ = ended.await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.vital.ends();
        self.listeners.let_go();
        let _ = self.drain.send(Some(End { at: Instant::now(), quiet_ms: None }));
    }
}

fn load_sticky(settings: &GatewaySettings) -> Result<StickyKey, GatewayError> {
    let data_dir = |source| GatewayError::DataDir { path: settings.data_dir.clone(), source };
    match &settings.sticky_key {
        Some(path) => {
            StickyKey::shared(path).map_err(|source| GatewayError::StickyKey { path: path.clone(), source })
        }
        None => StickyKey::load(&settings.data_dir).map_err(data_dir),
    }
}

/// Longest wait for a table before another process's clients are taken over.
const TABLE: Duration = Duration::from_secs(60);

/// Clients are taken over with something to serve them by; the other process serves meanwhile.
async fn until_it_has_a_table(shared: &SharedTable) -> io::Result<()> {
    let late = Instant::now() + TABLE;
    while !shared.view().loaded {
        if Instant::now() > late {
            return Err(io::Error::other("there is no table to serve by yet"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// Says that all is ready, and waits until the process that serves still says that this one may begin.
async fn until_it_may_go(taken: Taken, shared: &SharedTable) -> io::Result<hand_over::Way> {
    until_it_has_a_table(shared).await?;
    let mut way = taken.way()?;
    way.is_ready().await?;
    Ok(way)
}

/// What all workers are made of.
struct Workers<'a> {
    settings: &'a Arc<GatewaySettings>,
    shared: Arc<SharedTable>,
    registry: Arc<Registry>,
    log: &'a LogWriter,
    sticky: StickyKey,
    cache: Arc<Cache>,
    vital: Vital,
    drained: watch::Receiver<Drain>,
}

impl Workers<'_> {
    fn start(self, orders: Vec<mpsc::UnboundedReceiver<Order>>) -> io::Result<Vec<JoinHandle<()>>> {
        let open_connections = OpenConnections::new(self.settings.limits.connections);
        let spawn = |(index, orders)| {
            let parts = WorkerParts {
                index,
                settings: self.settings.clone(),
                shared: self.shared.clone(),
                registry: self.registry.clone(),
                log: self.log.buffer(&self.registry, index),
                sticky: self.sticky.clone(),
                open_connections: open_connections.clone(),
                cache: self.cache.clone(),
                vital: self.vital.clone(),
                orders,
            };
            worker_thread::spawn(parts, self.drained.clone())
        };
        orders.into_iter().enumerate().map(spawn).collect()
    }
}

/// Opens the listeners of the settings.
fn open_all(
    listeners: &Listeners,
    settings: &GatewaySettings,
    certificates: &Certificates,
) -> Result<(), GatewayError> {
    let open = |address: SocketAddr, speaks: Speaks, proxies: Arc<[NetBlock]>| {
        let opened = listeners.open(address, speaks, proxies);
        opened.map(drop).map_err(|source| GatewayError::Listen { address, source })
    };
    for &address in &settings.listen {
        open(address, Speaks::Http, proxies(settings, address))?;
    }
    for one in &settings.tls {
        open(one.listen, Speaks::Https(TlsListener::new(one, certificates)?), proxies(settings, one.listen))?;
    }
    let stream = &settings.stream;
    for &address in &stream.tls {
        open(address, Speaks::Tls(listeners.tls()?), [].into())?;
    }
    for (addresses, speaks) in [
        (&stream.tcp, Speaks::Tcp),
        (&stream.passthrough, Speaks::TlsPassthrough),
        (&stream.udp, Speaks::Udp),
    ] {
        for &address in addresses {
            open(address, speaks.clone(), [].into())?;
        }
    }
    Ok(())
}

/// The proxies that may say who comes to this listener.
fn proxies(settings: &GatewaySettings, listen: SocketAddr) -> Arc<[NetBlock]> {
    let found = settings.proxy_protocol.iter().find(|one| one.listen == listen);
    found.map_or_else(|| [].into(), |one| one.from.clone().into())
}

type Admin = (Option<std::net::TcpListener>, Option<SocketAddr>);

fn open_admin(listeners: &Listeners, settings: &GatewaySettings) -> Result<Admin, GatewayError> {
    let Some(address) = settings.admin else { return Ok((None, None)) };
    let opened = listeners.open_admin(address);
    let (listener, address) = opened.map_err(|source| GatewayError::Listen { address, source })?;
    Ok((Some(listener), Some(address)))
}

fn spawn_control(
    parts: ControlParts,
    leaving: watch::Receiver<bool>,
    stop: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    let vital = parts.vital.clone();
    std::thread::Builder::new().name("towpath-gw-ctl".into()).spawn(move || {
        let runtime =
            Builder::new_current_thread().enable_io().enable_time().build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => vital.watch_thread("the control thread", || {
                runtime.block_on(control::run(parts, leaving, stop));
            }),
            Err(error) => {
                tracing::error!(%error, "the control thread cannot start");
                vital.fails("the control thread");
            }
        }
    })
}
