//! Sockets that listen: one a worker and address, sharing the port (`SO_REUSEPORT`), so that the kernel spreads clients.

use crate::client::listen;
use crate::worker_thread::WorkerSocket;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

/// What a socket takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Transport {
    Tcp,
    Udp,
}

/// Bytes of datagrams that may wait to be read, where the system permits so many.
const DATAGRAMS_WAITING: usize = 4 << 20;

/// A copy of a worker's socket.
pub(crate) enum HeldSocket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl HeldSocket {
    /// Its address, the real port included.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
    }

    /// The socket once more, for its worker.
    pub(super) fn for_worker(&self) -> io::Result<WorkerSocket> {
        Ok(match self {
            Self::Tcp(listener) => WorkerSocket::Tcp(listener.try_clone()?),
            Self::Udp(socket) => WorkerSocket::Udp(socket.try_clone()?),
        })
    }

    /// The socket once more, for whoever.
    pub(super) fn copy(&self) -> io::Result<OwnedFd> {
        Ok(match self {
            Self::Tcp(listener) => listener.try_clone()?.into(),
            Self::Udp(socket) => socket.try_clone()?.into(),
        })
    }

    fn of(transport: Transport, socket: OwnedFd) -> io::Result<Self> {
        Ok(match transport {
            Transport::Tcp => {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                Self::Tcp(listener)
            }
            Transport::Udp => {
                let socket = UdpSocket::from(socket);
                socket.set_nonblocking(true)?;
                Self::Udp(socket)
            }
        })
    }
}

/// One socket for each worker on one address. With port 0 the kernel chooses once, for all of them.
pub(super) fn bind(transport: Transport, address: SocketAddr, workers: usize) -> io::Result<Vec<HeldSocket>> {
    match transport {
        Transport::Tcp => Ok(listen::bind(address, workers)?.into_iter().map(HeldSocket::Tcp).collect()),
        Transport::Udp => {
            if address.port() != 0 {
                // Another process of the same user could share the port unseen.
                drop(bind_udp(address, false)?);
            }
            let first = bind_udp(address, true)?;
            let actual = first.local_addr()?;
            let mut sockets = vec![HeldSocket::Udp(first)];
            while sockets.len() < workers {
                sockets.push(HeldSocket::Udp(bind_udp(actual, true)?));
            }
            Ok(sockets)
        }
    }
}

fn bind_udp(address: SocketAddr, shared: bool) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    let _ = socket.set_recv_buffer_size(DATAGRAMS_WAITING);
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sockets that listen already. All that are given are kept: clients wait in the queue of each. Where there are more workers than
/// queues, several take from one; of datagrams not, since their sessions are a worker's own.
pub(super) fn take(transport: Transport, given: Vec<OwnedFd>, workers: usize) -> io::Result<Vec<HeldSocket>> {
    let mut sockets = Vec::with_capacity(given.len().max(workers));
    for socket in given {
        sockets.push(HeldSocket::of(transport, socket)?);
    }
    let queues = sockets.len().max(1);
    // A socket of this process's own would get clients at once, whom nobody serves before the word to go.
    while transport == Transport::Tcp && sockets.len() < workers {
        let Some(again) = sockets.get(sockets.len() % queues) else { break };
        let again = again.copy()?;
        sockets.push(HeldSocket::of(transport, again)?);
    }
    Ok(sockets)
}
