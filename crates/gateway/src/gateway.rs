//! The gateway as a whole: what starts, in which order, and how it ends.

use crate::access_log::{self, LogWriter};
use crate::client::listen;
use crate::client::open_connections::OpenConnections;
use crate::control::{self, ControlParts, Identity};
use crate::metrics::Registry;
use crate::settings::GatewaySettings;
use crate::sticky::StickyKey;
use crate::table::SharedTable;
use crate::tls::{Certificates, TicketKeys, TlsError, TlsListener};
use crate::vital::Vital;
use crate::worker_thread::{self, Drain, WorkerParts, WorkerSocket};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{oneshot, watch};
use towpath_bus::Bus;
use towpath_types::{GatewayId, NetBlock};

/// A running gateway. It owns its threads; dropping it without [`Gateway::drain`] ends them at once.
pub struct Gateway {
    id: GatewayId,
    addresses: Vec<SocketAddr>,
    admin: Option<SocketAddr>,
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
    /// A thread cannot be started.
    #[error("a thread cannot be started")]
    Thread(#[source] io::Error),
}

/// A bound address: one socket for each worker.
struct Bound {
    address: SocketAddr,
    sockets: Vec<std::net::TcpListener>,
    tls: Option<Arc<TlsListener>>,
    proxies: Arc<[NetBlock]>,
}

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
        let bound = bind_all(&settings, &certificates)?;
        let addresses: Vec<SocketAddr> = bound.iter().map(|bound| bound.address).collect();
        let listeners = bound.iter().map(url).collect();
        let (admin, admin_address) = bind_admin(&settings)?;
        let identity = Identity::load(&settings.data_dir).map_err(data_dir)?;
        let vital = Vital::default();
        let log = access_log::start(&settings.access_log, &settings.data_dir, &vital).map_err(data_dir)?;
        let registry = Arc::new(Registry::new(settings.workers));
        let open_connections = OpenConnections::new(settings.limits.connections);
        let state = control::load_state(&settings);
        let shared = SharedTable::new(control::view_of(&state), settings.workers);
        let (drain, drained) = watch::channel(None);
        let (leaving, leaves) = watch::channel(false);
        let (stop_control, control_stops) = oneshot::channel();
        let mut gateway = Gateway {
            id: identity.gateway,
            addresses,
            admin: admin_address,
            vital: vital.clone(),
            drain,
            leaving,
            stop_control: Some(stop_control),
            workers: Vec::new(),
            control: None,
            log: None,
        };
        let (ready, is_ready) = oneshot::channel();
        let parts = ControlParts {
            settings: settings.clone(),
            identity,
            listeners,
            shared: shared.clone(),
            registry: registry.clone(),
            sticky: sticky.clone(),
            vital: vital.clone(),
            state,
            certificates,
            admin,
            bus,
            ready: Some(ready),
        };
        gateway.control = Some(spawn_control(parts, leaves, control_stops).map_err(GatewayError::Thread)?);
        // A gateway that runs alone has its table before the first client comes.
        let _ = is_ready.await;
        for (index, sockets) in per_worker(bound, settings.workers).into_iter().enumerate() {
            let parts = WorkerParts {
                index,
                settings: settings.clone(),
                shared: shared.clone(),
                registry: registry.clone(),
                log: log.buffer(&registry, index),
                sticky: sticky.clone(),
                open_connections: open_connections.clone(),
                vital: vital.clone(),
                sockets,
            };
            gateway.workers.push(worker_thread::spawn(parts, drained.clone()).map_err(GatewayError::Thread)?);
        }
        gateway.log = Some(log);
        Ok(gateway)
    }

    /// The gateway's id, the same for the life of its data directory.
    pub fn id(&self) -> GatewayId {
        self.id
    }

    /// Where it listens, real ports included, clear text before TLS.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.clone()
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
        let _ = self.leaving.send(true);
        let _ = self.drain.send(Some(Instant::now() + deadline));
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
        let _ = self.drain.send(Some(Instant::now()));
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

fn bind_all(settings: &GatewaySettings, certificates: &Certificates) -> Result<Vec<Bound>, GatewayError> {
    let mut bound = Vec::new();
    for &address in &settings.listen {
        bound.push(Bound {
            proxies: proxies(settings, address),
            ..bind_one(address, settings.workers, None)?
        });
    }
    for one in &settings.tls {
        let tls = Some(TlsListener::new(one, certificates)?);
        let proxies = proxies(settings, one.listen);
        bound.push(Bound { proxies, ..bind_one(one.listen, settings.workers, tls)? });
    }
    Ok(bound)
}

/// The proxies that may say who comes to this listener.
fn proxies(settings: &GatewaySettings, listen: SocketAddr) -> Arc<[NetBlock]> {
    let found = settings.proxy_protocol.iter().find(|one| one.listen == listen);
    found.map_or_else(|| [].into(), |one| one.from.clone().into())
}

fn bind_one(
    address: SocketAddr,
    workers: usize,
    tls: Option<Arc<TlsListener>>,
) -> Result<Bound, GatewayError> {
    let failed = |source| GatewayError::Listen { address, source };
    let sockets = listen::bind(address, workers).map_err(failed)?;
    let actual = sockets.first().map(std::net::TcpListener::local_addr).transpose().map_err(failed)?;
    Ok(Bound { address: actual.unwrap_or(address), sockets, tls, proxies: [].into() })
}

fn bind_admin(
    settings: &GatewaySettings,
) -> Result<(Option<std::net::TcpListener>, Option<SocketAddr>), GatewayError> {
    let Some(address) = settings.admin else { return Ok((None, None)) };
    let Bound { address, mut sockets, .. } = bind_one(address, 1, None)?;
    Ok((sockets.pop(), Some(address)))
}

fn url(bound: &Bound) -> String {
    format!("{}://{}", if bound.tls.is_some() { "https" } else { "http" }, bound.address)
}

/// Deals the sockets out: each worker gets one of every address.
fn per_worker(bound: Vec<Bound>, workers: usize) -> Vec<Vec<WorkerSocket>> {
    let mut dealt: Vec<Vec<WorkerSocket>> = (0..workers).map(|_| Vec::new()).collect();
    for one in bound {
        for (hand, listener) in dealt.iter_mut().zip(one.sockets) {
            hand.push(WorkerSocket { listener, tls: one.tls.clone(), proxies: one.proxies.clone() });
        }
    }
    dealt
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
