//! What is known of a request while it lasts. Its `Drop` is the request's end: counters, log line, count in flight.

use super::choice::Chosen;
use super::extended_connect::Connect;
use super::ids::RequestId;
use super::origin;
use super::present::{Of, Present};
use crate::access_log::AccessLine;
use crate::client::conn::Conn;
use crate::client::h2::StreamWatch;
use crate::clock;
use crate::deadline::Deadline;
use crate::framing::proxy_protocol::{self, Addresses};
use crate::framing::{self, Refusal};
use crate::plugins::Running;
use crate::plugins::running::Rewritten;
use crate::plugins::vars::Vars;
use crate::tls::access::{self, Denied};
use crate::upstream::request_body::{BodyProgress, BodyStage};
use http::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Uri, Version};
use std::borrow::Cow;
use std::cell::Cell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::LazyLock;
use towpath_route::health::Report;
use towpath_route::{Endpoint, InFlight, Outcome, matched_form};
use towpath_types::ErrorCode;

/// One request under way.
pub(crate) struct Record {
    pub(crate) conn: Rc<Conn>,
    /// Of an HTTP/2 stream.
    pub(crate) watch: Option<Rc<StreamWatch>>,
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) version: Version,
    pub(crate) id: RequestId,
    pub(crate) present: Present,
    pub(crate) deadline: Rc<Deadline>,
    pub(crate) chosen: Option<Chosen>,
    pub(crate) status: u16,
    pub(crate) attempts: u32,
    pub(crate) bytes_out: u64,
    pub(crate) error: Option<ErrorCode>,
    /// The response went out whole.
    pub(crate) complete: bool,
    /// It asked for another protocol (and the guard waits for the answer).
    pub(crate) asks_upgrade: bool,
    /// It asked so by an extended CONNECT.
    pub(crate) connect: Option<Connect>,
    pub(crate) progress: Option<Rc<BodyProgress>>,
    /// The peer is one whose forwarding headers are believed.
    pub(crate) trusted: bool,
    /// What plugins keep; `None` = no plugin runs.
    pub(crate) running: Option<Box<Running>>,
    /// What the instance answered.
    pub(crate) upstream_status: Option<u16>,
    /// Headers for the access log, where it wants any and no plugin keeps them.
    kept: Option<Box<HeaderMap>>,
    client: IpAddr,
    host: Option<HeaderValue>,
    flight: Option<InFlight>,
    started_ns: u64,
    /// When the present attempt began to send.
    sent_ns: Cell<u64>,
    upstream_ns: Option<u64>,
}

impl Record {
    /// Begins with a head.
    pub(crate) fn start(
        conn: Rc<Conn>,
        watch: Option<Rc<StreamWatch>>,
        method: Method,
        uri: Uri,
        version: Version,
        headers: &HeaderMap,
    ) -> Self {
        let started_ns = clock::now_ns();
        let present = Present::of(headers);
        let trusted = conn.worker.trusts(conn.client());
        let client = if trusted && present.has(Of::XForwarded) {
            origin::client(&conn, headers)
        } else {
            conn.client()
        };
        conn.requests.set(conn.requests.get() + 1);
        conn.worker.metrics.begun.add(1);
        conn.worker.metrics.under_way.add(1);
        let deadline = match &watch {
            Some(watch) => {
                conn.streams.set(conn.streams.get() + 1);
                watch.deadline.clone()
            }
            None => {
                conn.request_begins();
                conn.deadline.clone()
            }
        };
        Self {
            method,
            version,
            id: RequestId::new(
                if present.has(Of::XRequestId) { headers.get("x-request-id") } else { None },
                &conn.worker,
            ),
            present,
            deadline,
            chosen: None,
            status: 0,
            attempts: 0,
            bytes_out: 0,
            error: None,
            complete: false,
            asks_upgrade: present.has(Of::Upgrade),
            connect: None,
            progress: None,
            trusted,
            running: None,
            upstream_status: None,
            kept: None,
            client,
            host: if uri.authority().is_some() { None } else { headers.get(HOST).cloned() },
            uri,
            conn,
            watch,
            flight: None,
            started_ns,
            sent_ns: Cell::new(0),
            upstream_ns: None,
        }
    }

    /// The client's address: the peer's, or what proxies that are trusted say of whom they ask for.
    pub(crate) fn client(&self) -> IpAddr {
        let plugins = self.running.as_ref().and_then(|running| running.client);
        plugins.map_or(self.client, |(address, _)| address)
    }

    /// The client's port.
    pub(crate) fn client_port(&self) -> u16 {
        let plugins = self.running.as_ref().and_then(|running| running.client);
        plugins.map_or(self.conn.peer.port(), |(_, port)| port)
    }

