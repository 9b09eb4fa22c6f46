//! Sessions of UDP: the datagrams of one client, until it is silent for too long.
//!
//! A listener reads all datagrams of its socket. Each client has a socket of its own towards its endpoint, and a task that carries
//! the answers back. What cannot be sent at once is dropped, as networks do.

use super::choose::{self, Chosen};
use super::gate::Held;
use super::session::Session;
use super::tcp::{fail, refuse, view};
use crate::client::accept::Counted;
use crate::clock;
use crate::deadline::Deadline;
use crate::metrics::{StreamEnd, StreamKind};
use crate::upstream::AttemptFault;
use crate::worker::Worker;
use crate::worker_thread::Drain;
use socket2::SockRef;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use towpath_route::{Address, InFlight, TriedSet};
use towpath_telemetry::Seldom;
use towpath_types::ErrorCode;

/// Most sessions of one listener on one worker.
const SESSIONS: usize = 16_384;
/// Longest datagram.
const DATAGRAM: usize = 65_536;
/// How long a session is kept for further answers while the worker drains.
const DRAIN_QUIET_MS: u64 = 1_000;
/// Pause after a failure to read that is not about one client.
const READ_AGAIN: Duration = Duration::from_millis(100);

type Sessions = Rc<RefCell<HashMap<SocketAddr, Rc<Flow>>>>;

/// One client's session.
struct Flow {
    /// Connected to the endpoint.
    upstream: UdpSocket,
    deadline: Deadline,
    idle_ms: u64,
    session: Session,
    /// When the last datagram went to the endpoint that it has not answered; 0 = none.
    asked_ns: Cell<u64>,
    chosen: Chosen,
    flight: RefCell<InFlight>,
    _held: Held,
    _count: Counted,
}

/// Reads datagrams until the listener is closed or the worker drains.
pub(crate) async fn run(worker: Rc<Worker>, socket: UdpSocket, mut drain: watch::Receiver<Drain>) {
    let Ok(local) = socket.local_addr() else { return };
    let (socket, sessions, mut buffer) = (Rc::new(socket), Sessions::default(), vec![0; DATAGRAM]);
    let mut warned = Seldom::default();
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut buffer) => received,
            _ = drain.wait_for(Option::is_some) => {
                // Nobody reads what clients say any more, and the address may be wanted.
                for flow in sessions.borrow().values() {
                    flow.deadline.cap_in(DRAIN_QUIET_MS);
                    flow.touch();
                }
                return;
            }
        };
        match received {
            Ok((length, peer)) => {
                let datagram = buffer.get(..length).unwrap_or_default();
                pass_on(&worker, &socket, &sessions, local, peer, datagram);
            }
            // A client that is gone says so by way of the next read.
            Err(error) if is_about_one_client(&error) => {}
            Err(error) => {
                if let Some(left_out) = warned.now(clock::now_ms()) {
                    tracing::warn!(%error, left_out, "datagrams cannot be read; trying again");
                }
                tokio::time::sleep(READ_AGAIN).await;
            }
        }
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
}

/// A client's datagram goes to its endpoint; its first one begins a session.
fn pass_on(
    worker: &Rc<Worker>,
    socket: &Rc<UdpSocket>,
    sessions: &Sessions,
    local: SocketAddr,
    peer: SocketAddr,
    datagram: &[u8],
) {
    let known = sessions.borrow().get(&peer).cloned();
    if let Some(flow) = known {
        return flow.send(datagram);
    }
    let room = sessions.borrow().len() < SESSIONS;
    let Some(count) = room.then(|| Counted::of_datagrams(worker)).flatten() else {
        worker.metrics.streams.dropped.add(1);
        return;
    };
    let session = Session::new(worker, StreamKind::Udp, local, peer);
    let Some(flow) = begin(session, count) else {
        worker.metrics.streams.dropped.add(1);
        return;
    };
    let flow = Rc::new(flow);
    sessions.borrow_mut().insert(peer, flow.clone());
    flow.send(datagram);
    let (socket, sessions) = (socket.clone(), sessions.clone());
    tokio::task::spawn_local(async move {
        flow.answers(&socket).await;
        sessions.borrow_mut().remove(&peer);
    });
}

