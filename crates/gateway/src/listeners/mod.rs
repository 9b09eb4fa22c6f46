//! Where the gateway listens: the addresses of its settings, and those of `listeners` resources, which come and go while it runs.
//!
//! Each address has a socket for each worker. A copy of every socket stays here, so that a listener can change what it does, or be
//! handed over to another process, without losing who waits in its queue. While copies are here the sockets live: they are let go
//! before the workers are told to close theirs.

mod sockets;
#[cfg(test)]
mod tests;

pub(crate) use sockets::{HeldSocket, Transport};

use crate::client::accept::Kind;
use crate::settings::TlsSettings;
use crate::stream_proxy::accept::Mode;
use crate::tls::{Certificates, TlsError, TlsListener};
use crate::worker_thread::{Order, Serves, WorkerSocket};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::UnboundedSender;
use towpath_resources::Id;
use towpath_resources::model::{Listener, ListenerProtocol};
use towpath_types::NetBlock;

/// What is spoken at a listener.
#[derive(Clone)]
pub(crate) enum Speaks {
    Http,
    Https(Arc<TlsListener>),
    Tcp,
    Tls(Arc<TlsListener>),
    TlsPassthrough,
    Udp,
    /// Metrics and health. No worker serves it.
    Admin,
}

impl Speaks {
    fn transport(&self) -> Transport {
        if matches!(self, Self::Udp) { Transport::Udp } else { Transport::Tcp }
    }

    fn serves(&self) -> Option<Serves> {
        match self {
            Self::Http => Some(Serves::Http(Kind::default())),
            Self::Https(tls) => Some(Serves::Http(Kind { tls: Some(tls.clone()), ..Kind::default() })),
            Self::Tcp => Some(Serves::Stream(Mode::Plain)),
            Self::Tls(tls) => Some(Serves::Stream(Mode::Tls(tls.clone()))),
            Self::TlsPassthrough => Some(Serves::Stream(Mode::Passthrough)),
            Self::Udp => Some(Serves::Datagrams),
            Self::Admin => None,
        }
    }

    fn scheme(&self) -> &'static str {
        match self {
            Self::Http | Self::Admin => "http",
            Self::Https(_) => "https",
            Self::Tcp => "tcp",
            Self::Tls(_) => "tls",
            Self::TlsPassthrough => "tls-passthrough",
            Self::Udp => "udp",
        }
    }
}

/// What a resource's socket takes.
fn transport_of(listener: &Listener) -> Transport {
    if listener.protocol == ListenerProtocol::Udp { Transport::Udp } else { Transport::Tcp }
}

/// Whose a listener is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Owner {
    Settings,
    Resource(Id),
}

struct Held {
    owner: Owner,
    /// By which workers know it.
    number: u64,
    address: SocketAddr,
    speaks: Speaks,
    /// Whose connections begin with a header of the PROXY protocol.
    proxies: Arc<[NetBlock]>,
    sockets: Vec<HeldSocket>,
}

impl Held {
    fn serves(&self) -> Option<Serves> {
        let serves = self.speaks.serves()?;
        Some(match serves {
            Serves::Http(kind) => Serves::Http(Kind { proxies: self.proxies.clone(), ..kind }),
            other => other,
        })
    }
}

/// A socket of another process that listens already.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) transport: Transport,
    pub(crate) address: SocketAddr,
    pub(crate) socket: OwnedFd,
}

#[derive(Default)]
struct Inner {
    held: Vec<Held>,
    /// Resources as they are now, and why some of them do not listen.
    wanted: BTreeMap<Id, (Arc<Listener>, Option<String>)>,
    inherited: Vec<Inherited>,
    /// Of listeners that this very change has closed: another one may want them.
    left: Vec<Inherited>,
    workers: Vec<UnboundedSender<Order>>,
    certificates: Option<Arc<Certificates>>,
    /// What all TLS listeners of resources and streams serve: every certificate. Made when the first of them comes.
    tls: Option<Arc<TlsListener>>,
    numbers: u64,
    /// The gateway drains: nothing is opened any more.
    over: bool,
}

/// See the module. A clone is the same.
#[derive(Clone)]
pub(crate) struct Listeners(Arc<Mutex<Inner>>);

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listeners")
    }
}

impl Listeners {
    /// None yet; `workers` take the orders. Sockets in `inherited` are taken before others are made.
    pub(crate) fn new(
        workers: Vec<UnboundedSender<Order>>,
        inherited: Vec<Inherited>,
        certificates: Arc<Certificates>,
    ) -> Self {
        let certificates = Some(certificates);
        Self(Arc::new(Mutex::new(Inner { workers, inherited, certificates, ..Inner::default() })))
    }

