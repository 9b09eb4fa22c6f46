//! The framing guard between a client's socket and hyper's HTTP/1 parser.
//!
//! hyper is shown complete, judged heads only; a head that is still arriving stays here. In the place of a head that is
//! refused it gets a request of our own making, whose number [`Conn::refused`] holds: so the refusal is answered in its
//! turn, behind the responses to earlier requests, by the code that answers everything else, and not one of the refused
//! bytes reaches another parser. A body that is refused ends in an error.

use super::conn::{Conn, Phase};
use super::stream::ClientStream;
use crate::framing::{Guard, Refusal, Stop};
use bytes::Bytes;
use hyper::rt::ReadBufCursor;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that one read takes in.
const READ_BYTES: usize = 64 * 1024;

/// Who ends its side within this time after its last byte has said all that it wants to say, and waits for its answer. Who
/// does so later has waited in vain, and is gone: the two look the same.
const HALF_CLOSE_MS: u64 = 1000;

/// What hyper reads in the place of a refused head.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// A head and a body up to this are copied together: for the system one piece costs less than two, by more than the copy.
const JOINED_BYTES: usize = 4 * 1024;

thread_local! {
    /// What is written as one piece.
    static JOINED: RefCell<Vec<u8>> = RefCell::new(Vec::with_capacity(JOINED_BYTES));
    /// A read is judged and copied on before the next one begins, so one buffer serves all connections of a thread.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A client's stream under guard.
pub(crate) struct GuardedIo {
    stream: ClientStream,
    guard: Guard,
    conn: Rc<Conn>,
    /// Read, and not passed on yet: judged up to `judged`, then a head that is not complete.
    held: Vec<u8>,
    judged: usize,
    stop: Option<Stop>,
    stand_in_given: bool,
    /// When the last bytes came.
    read_ms: u64,
    /// The client has ended its side, and is owed answers still.
    half_closed: bool,
    /// The client's side has ended, and everything that was owed is out.
    paid: bool,
}

impl GuardedIo {
    /// Guards a stream.
    pub(crate) fn new(stream: ClientStream, guard: Guard, conn: Rc<Conn>) -> Self {
        Self {
            stream,
            guard,
            conn,
            held: Vec::new(),
            judged: 0,
            stop: None,
            stand_in_given: false,
            read_ms: 0,
            half_closed: false,
            paid: false,
        }
    }

    /// Whether a whole request is there that is not answered.
    fn is_owing(&self) -> bool {
        let unanswered =
            self.guard.heads() > self.conn.requests.get() || self.conn.phase.get() != Phase::Between;
        unanswered && !self.guard.in_body() && !self.guard.in_head()
    }

    /// The client's side has ended. hyper would take that for the end of everything, so it hears of it after the answer.
    fn half_closes(&mut self) -> bool {
        let soon = self.conn.deadline.now_ms().saturating_sub(self.read_ms) <= HALF_CLOSE_MS;
        self.half_closed = soon && self.is_owing();
        self.half_closed
    }

    /// Whether the client has not sent all of a request yet.
    pub(crate) fn in_body(&self) -> bool {
        self.guard.in_body()
    }

    /// The stream, what was read of it without being passed on, and the number of complete heads.
    pub(crate) fn into_parts(self) -> (ClientStream, Bytes, u64) {
        (self.stream, Bytes::from(self.held), self.guard.heads())
    }

    /// Obeys what was decided elsewhere: an upgrade's answer, a head that is too late.
    fn obey(&mut self) {
        if let Some(switched) = self.conn.switched.take() {
            self.guard.resume(switched);
            if self.stop == Some(Stop::Upgrade) {
                self.stop = None;
                self.judge_held();
            }
        }
        if self.conn.head_late.take() && self.guard.in_head() {
            self.guard.refuse(Refusal::HeadTimeout);
            self.stop = Some(Stop::BadHead(Refusal::HeadTimeout));
        }
    }

    fn judge_held(&mut self) {
        let verdict = self.guard.judge(self.held.get(self.judged..).unwrap_or_default());
        self.judged += verdict.pass;
        self.stop = verdict.stop;
        self.watch_head();
    }

    /// A head that has begun must be complete before its deadline.
    fn watch_head(&self) {
        if self.guard.in_head() && self.conn.phase.get() == Phase::Between && self.judged == 0 {
            self.conn.head_begins();
        }
    }

    /// Passes on what is judged; `false` = there is nothing.
    fn pass_held(&mut self, buf: &mut ReadBufCursor<'_>) -> bool {
        let len = self.judged.min(buf.remaining());
        if len == 0 {
            return false;
        }
        buf.put_slice(self.held.get(..len).unwrap_or_default());
        self.held.drain(..len);
        self.judged -= len;
        true
    }

    /// Reads, judges, and passes on at once what is in order. `Ok(false)` = nothing could be passed on yet.
    fn poll_pass_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBufCursor<'_>,
    ) -> Poll<io::Result<Passed>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let most = scratch.len().min(buf.remaining());
            let mut read = ReadBuf::new(scratch.get_mut(..most).unwrap_or_default());
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            let read = read.filled();
            if read.is_empty() {
                return Poll::Ready(Ok(Passed::End));
            }
            self.conn.touch();
            self.read_ms = self.conn.deadline.now_ms();
            if !self.held.is_empty() {
                self.held.extend_from_slice(read);
                self.judge_held();
                return Poll::Ready(Ok(if self.pass_held(buf) { Passed::Some } else { Passed::Nothing }));
            }
            let verdict = self.guard.judge(read);
            self.stop = verdict.stop;
            let (good, rest) = read.split_at_checked(verdict.pass).unwrap_or((read, &[]));
            buf.put_slice(good);
            if matches!(self.stop, None | Some(Stop::Upgrade)) {
                self.held.extend_from_slice(rest);
            }
            self.watch_head();
            Poll::Ready(Ok(if good.is_empty() { Passed::Nothing } else { Passed::Some }))
        })
    }

    /// After an upgrade request: keep what comes, up to a bound, and notice when the client goes.
    fn poll_hold(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        *self.conn.hold_waker.borrow_mut() = Some(cx.waker().clone());
        while self.held.len() < READ_BYTES {
            let mut bytes = [0; 4096];
            let mut read = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            self.held.extend_from_slice(read.filled());
        }
        Poll::Pending
    }
}

