//! What is known of a client connection by all who work on it: its socket, its parser, its requests.

use super::doze;
use crate::deadline::Deadline;
use crate::framing::Refusal;
use crate::tls::Session;
use crate::upstream::stream::UpstreamStream;
use crate::worker::Worker;
use bytes::Bytes;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Waker;

/// Which way the client came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Scheme {
    /// As in a URL.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Scheme::Http => "http",
            Scheme::Https => "https",
        }
    }
}

/// What an HTTP/1 connection is doing, which says what its deadline means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// No request is there; a head may have begun.
    Between,
    /// A request waits for its response head, and looks after the deadline itself.
    Waiting,
    /// A response streams.
    Streaming,
}

/// The instance's end of a tunnel, once an instance has agreed to one.
pub(crate) struct TunnelEnd {
    /// The instance's connection.
    pub(crate) stream: UpstreamStream,
    /// What it has sent already.
    pub(crate) first: Bytes,
    /// Longest silence.
    pub(crate) idle_ms: u64,
    /// Ends with the tunnel: the request's log line, and the count in flight.
    pub(crate) record: crate::request::record::Record,
}

/// A client connection.
pub(crate) struct Conn {
    pub(crate) worker: Rc<Worker>,
    pub(crate) peer: SocketAddr,
    /// The address that the client came to.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) scheme: Scheme,
    /// What the handshake came to, once it is over.
    pub(crate) tls: OnceCell<Session>,
    /// The connection's deadline; for HTTP/1 also that of its present request.
    pub(crate) deadline: Rc<Deadline>,
    pub(crate) phase: Cell<Phase>,
    /// After an answer the deadline is at first that of dozing off; what is left of the keep-alive time after it.
    pub(crate) doze_ms: Cell<u64>,
    /// Something was given to the client's socket that it has not taken.
    pub(crate) unsent: Cell<bool>,
    /// Longest silence while streaming; 0 = none.
    pub(crate) idle_ms: Cell<u64>,
    /// Requests so far.
    pub(crate) requests: Cell<u64>,
    /// Streams under way (HTTP/2).
    pub(crate) streams: Cell<u64>,
    /// The request with this number stands for one that was refused.
    pub(crate) refused: Cell<Option<(u64, Refusal)>>,
    /// The body under way is malformed.
    pub(crate) body_refused: Cell<Option<Refusal>>,
    /// A head has begun to arrive.
    pub(crate) head_begun: Cell<bool>,
    /// A head has taken too long.
    pub(crate) head_late: Cell<bool>,
    /// Whether what follows an upgrade request is another protocol; `None` = not known yet.
    pub(crate) switched: Cell<Option<bool>>,
    /// The connection's task, while it waits for the above, or for the last answer to a client that has ended its side.
    pub(crate) hold_waker: RefCell<Option<Waker>>,
    /// Where a tunnel leads.
    pub(crate) tunnel: RefCell<Option<TunnelEnd>>,
    /// An answer was given before the request was read: read on for a moment before closing.
    pub(crate) linger: Cell<bool>,
}

impl Conn {
    /// A fresh connection.
    pub(crate) fn new(
        worker: &Rc<Worker>,
        peer: SocketAddr,
        local: Option<SocketAddr>,
        scheme: Scheme,
    ) -> Rc<Self> {
        let deadline = Rc::new(worker.deadlines.add());
        deadline.set_in(worker.settings.timeouts.head_ms);
        Rc::new(Self {
            worker: worker.clone(),
            peer,
            local,
            scheme,
            tls: OnceCell::new(),
            deadline,
            phase: Cell::new(Phase::Between),
            doze_ms: Cell::new(0),
            unsent: Cell::new(false),
            idle_ms: Cell::new(0),
            requests: Cell::new(0),
            streams: Cell::new(0),
            refused: Cell::new(None),
            body_refused: Cell::new(None),
            head_begun: Cell::new(false),
            head_late: Cell::new(false),
            switched: Cell::new(None),
            hold_waker: RefCell::new(None),
            tunnel: RefCell::new(None),
            linger: Cell::new(false),
        })
    }

    /// The client's address.
    pub(crate) fn client(&self) -> IpAddr {
        self.peer.ip().to_canonical()
    }

    /// Bytes moved to or from the client.
    pub(crate) fn touch(&self) {
        if self.phase.get() == Phase::Streaming {
            self.deadline.set_in(self.idle_ms.get());
        }
    }
}

impl Conn {
    /// The bytes of a head begin to arrive.
    pub(crate) fn head_begins(&self) {
        if !self.head_begun.replace(true) {
            self.deadline.set_in(self.worker.settings.timeouts.head_ms);
        }
    }

    /// A request begins.
    pub(crate) fn request_begins(&self) {
        self.head_begun.set(false);
        self.phase.set(Phase::Waiting);
        self.deadline.clear();
    }

    /// It has ended.
    pub(crate) fn request_ends(&self, asked_upgrade: bool) {
        if asked_upgrade && self.switched.get().is_none() && self.tunnel.borrow().is_none() {
            self.switched.set(Some(false));
        }
        if let Some(waker) = self.hold_waker.borrow_mut().take() {
            waker.wake();
        }
        self.phase.set(Phase::Between);
        self.deadline.clear();
        let keep_ms = self.worker.settings.timeouts.keep_alive_ms;
        self.doze_ms.set(keep_ms.saturating_sub(doze::AFTER_MS));
        self.deadline.set_in(keep_ms.min(doze::AFTER_MS));
    }
}