/// A session with an endpoint. There is no answer by which an endpoint takes it: the first that can be sent to has it.
fn begin(mut session: Session, count: Counted) -> Option<Flow> {
    let worker = session.worker.clone();
    let Some(stream) = choose::find(&worker, &session.asking()) else {
        session.ends_by(StreamEnd::NoRoute, 404, Some(ErrorCode::NoRoute));
        return None;
    };
    session.leads_to(&stream.route.spec.app);
    let entered = stream.gate.enter(&view(&session, &stream));
    let held = match entered {
        Ok(held) => held,
        Err(why) => {
            refuse(&mut session, why);
            return None;
        }
    };
    let choice = choose::choose(&worker, &stream, &view(&session, &stream), &TriedSet::default());
    let (chosen, mut flight) = match choice {
        Ok(choice) => choice,
        Err(none) => {
            fail(&mut session, none.code());
            return None;
        }
    };
    session.attempts = 1;
    let began = clock::now_ns();
    // Names are asked for elsewhere; until the answer is there clients have to send again.
    let Address::Socket(address) = *chosen.endpoint.address() else {
        fail(&mut session, ErrorCode::NoEndpoint);
        return None;
    };
    let upstream = match open(address) {
        Ok(upstream) => upstream,
        Err(error) => {
            let fault = AttemptFault::Connect(error);
            chosen.fails(&worker, &mut flight, &fault, began);
            fail(&mut session, fault.code());
            return None;
        }
    };
    session.is_served(&chosen, began);
    session.complete.set(true);
    let (deadline, idle_ms) = (worker.deadlines.add(), chosen.idle_ms);
    deadline.set_in(idle_ms);
    Some(Flow {
        upstream,
        deadline,
        idle_ms,
        session,
        asked_ns: Cell::new(0),
        chosen,
        flight: RefCell::new(flight),
        _held: held,
        _count: count,
    })
}

/// A socket that speaks with the endpoint only.
fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr = match address {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = std::net::UdpSocket::bind(any)?;
    socket.set_nonblocking(true)?;
    socket.connect(address)?;
    UdpSocket::from_std(socket)
}

impl Flow {
    /// Sends a datagram of the client's to the endpoint.
    fn send(&self, datagram: &[u8]) {
        self.touch();
        let worker = &self.session.worker;
        match SockRef::from(&self.upstream).send(datagram) {
            Ok(_) => {
                let length = datagram.len() as u64;
                self.session.bytes_in.set(self.session.bytes_in.get() + length);
                worker.metrics.streams.of(StreamKind::Udp).bytes_in.add(length);
                if self.asked_ns.get() == 0 {
                    self.asked_ns.set(clock::now_ns());
                }
            }
            // What an earlier datagram met is told here or to the reader, whoever comes first.
            Err(error) => {
                worker.metrics.streams.dropped.add(1);
                if error.kind() == io::ErrorKind::ConnectionRefused {
                    self.is_refused(error);
                }
            }
        }
    }

    fn touch(&self) {
        let draining = self.session.worker.draining.get();
        self.deadline.set_in(if draining { DRAIN_QUIET_MS } else { self.idle_ms });
    }

    /// Carries answers to the client until the endpoint refuses or both are silent for too long.
    async fn answers(&self, socket: &UdpSocket) {
        let mut buffer = Vec::new();
        let mut hurried = false;
        poll_fn(|cx| {
            if self.session.worker.draining.get() && !hurried {
                hurried = true;
                self.deadline.set_in(DRAIN_QUIET_MS);
            }
            loop {
                buffer.resize(DATAGRAM, 0);
                let mut read = ReadBuf::new(&mut buffer);
                match self.upstream.poll_recv(cx, &mut read) {
                    Poll::Ready(Ok(())) => self.answer(socket, read.filled()),
                    Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                        self.is_refused(error);
                        return Poll::Ready(());
                    }
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => break,
                }
            }
            // A silent session holds no buffer.
            buffer = Vec::new();
            if self.deadline.is_over(cx) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn answer(&self, socket: &UdpSocket, datagram: &[u8]) {
        self.touch();
        let asked = self.asked_ns.take();
        if asked > 0 {
            self.chosen.does_well(&mut self.flight.borrow_mut(), asked);
        }
        let metrics = &self.session.worker.metrics.streams;
        match SockRef::from(socket).send_to(datagram, &self.session.peer.into()) {
            Ok(_) => {
                let length = datagram.len() as u64;
                self.session.bytes_out.set(self.session.bytes_out.get() + length);
                metrics.of(StreamKind::Udp).bytes_out.add(length);
            }
            Err(_) => metrics.dropped.add(1),
        }
    }

    /// Nobody listens at the endpoint: the session ends, and the client's next datagram finds another one.
    fn is_refused(&self, error: io::Error) {
        let fault = AttemptFault::Connect(error);
        let began = self.asked_ns.replace(0);
        let began = if began == 0 { clock::now_ns() } else { began };
        self.chosen.fails(&self.session.worker, &mut self.flight.borrow_mut(), &fault, began);
        self.session.complete.set(false);
        self.deadline.set_in(1);
    }
}