enum Passed {
    Some,
    Nothing,
    End,
}

impl hyper::rt::Read for GuardedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            this.obey();
            if this.pass_held(&mut buf) {
                return Poll::Ready(Ok(()));
            }
            if this.half_closed {
                // An answer counts as given when it is written, which is after its body was handed over.
                if this.paid {
                    return Poll::Ready(Ok(()));
                }
                *this.conn.hold_waker.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            }
            match this.stop {
                None => {}
                Some(Stop::Upgrade) => return this.poll_hold(cx),
                Some(Stop::BadHead(refusal)) => {
                    if this.stand_in_given {
                        return Poll::Pending;
                    }
                    this.stand_in_given = true;
                    this.conn.refused.set(Some((this.guard.heads() + 1, refusal)));
                    this.conn.linger.set(true);
                    buf.put_slice(STAND_IN);
                    return Poll::Ready(Ok(()));
                }
                Some(Stop::BadBody(refusal)) => {
                    this.conn.body_refused.set(Some(refusal));
                    this.conn.linger.set(true);
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal.detail())));
                }
            }
            match ready!(this.poll_pass_read(cx, &mut buf))? {
                Passed::Nothing => {}
                Passed::End if this.half_closes() => {}
                Passed::Some | Passed::End => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl hyper::rt::Write for GuardedIo {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.conn.unsent.set(true);
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
        self.conn.touch();
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.conn.unsent.set(true);
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let written = if bufs.len() > 1 && total <= JOINED_BYTES {
            JOINED.with_borrow_mut(|joined| {
                joined.clear();
                bufs.iter().for_each(|buf| joined.extend_from_slice(buf));
                Pin::new(&mut self.stream).poll_write(cx, joined)
            })
        } else {
            Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
        };
        let written = ready!(written)?;
        self.conn.touch();
        Poll::Ready(Ok(written))
    }

    /// hyper comes here when nothing is left in its buffer.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.conn.unsent.set(false);
        if self.half_closed && !self.paid && !self.is_owing() {
            self.paid = true;
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// The connection's driver takes the stream back and closes it: a tunnel goes on with it, a refusal lingers.
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
