//! One attempt over one connection: the request goes out, the response head comes back. Everything happens in the task
//! of the client's connection; both directions move at once, so an early answer ends an upload.

use super::response_head::{self, ResponseHead};
use super::{H1Body, H1Conn};
use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::upstream::request_body::{BodyPump, PumpFault, RequestBody};
use crate::upstream::{AttemptFault, BodyFault};
use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

/// Most interim responses to one request. Nobody has use for more, and each costs a look.
const INTERIM_MOST: u32 = 32;

/// What the exchange needs to know of the request whose head has been started on the connection.
pub(crate) struct Sending<'a> {
    /// Its method.
    pub(crate) method: &'a Method,
    /// It waits for `100 Continue` before it sends its body.
    pub(crate) expects_continue: bool,
    /// It asked for another protocol.
    pub(crate) upgrades: bool,
    /// The request's deadline.
    pub(crate) deadline: &'a Deadline,
    /// Longest wait for the instance's `100 Continue`.
    pub(crate) expect_ms: u64,
    /// Longest silence while the body is sent.
    pub(crate) idle_ms: u64,
    /// Longest wait for the response head after that.
    pub(crate) response_ms: u64,
    /// Longest response head in bytes.
    pub(crate) head_max: usize,
}

/// A response head, and what follows it.
pub(crate) struct H1Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: H1Body,
    /// The protocol that the connection has switched to (status 101).
    pub(crate) upgrade: Option<HeaderValue>,
}

/// State of an attempt under way.
struct Exchange<'a> {
    conn: Option<H1Conn>,
    pump: Option<Box<BodyPump>>,
    hold: bool,
    broken: Option<io::Error>,
    /// A byte of a response has come.
    heard: bool,
    buffer: Option<Buffer>,
    line_at: usize,
    /// Interim responses so far.
    interim: u32,
    headers: HeaderMap,
    sending: &'a Sending<'a>,
}

/// Sends the rest of the request and waits for the response head. The connection's head was begun with
/// [`H1Conn::start`]; `headers` is an empty map to fill.
pub(crate) async fn exchange(
    conn: H1Conn,
    body: Option<RequestBody>,
    headers: HeaderMap,
    sending: &Sending<'_>,
) -> Result<H1Reply, AttemptFault> {
    let pump = body.map(BodyPump::new).map(Box::new);
    let hold = sending.expects_continue && pump.is_some();
    sending.deadline.set_in(match (&pump, hold) {
        (_, true) => sending.expect_ms.max(1),
        (Some(_), _) => sending.idle_ms,
        (None, _) => sending.response_ms,
    });
    let mut exchange = Exchange {
        conn: Some(conn),
        pump,
        hold,
        broken: None,
        heard: false,
        buffer: None,
        line_at: 0,
        interim: 0,
        headers,
        sending,
    };
    poll_fn(|cx| exchange.poll(cx)).await
}