    /// Which way the client came.
    pub(crate) fn scheme(&self) -> &'static str {
        self.conn.scheme.as_str()
    }

    /// Bytes of the request's body so far.
    pub(crate) fn bytes_in(&self) -> u64 {
        self.progress.as_ref().map_or(0, |progress| progress.bytes.get())
    }

    /// How long the instance took to answer.
    pub(crate) fn upstream_ns(&self) -> Option<u64> {
        self.upstream_ns
    }

    /// How it goes out, where plugins say so.
    pub(crate) fn rewritten(&self) -> Option<&Rewritten> {
        self.running.as_ref().map(|running| &running.rewritten)
    }

    /// The method that goes out.
    pub(crate) fn sent_method(&self) -> &Method {
        self.rewritten().and_then(|rewritten| rewritten.method.as_ref()).unwrap_or(&self.method)
    }

    /// The query that goes out.
    pub(crate) fn sent_query(&self) -> Option<&str> {
        match self.rewritten().and_then(|rewritten| rewritten.query.as_deref()) {
            Some("") => None,
            Some(query) => Some(query),
            None => self.uri.query(),
        }
    }

    /// The client's query without what plugins have hidden in it.
    pub(crate) fn client_query(&self) -> Option<&str> {
        match self.rewritten().and_then(|rewritten| rewritten.args.as_deref()) {
            Some("") => None,
            Some(args) => Some(args),
            None => self.uri.query(),
        }
    }

    /// Hides an argument of the query from upstreams.
    pub(crate) fn hide_argument(&mut self, without: impl Fn(&str) -> String) {
        let args = self.client_query().map(&without);
        let query = self.sent_query().map(&without);
        let rewritten = &mut self.running.get_or_insert_default().rewritten;
        (rewritten.args, rewritten.query) = (args, query);
    }

    /// The path as routes and conditions see it: no spelling of it slips past one.
    pub(crate) fn matched_path(&self) -> Cow<'_, [u8]> {
        let path = self.uri.path().as_bytes();
        matched_form(path).unwrap_or(Cow::Borrowed(path))
    }

    /// Path and query that go out.
    pub(crate) fn upstream_target(&self) -> String {
        let rewritten = self.rewritten().and_then(|rewritten| rewritten.path.as_deref());
        let chosen = self.chosen.as_ref().and_then(|chosen| chosen.path.as_deref());
        let path = rewritten.or(chosen).unwrap_or(self.uri.path());
        match self.sent_query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        }
    }

    /// The host that goes out.
    pub(crate) fn upstream_host(&self) -> &[u8] {
        let chosen = self.chosen.as_ref().and_then(|chosen| chosen.host.as_deref());
        let rewritten = || self.rewritten().and_then(|rewritten| rewritten.host.as_deref());
        chosen.or_else(rewritten).map_or_else(|| self.host(), str::as_bytes)
    }

    /// How the upstream is spoken to, as in a URL.
    pub(crate) fn upstream_scheme(&self) -> &'static str {
        let upstream = self.running.as_ref().and_then(|running| running.upstream.as_ref());
        upstream.map_or("http", |upstream| upstream.scheme)
    }

    /// Whether a plugin has set this header, which gateways write themselves.
    pub(crate) fn forces(&self, name: &str) -> bool {
        self.running.as_ref().is_some_and(|running| running.forced.iter().any(|forced| forced == name))
    }

    /// Whether the request may change its connection's protocol.
    pub(crate) fn may_upgrade(&self) -> bool {
        let program = self.running.as_ref().and_then(|running| running.program.as_ref());
        program.is_none_or(|program| program.websocket)
    }

    /// Passive health is told what the endpoint did, where it is watched.
    pub(crate) fn seen(&self, report: Report) {
        let upstream = self.running.as_ref().and_then(|running| running.upstream.as_ref());
        if let (Some(watch), Some(chosen)) = (upstream.and_then(|up| up.watch.as_ref()), &self.chosen) {
            watch.note(chosen.endpoint.instance(), report);
        }
    }

    /// Whether the time for retries is over.
    pub(crate) fn retries_too_long(&self) -> bool {
        let upstream = self.running.as_ref().and_then(|running| running.upstream.as_ref());
        let most = upstream.and_then(|upstream| upstream.retry_ms);
        most.is_some_and(|ms| clock::now_ns().saturating_sub(self.started_ns) >= ms * 1_000_000)
    }

    /// The headers are not needed to send any more: plugins may look at them, or their memory is used again.
    pub(crate) fn keep_headers(&mut self, headers: HeaderMap) {
        match &mut self.running {
            Some(running) => running.headers = headers,
            None if self.conn.worker.access_form.is_some() => self.kept = Some(Box::new(headers)),
            None => self.conn.worker.put_map(headers),
        }
    }

    /// Host and port that the request is for.
    pub(crate) fn host(&self) -> &[u8] {
        match (&self.host, self.uri.authority()) {
            (Some(host), _) => host.as_bytes(),
            (None, Some(authority)) => authority.as_str().as_bytes(),
            (None, None) => b"",
        }
    }

    /// What a connection to the instance begins with: who the client is, where the upstream wants to be told. Else nothing.
    pub(crate) fn proxy_header(&self) -> Vec<u8> {
        let mut header = Vec::new();
        let upstream = self.running.as_ref().and_then(|running| running.upstream.as_ref());
        if let Some(version) = upstream.and_then(|upstream| upstream.proxy_protocol) {
            let source = SocketAddr::new(self.client(), self.client_port());
            let addresses = self.conn.local.map(|destination| Addresses { source, destination });
            proxy_protocol::write(&mut header, version, addresses);
        }
        header
    }

    /// Why the request may not be made on its connection, if it may not.
    pub(crate) fn denied(&self) -> Option<Denied> {
        let session = self.conn.tls.get()?;
        access::judge(session, self.host(), self.uri.path().as_bytes()).err()
    }

    /// What is wrong with a head that no framing guard has looked at (HTTP/2): the guard's own rules hold for it too.
    pub(crate) fn head_fault(&self, headers: &HeaderMap) -> Option<&'static str> {
        if self.version != Version::HTTP_2 {
            return None;
        }
        let target = self.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let judged = framing::judge_method(self.method.as_str().as_bytes())
            .and_then(|()| framing::judge_target(target.as_bytes()));
        if let Err(refusal) = judged {
            return Some(refusal.detail());
        }
        let mut hosts = headers.get_all(HOST).iter();
        match (self.uri.authority(), hosts.next(), hosts.next()) {
            (_, _, Some(_)) => return Some(Refusal::HostTwice.detail()),
            (None, None, _) => return Some("there is neither :authority nor a Host header"),
            (Some(authority), Some(host), _)
                if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) =>
            {
                return Some(":authority and the Host header differ");
            }
            _ => {}
        }
        if !framing::is_authority(self.host()) {
            return Some("the host is not a host name with an optional port");
        }
        let imitates = |name: &HeaderName| {
            let name = name.as_str();
            name.contains('_') && framing::imitates_framing(name.as_bytes())
        };
        headers.keys().any(imitates).then(|| Refusal::Underscore.detail())
    }

    /// An attempt begins at an endpoint.
    pub(crate) fn attempt_begins(&mut self, chosen: Chosen, flight: InFlight) {
        self.attempts += 1;
        self.chosen = Some(chosen);
        self.flight = Some(flight);
        self.sent_ns.set(if self.attempts == 1 { self.started_ns } else { clock::now_ns() });
    }

    /// When it began.
    pub(crate) fn started_ns(&self) -> u64 {
        self.started_ns
    }

    /// The present attempt has a connection only now: the time before is not the instance's.
    pub(crate) fn sends_now(&self) {
        self.sent_ns.set(clock::now_ns());
    }

    /// How long the instance has had the whole request; `None` = it does not have all of it.
    fn latency_ns(&self, now: u64) -> Option<u64> {
        let sent_ns = self.sent_ns.get();
        let sent_ns = match self.progress.as_ref().map(|progress| progress.sent_ns.get()) {
            None => sent_ns,
            Some(0) => return None,
            Some(body_ns) => sent_ns.max(body_ns),
        };
        Some(now.saturating_sub(sent_ns))
    }

    /// The instance has answered with this status.
    pub(crate) fn attempt_answers(&mut self, status: u16) {
        let now = clock::now_ns();
        let latency_ns = self.latency_ns(now);
        self.upstream_ns = Some(latency_ns.unwrap_or_else(|| now.saturating_sub(self.sent_ns.get())));
        self.status = status;
        self.upstream_status = Some(status);
        self.seen(Report::Status(status));
        if let Some(progress) = &self.progress {
            progress.stage.set(BodyStage::Answering);
        }
        let outcome = match (status, latency_ns) {
            (502..=504, _) => Outcome::Failure { latency_ns: latency_ns.unwrap_or_default() },
            (_, Some(latency_ns)) => Outcome::Success { latency_ns },
            // An answer ahead of the request's end: how long it took says nothing.
            (_, None) => return,
        };
        self.observe(now, outcome);
    }

    /// The attempt has failed; `blame` = by the endpoint's fault.
    pub(crate) fn attempt_fails(&mut self, blame: bool) {
        let now = clock::now_ns();
        if blame {
            let latency_ns = self.latency_ns(now).unwrap_or_default();
            self.observe(now, Outcome::Failure { latency_ns });
        }
        self.flight = None;
    }

    /// Nobody listens at the endpoint. More attempts would only say so again: it is left alone at once, until it is announced as
    /// another start or its ejection is over, unless its app wants no ejection for failures in a row.
    pub(crate) fn endpoint_refuses(&self) {
        if let Some(flight) = &self.flight
            && flight.endpoint().upstream.ejection.consecutive > 0
        {
            self.eject(flight.endpoint(), clock::now_ns());
        }
    }

    fn observe(&mut self, now: u64, outcome: Outcome) {
        let eject = self.flight.as_mut().is_some_and(|flight| flight.observe(now, outcome).eject);
        if let Some(flight) = self.flight.as_ref().filter(|_| eject) {
            self.eject(flight.endpoint(), now);
        }
    }

    fn eject(&self, endpoint: &Endpoint, now: u64) {
        let worker = &self.conn.worker;
        if worker.table.choose(|view| view.table.eject(endpoint, now)) {
            worker.metrics.ejections.add(1);
        }
    }

    /// The response went out whole: the endpoint is free.
    pub(crate) fn completes(&mut self) {
        self.complete = true;
        self.flight = None;
    }

    /// The tunnel has ended.
    pub(crate) fn end_tunnel(&mut self, bytes_in: u64, bytes_out: u64, complete: bool) {
        self.bytes_out = bytes_out;
        self.progress.get_or_insert_default().bytes.set(bytes_in);
        self.complete = complete;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let worker = &self.conn.worker;
        self.flight = None;
        if let Some(progress) = &self.progress {
            progress.stage.set(BodyStage::Over);
        }
        crate::plugins::run::log(self);
        let now = clock::now_ns();
        let duration_us = now.saturating_sub(self.started_ns) / 1000;
        let bytes_in = self.progress.as_ref().map_or(0, |progress| progress.bytes.get());
        worker.metrics.under_way.sub(1);
        worker.metrics.requests.add(self.status, duration_us, bytes_in, self.bytes_out);
        if let Some(code) = self.error {
            worker.metrics.error(code);
        }
        if !self.complete && self.error.is_none() {
            worker.metrics.clients_gone.add(1);
        }
        if let Some(chosen) = &self.chosen {
            worker.count_for(&chosen.route.spec.app, &chosen.budget, |metrics| {
                metrics.requests.add(self.status, duration_us, bytes_in, self.bytes_out);
            });
        }
        if let Some(form) = &worker.access_form {
            worker.log_text(&form.line(&self.vars_at_end()).to_string());
        } else {
            self.write_line(bytes_in, duration_us);
        }
        if self.watch.is_some() {
            self.conn.streams.set(self.conn.streams.get().saturating_sub(1));
        } else {
            self.conn.request_ends(self.asks_upgrade);
        }
    }
}

