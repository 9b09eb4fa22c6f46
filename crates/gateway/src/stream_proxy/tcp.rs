//! One TCP session.

use super::choose::{self, Chosen, StreamView};
use super::gate::Refused;
use super::pump;
use super::routes::Stream;
use super::session::Session;
use super::sniff::{self, Hello};
use crate::clock;
use crate::deadline::Deadline;
use crate::metrics::StreamEnd;
use crate::tls::{TlsListener, Use};
use crate::upstream::AttemptFault;
use crate::upstream::pool::To;
use crate::upstream::stream::UpstreamStream;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use towpath_route::{InFlight, NoPick, TriedSet};
use towpath_types::ErrorCode;

/// How long a client that has sent nothing yet may hold up a drain.
const DRAIN_QUIET_MS: u64 = 500;

/// Reads the server name of a client whose TLS is passed on as it is, then serves the session.
pub(super) async fn serve_passing(mut session: Session, deadline: Deadline, mut client: TcpStream) {
    let mut first = Vec::new();
    let head_ms = session.worker.settings.timeouts.head_ms;
    deadline.set_in(head_ms);
    let found = until(&session, &deadline, peek(&mut client, &mut first)).await;
    match found {
        Some(Ok(Hello::Named(name))) => session.sni = Some(name),
        Some(Ok(Hello::Nameless | Hello::Foreign)) => {}
        // Nothing, or only a beginning.
        Some(Ok(Hello::Incomplete) | Err(_)) | None => return,
    }
    serve(session, deadline, client, first).await;
}

/// Speaks TLS with the client, then serves the session.
pub(super) async fn serve_tls(
    mut session: Session,
    deadline: Deadline,
    client: TcpStream,
    tls: Arc<TlsListener>,
) {
    let worker = session.worker.clone();
    let Some(place) = tls.place() else {
        worker.metrics.handshakes_refused.add(1);
        return session.ends_by(StreamEnd::Refused, 503, Some(ErrorCode::Overloaded));
    };
    deadline.set_in(worker.settings.timeouts.handshake_ms);
    let made = until(&session, &deadline, tls.accept(&worker.turns, client, Use::Stream)).await;
    drop(place);
    let Some(Ok((client, agreed))) = made else {
        worker.metrics.handshake_failures.add(1);
        return;
    };
    worker.metrics.handshakes.add(1);
    // A stream has no paths that could do without.
    let lacks = agreed.served.client.is_some() && !agreed.verified;
    session.sni = agreed.name.map(String::from);
    if lacks {
        return session.ends_by(StreamEnd::Refused, 403, None);
    }
    serve(session, deadline, client, Vec::new()).await;
}

/// Reads until it is certain what the client says.
async fn peek(client: &mut TcpStream, first: &mut Vec<u8>) -> io::Result<Hello> {
    loop {
        if client.read_buf(first).await? == 0 {
            return Ok(Hello::Incomplete);
        }
        match sniff::read(first) {
            Hello::Incomplete => {}
            found => return Ok(found),
        }
    }
}

/// The future's result, if it is there before the deadline, which a drain brings nearer.
async fn until<T>(session: &Session, deadline: &Deadline, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut hurried = false;
    poll_fn(|cx| {
        if session.worker.draining.get() && !hurried {
            hurried = true;
            deadline.set_in(session.worker.quiet_ms(DRAIN_QUIET_MS));
        }
        match future.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if deadline.is_over(cx) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// Serves a session to its end. `first` is what the client has sent already.
pub(super) async fn serve(
    mut session: Session,
    deadline: Deadline,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    first: Vec<u8>,
) {
    let worker = session.worker.clone();
    let Some(stream) = choose::find(&worker, &session.asking()) else {
        return session.ends_by(StreamEnd::NoRoute, 404, Some(ErrorCode::NoRoute));
    };
    session.leads_to(&stream.route.spec.app);
    let entered = stream.gate.enter(&view(&session, &stream));
    let held = match entered {
        Ok(held) => held,
        Err(why) => return refuse(&mut session, why),
    };
    if !held.delay().is_zero() {
        tokio::time::sleep(held.delay()).await;
    }
    let Some((mut upstream, chosen, flight)) = connect(&mut session, &stream, &deadline).await else {
        return;
    };
    let moved = pump::run(&deadline, &mut client, &mut upstream, first, chosen.idle_ms).await;
    drop(flight);
    session.bytes_in.set(moved.up);
    session.bytes_out.set(moved.down);
    session.complete.set(moved.complete);
    let metrics = worker.metrics.streams.of(session.kind);
    metrics.bytes_in.add(moved.up);
    metrics.bytes_out.add(moved.down);
}

pub(super) fn view<'s>(session: &'s Session, stream: &'s Stream) -> StreamView<'s> {
    StreamView {
        local: session.local,
        peer: session.peer,
        sni: session.sni.as_deref(),
        protocol: if session.kind == crate::metrics::StreamKind::Udp { "UDP" } else { "TCP" },
        route: &stream.id,
    }
}

pub(super) fn refuse(session: &mut Session, why: Refused) {
    let (status, code) = match why {
        Refused::Address => (403, None),
        Refused::Limit => (503, Some(ErrorCode::Overloaded)),
    };
    session.ends_by(StreamEnd::Refused, status, code);
}

pub(super) fn fail(session: &mut Session, code: ErrorCode) {
    session.ends_by(StreamEnd::Failed, code.status(), Some(code));
}

/// A connection to an endpoint: to others when it cannot be made, as often as the upstream permits.
async fn connect(
    session: &mut Session,
    stream: &Stream,
    deadline: &Deadline,
) -> Option<(UpstreamStream, Chosen, InFlight)> {
    let worker = session.worker.clone();
    let mut tried = TriedSet::default();
    let mut last: Option<AttemptFault> = None;
    loop {
        let choice = choose::choose(&worker, stream, &view(session, stream), &tried);
        let (chosen, mut flight) = match (choice, last.take()) {
            (Ok(choice), _) => choice,
            (Err(NoPick::AllTried), Some(fault)) => {
                fail(session, fault.code());
                return None;
            }
            (Err(none), _) => {
                fail(session, none.code());
                return None;
            }
        };
        session.attempts += 1;
        let began = clock::now_ns();
        deadline.clear();
        deadline.set_in(chosen.timeouts.connect.0);
        let opened = worker
            .pool
            .connect(
                To { address: chosen.endpoint.address(), tls: chosen.tls.as_ref(), first: &[] },
                deadline,
            )
            .await;
        let fault = match opened {
            Ok(upstream) => {
                chosen.does_well(&mut flight, began);
                session.is_served(&chosen, began);
                return Some((upstream, chosen, flight));
            }
            Err(fault) => fault,
        };
        chosen.fails(&worker, &mut flight, &fault, began);
        tracing::debug!(error = %fault, "a stream session got no connection");
        let since = clock::now_ns().saturating_sub(session.started_ns());
        let late = chosen.retry_ms.is_some_and(|ms| since >= ms.saturating_mul(1_000_000));
        let policy = &chosen.endpoint.upstream.retry;
        let may = session.attempts <= policy.retries && !late && tried.add(chosen.endpoint.instance());
        if !may || !chosen.budget.try_retry(clock::now_ns(), policy) {
            fail(session, fault.code());
            return None;
        }
        worker.metrics.retries.add(1);
        last = Some(fault);
    }
}
