//! After 101 (or the 200 to an extended CONNECT): bytes both ways until both ends are done, or silent for too long.

use super::conn::TunnelEnd;
use crate::deadline::Deadline;
use bytes::{Buf, Bytes};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of one read.
const PIECE_BYTES: usize = 16 * 1024;

/// One direction of a tunnel. Holds no buffer while it is silent.
struct Pipe {
    waiting: Bytes,
    ended: bool,
    closed: bool,
    bytes: u64,
}

impl Pipe {
    fn new(first: Bytes) -> Self {
        Self { waiting: first, ended: false, closed: false, bytes: 0 }
    }

    /// Moves bytes; `Ready` = this direction is done and its end was passed on.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
        deadline: &Deadline,
        idle_ms: u64,
    ) -> Poll<io::Result<()>> {
        loop {
            while !self.waiting.is_empty() {
                match ready!(Pin::new(&mut *to).poll_write(cx, &self.waiting))? {
                    0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                    written => {
                        self.waiting.advance(written);
                        self.bytes += written as u64;
                    }
                }
                deadline.set_in(idle_ms);
            }
            if self.ended {
                if !self.closed {
                    ready!(Pin::new(&mut *to).poll_shutdown(cx))?;
                    self.closed = true;
                }
                return Poll::Ready(Ok(()));
            }
            let mut bytes = [0; PIECE_BYTES];
            let mut read = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *from).poll_read(cx, &mut read) {
                Poll::Pending => {
                    ready!(Pin::new(&mut *to).poll_flush(cx))?;
                    return Poll::Pending;
                }
                Poll::Ready(result) => result?,
            }
            deadline.set_in(idle_ms);
            self.ended = read.filled().is_empty();
            self.waiting = Bytes::copy_from_slice(read.filled());
        }
    }
}

/// Runs the tunnel to its end. `first` is what the client has sent already.
pub(crate) async fn run(
    deadline: &Deadline,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    first: Bytes,
    end: TunnelEnd,
) {
    let TunnelEnd { mut stream, first: answer, idle_ms, mut record } = end;
    let (mut up, mut down) = (Pipe::new(first), Pipe::new(answer));
    deadline.clear();
    deadline.set_in(idle_ms);
    let result = poll_fn(|cx| {
        let sent = up.poll(cx, &mut client, &mut stream, deadline, idle_ms)?;
        let received = down.poll(cx, &mut stream, &mut client, deadline, idle_ms)?;
        if (sent.is_ready() && received.is_ready()) || deadline.is_over(cx) {
            return Poll::Ready(Ok::<_, io::Error>(()));
        }
        Poll::Pending
    })
    .await;
    record.end_tunnel(up.bytes, down.bytes, result.is_ok());
}
