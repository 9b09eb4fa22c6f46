//! A session from its first byte to its end: what is counted and logged of it.

use super::choose::Chosen;
use super::routes::Asking;
use crate::access_log::AccessLine;
use crate::clock;
use crate::metrics::{StreamEnd, StreamKind};
use crate::request::ids::RequestId;
use crate::worker::Worker;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use towpath_types::{AppRef, ErrorCode, InstanceId, LaneName};

/// See the module. It is counted and logged when it is dropped.
pub(super) struct Session {
    pub(super) worker: Rc<Worker>,
    pub(super) kind: StreamKind,
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    pub(super) sni: Option<String>,
    id: RequestId,
    started_ns: u64,
    end: StreamEnd,
    status: u16,
    error: Option<ErrorCode>,
    app: Option<AppRef>,
    serving: Option<(LaneName, InstanceId)>,
    pub(super) attempts: u32,
    /// Time to the endpoint's connection, or its first answer.
    upstream_us: Option<u64>,
    pub(super) bytes_in: Cell<u64>,
    pub(super) bytes_out: Cell<u64>,
    /// It ended by its own will.
    pub(super) complete: Cell<bool>,
}

impl Session {
    /// One that begins.
    pub(super) fn new(worker: &Rc<Worker>, kind: StreamKind, local: SocketAddr, peer: SocketAddr) -> Self {
        worker.metrics.streams.of(kind).open.add(1);
        Self {
            worker: worker.clone(),
            kind,
            local,
            peer,
            sni: None,
            id: RequestId::new(None, worker),
            started_ns: clock::now_ns(),
            end: StreamEnd::Gone,
            status: 400,
            error: None,
            app: None,
            serving: None,
            attempts: 0,
            upstream_us: None,
            bytes_in: Cell::new(0),
            bytes_out: Cell::new(0),
            complete: Cell::new(false),
        }
    }

    /// What a route is found by.
    pub(super) fn asking(&self) -> Asking<'_> {
        Asking { local: self.local, peer: self.peer, sni: self.sni.as_deref() }
    }

    /// When it began.
    pub(super) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// Where it is to go.
    pub(super) fn leads_to(&mut self, app: &AppRef) {
        self.app = Some(app.clone());
    }

    /// It has an endpoint.
    pub(super) fn is_served(&mut self, chosen: &Chosen, began_ns: u64) {
        (self.end, self.status, self.error) = (StreamEnd::Served, 200, None);
        self.serving = Some((chosen.lane.clone(), chosen.endpoint.instance()));
        self.upstream_us = Some(clock::now_ns().saturating_sub(began_ns) / 1000);
    }

    /// It will not have one.
    pub(super) fn ends_by(&mut self, end: StreamEnd, status: u16, error: Option<ErrorCode>) {
        (self.end, self.status, self.error) = (end, status, error);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let worker = &self.worker;
        let metrics = worker.metrics.streams.of(self.kind);
        metrics.open.sub(1);
        metrics.ends(self.end);
        if let Some(code) = self.error {
            worker.metrics.error(code);
        }
        let duration_us = clock::now_ns().saturating_sub(self.started_ns) / 1000;
        worker.at_wall_clock(self.started_ns, |second, millisecond| {
            worker.log(&AccessLine {
                second,
                millisecond,
                id: self.id.as_bytes(),
                client: self.peer.ip().to_canonical(),
                method: "-",
                scheme: self.kind.as_str(),
                host: self.sni.as_deref().unwrap_or("-").as_bytes(),
                path: "-",
                protocol: if self.kind == StreamKind::Udp { "UDP" } else { "TCP" },
                status: self.status,
                bytes_in: self.bytes_in.get(),
                bytes_out: self.bytes_out.get(),
                duration_us,
                upstream_us: self.upstream_us,
                app: self.app.as_ref(),
                lane: self.serving.as_ref().map(|(lane, _)| lane),
                instance: self.serving.as_ref().map(|(_, instance)| *instance),
                attempts: self.attempts,
                route: None,
                service: None,
                consumer: None,
                plugin: None,
                error: self.error,
                complete: self.complete.get(),
            });
        });
    }
}