    /// What TLS listeners serve that say nothing of certificates.
    pub(crate) fn tls(&self) -> Result<Arc<TlsListener>, TlsError> {
        self.inner().tls()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a listener of the settings; gives its address, the real port included.
    pub(crate) fn open(
        &self,
        address: SocketAddr,
        speaks: Speaks,
        proxies: Arc<[NetBlock]>,
    ) -> io::Result<SocketAddr> {
        self.inner().open(Owner::Settings, address, speaks, proxies)
    }

    /// Opens the listener of metrics and health.
    pub(crate) fn open_admin(&self, address: SocketAddr) -> io::Result<(std::net::TcpListener, SocketAddr)> {
        let mut inner = self.inner();
        let address = inner.open(Owner::Settings, address, Speaks::Admin, [].into())?;
        let found = inner.held.iter().find(|held| matches!(held.speaks, Speaks::Admin));
        match found.and_then(|held| held.sockets.first()).map(HeldSocket::for_worker).transpose()? {
            Some(WorkerSocket::Tcp(listener)) => Ok((listener, address)),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Addresses of the settings that speak so, in their order.
    pub(crate) fn addresses(&self, of: impl Fn(&Speaks) -> bool) -> Vec<SocketAddr> {
        let inner = self.inner();
        let own = inner.held.iter().filter(|held| held.owner == Owner::Settings && of(&held.speaks));
        own.map(|held| held.address).collect()
    }

    /// All of them as URLs, but for that of metrics.
    pub(crate) fn urls(&self) -> Vec<String> {
        let inner = self.inner();
        let shown = inner.held.iter().filter(|held| !matches!(held.speaks, Speaks::Admin));
        shown.map(|held| format!("{}://{}", held.speaks.scheme(), held.address)).collect()
    }

    /// Follows changes of resources. What each of them comes to: why it does not listen, or nothing.
    pub(crate) fn change(&self, changes: Vec<(Id, Option<Arc<Listener>>)>) -> Vec<(Id, Option<String>)> {
        let mut inner = self.inner();
        let mut told = Vec::new();
        // Those that go first: their addresses may be wanted by others.
        for (id, _) in changes.iter().filter(|(_, listener)| listener.is_none()) {
            inner.wanted.remove(id);
            inner.close(&Owner::Resource(id.clone()));
        }
        for (id, listener) in &changes {
            if let Some(listener) = listener {
                inner.leave(id, listener);
            }
        }
        for (id, listener) in changes {
            if let Some(listener) = listener {
                let why = inner.follow(&id, &listener);
                inner.wanted.insert(id.clone(), (listener, why.clone()));
                told.push((id, why));
            }
        }
        inner.left.clear();
        told
    }

    /// Tries again what could not be opened; what has changed with that.
    pub(crate) fn try_again(&self) -> Vec<(Id, Option<String>)> {
        let mut inner = self.inner();
        let failed = inner.wanted.iter().filter(|(_, (_, why))| why.is_some());
        let failed: Vec<_> =
            failed.map(|(id, (listener, why))| (id.clone(), listener.clone(), why.clone())).collect();
        let mut told = Vec::new();
        for (id, listener, before) in failed {
            let why = inner.follow(&id, &listener);
            if why != before {
                inner.wanted.insert(id.clone(), (listener, why.clone()));
                told.push((id, why));
            }
        }
        told
    }

    /// Copies of all sockets, to be handed over.
    pub(crate) fn copies(&self) -> io::Result<Vec<Inherited>> {
        let inner = self.inner();
        if inner.over {
            return Err(io::Error::other("the gateway is ending"));
        }
        let all = inner.held.iter().flat_map(|held| held.sockets.iter().map(move |socket| (held, socket)));
        all.map(|(held, socket)| {
            let (transport, address) = (held.speaks.transport(), held.address);
            Ok(Inherited { transport, address, socket: socket.copy()? })
        })
        .collect()
    }

    /// Lets go of what was inherited and is not wanted.
    pub(crate) fn forget_inherited(&self) {
        self.inner().inherited.clear();
    }

    /// Lets go of all copies, before the workers let go of theirs: the ports are free when those have.
    pub(crate) fn let_go(&self) {
        let mut inner = self.inner();
        (inner.over, inner.held) = (true, Vec::new());
    }
}

impl Inner {
    fn tls(&mut self) -> Result<Arc<TlsListener>, TlsError> {
        if let Some(known) = &self.tls {
            return Ok(known.clone());
        }
        let listen = SocketAddr::from(([0, 0, 0, 0], 0));
        let none = || TlsError::Unusable { listen, why: "there are no certificates".to_owned() };
        let certificates = self.certificates.clone().ok_or_else(none)?;
        let made = TlsListener::new(&TlsSettings::at(listen), &certificates)?;
        self.tls = Some(made.clone());
        Ok(made)
    }

    /// What a resource wants to be spoken.
    fn speaks(&mut self, listener: &Listener) -> Result<Speaks, TlsError> {
        Ok(match listener.protocol {
            ListenerProtocol::Http => Speaks::Http,
            ListenerProtocol::Https => Speaks::Https(self.tls()?),
            ListenerProtocol::Tcp => Speaks::Tcp,
            ListenerProtocol::Tls => Speaks::Tls(self.tls()?),
            ListenerProtocol::TlsPassthrough => Speaks::TlsPassthrough,
            ListenerProtocol::Udp => Speaks::Udp,
        })
    }

    fn open(
        &mut self,
        owner: Owner,
        address: SocketAddr,
        speaks: Speaks,
        proxies: Arc<[NetBlock]>,
    ) -> io::Result<SocketAddr> {
        let workers = if speaks.serves().is_some() { self.workers.len() } else { 1 };
        let transport = speaks.transport();
        let fits = |one: &mut Inherited| one.transport == transport && one.address == address;
        let inherited = self.inherited.extract_if(.., fits);
        let given: Vec<OwnedFd> =
            inherited.chain(self.left.extract_if(.., fits)).map(|one| one.socket).collect();
        let sockets = if given.is_empty() {
            sockets::bind(transport, address, workers)?
        } else {
            sockets::take(transport, given, workers)?
        };
        let address = sockets.first().map(HeldSocket::address).transpose()?.unwrap_or(address);
        self.numbers += 1;
        let held = Held { owner, number: self.numbers, address, speaks, proxies, sockets };
        self.order(&held)?;
        self.held.push(held);
        Ok(address)
    }

    /// Deals the sockets out. There may be more than workers, when another process had more of these.
    fn order(&self, held: &Held) -> io::Result<()> {
        let Some(serves) = held.serves() else { return Ok(()) };
        // All copies first: what fails half-way is as if it had never been.
        let mut orders = Vec::with_capacity(held.sockets.len());
        for (at, socket) in held.sockets.iter().enumerate() {
            // One number a round, since a worker closes by number.
            let (worker, round) = (at % self.workers.len().max(1), at / self.workers.len().max(1));
            let number = held.number << 16 | round as u64;
            orders.push((worker, Order::Open(number, socket.for_worker()?, serves.clone())));
        }
        for (worker, order) in orders {
            if let Some(worker) = self.workers.get(worker) {
                let _ = worker.send(order);
            }
        }
        Ok(())
    }

    fn close(&mut self, owner: &Owner) {
        let gone: Vec<Held> = self.held.extract_if(.., |held| held.owner == *owner).collect();
        for held in gone {
            self.stop(held.number, held.sockets.len());
            let (transport, address) = (held.speaks.transport(), held.address);
            let copies = held.sockets.iter().filter_map(|socket| socket.copy().ok());
            self.left.extend(copies.map(|socket| Inherited { transport, address, socket }));
        }
    }

    fn stop(&self, number: u64, sockets: usize) {
        for round in 0..=(sockets / self.workers.len().max(1)) {
            for worker in &self.workers {
                let _ = worker.send(Order::Close(number << 16 | round as u64));
            }
        }
    }

    /// Closes what the resource has at another address than it wants.
    fn leave(&mut self, id: &Id, listener: &Listener) {
        let owner = Owner::Resource(id.clone());
        let transport = transport_of(listener);
        let stays = self.held.iter().any(|held| {
            held.owner == owner
                && Some(held.address) == listener.address()
                && held.speaks.transport() == transport
        });
        if !stays {
            self.close(&owner);
        }
    }

    /// Opens what the resource wants, or changes what is spoken there; why not, if it cannot.
    fn follow(&mut self, id: &Id, listener: &Listener) -> Option<String> {
        let address = listener.address().filter(|_| !self.over)?;
        let (owner, transport) = (Owner::Resource(id.clone()), transport_of(listener));
        let speaks = match self.speaks(listener) {
            Ok(speaks) => speaks,
            Err(error) => return Some(error.to_string()),
        };
        let same = |held: &Held| held.address == address && held.speaks.transport() == transport;
        if let Some(other) = self.held.iter().find(|held| held.owner != owner && same(held)) {
            return Some(match &other.owner {
                Owner::Settings => format!("{address} is listened on already, by the gateway's own settings"),
                Owner::Resource(id) => format!("{address} is listened on already, by listeners/{id}"),
            });
        }
        let opened = if let Some(at) = self.held.iter().position(|held| held.owner == owner && same(held)) {
            self.change(at, speaks)
        } else {
            self.open(owner, address, speaks, [].into()).map(drop)
        };
        let error = opened.err()?;
        tracing::error!(%address, listener = %id, %error, "a listener cannot be opened; trying again");
        Some(format!("{address} cannot be listened on: {error}"))
    }

    /// Another protocol on the same sockets.
    fn change(&mut self, at: usize, speaks: Speaks) -> io::Result<()> {
        self.numbers += 1;
        let number = self.numbers;
        let Some(held) = self.held.get_mut(at) else { return Ok(()) };
        if held.speaks.scheme() == speaks.scheme() {
            return Ok(());
        }
        let before = std::mem::replace(&mut held.number, number);
        let spoke = std::mem::replace(&mut held.speaks, speaks);
        let sockets = held.sockets.len();
        if let Some(held) = self.held.get(at)
            && let Err(error) = self.order(held)
        {
            if let Some(held) = self.held.get_mut(at) {
                (held.number, held.speaks) = (before, spoke);
            }
            return Err(error);
        }
        self.stop(before, sockets);
        Ok(())
    }
}
