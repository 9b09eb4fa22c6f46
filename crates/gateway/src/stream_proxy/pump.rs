//! Bytes both ways until both ends are done, or silent for too long.

use crate::deadline::Deadline;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one read. Small pieces double the cost of large transfers.
const PIECE_BYTES: usize = 64 * 1024;

thread_local! {
    /// What is read goes through here, so that a session that is silent holds no buffer.
    static PIECE: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE_BYTES]);
}

/// One direction. It reads on only when all that it has read is written.
#[derive(Default)]
struct Pipe {
    /// Read, and not written yet.
    waiting: Vec<u8>,
    /// So much of it is written.
    written: usize,
    ended: bool,
    closed: bool,
    bytes: u64,
}

impl Pipe {
    /// Moves bytes; `Ready` = this direction is done and its end was passed on.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        piece: &mut [u8],
        moved: &mut bool,
    ) -> Poll<io::Result<()>> {
        loop {
            while let Some(rest) = self.waiting.get(self.written..).filter(|rest| !rest.is_empty()) {
                let written = ready!(Pin::new(&mut *to).poll_write(cx, rest))?;
                self.wrote(written, moved)?;
                self.written += written;
            }
            if self.written > 0 {
                (self.waiting, self.written) = (Vec::new(), 0);
            }
            if self.ended {
                if !self.closed {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.closed = true;
                }
                return Poll::Ready(Ok(()));
            }
            let mut read = ReadBuf::new(piece);
            match Pin::new(&mut *from).poll_read(cx, &mut read) {
                Poll::Pending => {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    return Poll::Pending;
                }
                Poll::Ready(result) => result?,
            }
            *moved = true;
            let filled = read.filled();
            if filled.is_empty() {
                self.ended = true;
                continue;
            }
            let written = match Pin::new(&mut *to).poll_write(cx, filled) {
                Poll::Ready(written) => written?,
                Poll::Pending => 0,
            };
            self.bytes += written as u64;
            if let Some(rest) = filled.get(written..).filter(|rest| !rest.is_empty()) {
                self.waiting = rest.to_vec();
                // Whether it can be written now is asked again above, so that the task is woken when it can.
            }
        }
    }

    fn wrote(&mut self, written: usize, moved: &mut bool) -> io::Result<()> {
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.bytes += written as u64;
        *moved = true;
        Ok(())
    }
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moved {
    /// From the client.
    pub(super) up: u64,
    /// To the client.
    pub(super) down: u64,
    /// Both sides have said that they are done.
    pub(super) complete: bool,
}

/// Copies until both sides have ended, one of them breaks, or nothing has moved for `idle_ms`. `first` is what the client has
/// sent already.
pub(super) async fn run(
    deadline: &Deadline,
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
    upstream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    first: Vec<u8>,
    idle_ms: u64,
) -> Moved {
    let (mut up, mut down) = (Pipe { waiting: first, ..Pipe::default() }, Pipe::default());
    deadline.clear();
    deadline.set_in(idle_ms);
    let complete = poll_fn(|cx| {
        PIECE.with_borrow_mut(|piece| {
            let mut moved = false;
            let sent = up.poll(cx, client, upstream, piece, &mut moved)?;
            let received = down.poll(cx, upstream, client, piece, &mut moved)?;
            if moved {
                deadline.set_in(idle_ms);
            }
            if sent.is_ready() && received.is_ready() {
                return Poll::Ready(Ok::<_, io::Error>(true));
            }
            if deadline.is_over(cx) { Poll::Ready(Ok(false)) } else { Poll::Pending }
        })
    })
    .await;
    Moved { up: up.bytes, down: down.bytes, complete: complete.unwrap_or(false) }
}