impl Exchange<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<H1Reply, AttemptFault>> {
        loop {
            if let Err(fault) = self.poll_send(cx) {
                return Poll::Ready(Err(fault));
            }
            let held = self.hold;
            if let Poll::Ready(reply) = self.poll_receive(cx) {
                return Poll::Ready(reply);
            }
            if held && !self.hold {
                continue;
            }
            if !self.sending.deadline.is_over(cx) {
                return Poll::Pending;
            }
            if !self.hold {
                return Poll::Ready(Err(match &self.pump {
                    Some(pump) if !pump.waits_for_instance() => AttemptFault::Client(BodyFault::Slow),
                    _ => AttemptFault::Timeout,
                }));
            }
            self.release();
        }
    }

    /// The body need not wait for `100 Continue` any longer.
    fn release(&mut self) {
        if self.hold {
            self.hold = false;
            self.sending.deadline.set_in(self.sending.idle_ms);
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Result<(), AttemptFault> {
        let Some(conn) = &mut self.conn else { return Ok(()) };
        if self.broken.is_some() {
            return Ok(());
        }
        match conn.poll_flush(cx) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Err(error)) => self.broken = Some(error),
            Poll::Ready(Ok(())) if self.hold => return Ok(()),
            Poll::Ready(Ok(())) => {}
        }
        let Some(pump) = &mut self.pump else { return Ok(()) };
        match pump.poll(cx, conn, self.sending.deadline, self.sending.idle_ms) {
            Poll::Pending => return Ok(()),
            Poll::Ready(Ok(())) => self.sending.deadline.set_in(self.sending.response_ms),
            Poll::Ready(Err(PumpFault::Client(fault))) => return Err(AttemptFault::Client(fault)),
            // An instance may answer and close without reading all of the body: look for that answer first.
            Poll::Ready(Err(PumpFault::Upstream(error))) => self.broken = Some(error),
        }
        self.pump = None;
        Ok(())
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<H1Reply, AttemptFault>> {
        loop {
            let Some(conn) = &mut self.conn else { return Poll::Pending };
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            match conn.poll_read(cx, buffer) {
                Poll::Pending => {
                    if buffer.filled().is_empty() {
                        self.buffer = None;
                    }
                    return Poll::Pending;
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.ended(error))),
                Poll::Ready(Ok(0)) => {
                    let error = self.broken.take().unwrap_or_else(|| io::ErrorKind::UnexpectedEof.into());
                    return Poll::Ready(Err(self.ended(error)));
                }
                Poll::Ready(Ok(_)) => self.heard = true,
            }
            while let Some(head) = self.next_head()? {
                if let Some(reply) = self.take_head(head)? {
                    return Poll::Ready(Ok(reply));
                }
            }
        }
    }

    /// The connection has ended before a response head was there.
    fn ended(&self, error: io::Error) -> AttemptFault {
        if self.heard { AttemptFault::Broken(error) } else { AttemptFault::Silent(error) }
    }

    /// The next complete head with all that was read behind it.
    fn next_head(&mut self) -> Result<Option<(Bytes, Bytes)>, AttemptFault> {
        let Some(buffer) = &self.buffer else { return Ok(None) };
        let end = response_head::find_end(buffer.filled(), &mut self.line_at);
        if end.unwrap_or(buffer.filled().len()) > self.sending.head_max || (end.is_none() && buffer.is_full())
        {
            return Err(AttemptFault::Malformed("the head is too long"));
        }
        let Some(end) = end else { return Ok(None) };
        self.line_at = 0;
        let mut head = self.buffer.take().map(Buffer::freeze).unwrap_or_default();
        let rest = head.split_off(end);
        Ok(Some((head, rest)))
    }

    /// Takes a head: a final one makes the reply, an interim one is obeyed and forgotten.
    fn take_head(&mut self, (head, rest): (Bytes, Bytes)) -> Result<Option<H1Reply>, AttemptFault> {
        let headers = std::mem::take(&mut self.headers);
        let head =
            response_head::parse(&head, self.sending.method, headers).map_err(AttemptFault::Malformed)?;
        let switched = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if switched && !self.sending.upgrades {
            return Err(AttemptFault::Malformed("it switches protocols unasked"));
        }
        if head.status.is_informational() && !switched {
            self.interim += 1;
            if self.interim > INTERIM_MOST {
                return Err(AttemptFault::Malformed("it sends interim responses without end"));
            }
            if head.status == StatusCode::CONTINUE {
                self.release();
            }
            self.headers = head.headers;
            self.headers.clear();
            if !rest.is_empty() {
                let mut buffer = Buffer::take();
                if let Some(free) = buffer.free_mut().get_mut(..rest.len()) {
                    free.copy_from_slice(&rest);
                }
                buffer.add_filled(rest.len());
                self.buffer = Some(buffer);
            }
            return Ok(None);
        }
        Ok(self.reply(head, rest))
    }

    fn reply(&mut self, head: ResponseHead, rest: Bytes) -> Option<H1Reply> {
        let mut conn = self.conn.take()?;
        conn.served += 1;
        // A second less than the instance says: its clock started before ours.
        conn.idle_limit_ms =
            head.keep_seconds.map_or(u64::MAX, |s| s.saturating_mul(1000).saturating_sub(1000));
        let keep = head.keep && self.broken.is_none() && head.upgrade.is_none();
        let body = H1Body::new(conn, head.decoder, rest, self.pump.take(), keep);
        Some(H1Reply { status: head.status, headers: head.headers, body, upgrade: head.upgrade })
    }
}