impl Record {
    /// Its variables, once it has ended.
    fn vars_at_end(&self) -> Vars<'_> {
        static NONE: LazyLock<HeaderMap> = LazyLock::new(HeaderMap::new);
        match &self.running {
            Some(running) => Vars { record: self, headers: &running.headers, reply: Some(&running.reply) },
            None => Vars { record: self, headers: self.kept.as_deref().unwrap_or(&NONE), reply: None },
        }
    }

    fn write_line(&self, bytes_in: u64, duration_us: u64) {
        let worker = &self.conn.worker;
        let running = self.running.as_deref();
        let about = running.and_then(|running| running.program.as_ref()).map(|program| &program.about);
        worker.at_wall_clock(self.started_ns, |second, millisecond| {
            worker.log(&AccessLine {
                second,
                millisecond,
                id: self.id.as_bytes(),
                client: self.client(),
                method: self.method.as_str(),
                scheme: self.conn.scheme.as_str(),
                host: self.host(),
                path: self.uri.path(),
                protocol: if self.version == Version::HTTP_2 { "HTTP/2" } else { "HTTP/1.1" },
                status: self.status,
                bytes_in,
                bytes_out: self.bytes_out,
                duration_us,
                upstream_us: self.upstream_ns.map(|ns| ns / 1000),
                app: self.chosen.as_ref().map(|chosen| &chosen.route.spec.app),
                lane: self.chosen.as_ref().map(|chosen| &chosen.lane),
                instance: self.chosen.as_ref().map(|chosen| chosen.endpoint.instance()),
                attempts: self.attempts,
                route: about.map(|about| about.route.as_str()),
                service: about.and_then(|about| about.service.as_deref()),
                consumer: running.and_then(|running| running.consumer.as_ref()).map(|one| one.name.as_str()),
                plugin: running.and_then(|running| running.answered),
                error: self.error,
                complete: self.complete,
            })
        });
    }
}
