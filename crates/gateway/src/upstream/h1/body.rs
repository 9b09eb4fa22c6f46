//! The rest of a response: its body, read from the connection when the client can take more.

use super::H1Conn;
use super::decoder::{Decoder, Piece};
use crate::buffer::Buffer;
use crate::deadline::Deadline;
use crate::upstream::request_body::BodyPump;
use bytes::Bytes;
use http_body::Frame;
use std::io;
use std::task::{Context, Poll, ready};

/// A response body on its connection.
pub(crate) struct H1Body {
    conn: Option<H1Conn>,
    decoder: Decoder,
    input: Bytes,
    ahead: Option<Bytes>,
    trailers: Option<http::HeaderMap>,
    pump: Option<Box<BodyPump>>,
    keep: bool,
}

impl H1Body {
    /// The body behind a head: `input` is what was read of it already, `pump` what still has to be sent of the request.
    pub(crate) fn new(
        conn: H1Conn,
        decoder: Decoder,
        input: Bytes,
        pump: Option<Box<BodyPump>>,
        keep: bool,
    ) -> Self {
        Self { conn: Some(conn), decoder, input, ahead: None, trailers: None, pump, keep }
    }

    /// Whether all of it was taken.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.decoder, Decoder::Done) && self.ahead.is_none() && self.trailers.is_none()
    }

    /// Bytes that are still to come, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        self.decoder.left()
    }

    /// The whole body, if all of it was read together with the head and it is no longer than `most`.
    pub(crate) fn take_whole(&mut self, most: usize) -> Option<Bytes> {
        let whole = self.pump.is_none()
            && (1..=most).contains(&self.input.len())
            && self.decoder.left() == Some(self.input.len() as u64);
        if !whole {
            return None;
        }
        self.decoder = Decoder::Done;
        Some(std::mem::take(&mut self.input))
    }

    /// The connection, once the body is done and if it may carry another request.
    pub(crate) fn take_conn(&mut self) -> Option<H1Conn> {
        let conn = self.conn.take()?;
        (self.keep && self.is_done() && self.input.is_empty() && self.pump.is_none()).then_some(conn)
    }

    /// The bare connection and what was read from it, for a tunnel.
    pub(crate) fn into_tunnel(self) -> Option<(H1Conn, Bytes)> {
        Some((self.conn?, self.input))
    }

    /// The next piece. Reading moves the deadline to `idle_ms` from now.
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &Deadline,
        idle_ms: u64,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.poll_pump(cx, deadline, idle_ms);
        if let Some(data) = self.ahead.take() {
            self.look_ahead()?;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        loop {
            match self.decoder.take(&mut self.input).map_err(malformed)? {
                Piece::Data(data) => {
                    self.look_ahead()?;
                    return Poll::Ready(Some(Ok(Frame::data(data))));
                }
                Piece::End(trailers) => {
                    let trailers = trailers.or_else(|| self.trailers.take());
                    return Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
                }
                Piece::More => {}
            }
            let Some(conn) = &mut self.conn else { return Poll::Ready(None) };
            let mut buffer = Buffer::take();
            if ready!(conn.poll_read(cx, &mut buffer))? == 0 {
                return Poll::Ready(if matches!(self.decoder, Decoder::UntilClose) {
                    self.decoder = Decoder::Done;
                    None
                } else {
                    Some(Err(io::ErrorKind::UnexpectedEof.into()))
                });
            }
            deadline.set_in(idle_ms);
            self.input = buffer.freeze();
        }
    }

    /// Finds out whether the body ends with what is there already, so that its last piece can be known as the last.
    fn look_ahead(&mut self) -> io::Result<()> {
        if !self.input.is_empty() && matches!(self.decoder, Decoder::Chunked(_)) {
            match self.decoder.take(&mut self.input).map_err(malformed)? {
                Piece::Data(data) => self.ahead = Some(data),
                Piece::End(trailers) => self.trailers = trailers,
                Piece::More => {}
            }
        }
        Ok(())
    }

    /// Goes on sending the request while its response is read already.
    fn poll_pump(&mut self, cx: &mut Context<'_>, deadline: &Deadline, idle_ms: u64) {
        if let (Some(pump), Some(conn)) = (&mut self.pump, &mut self.conn)
            && let Poll::Ready(result) = pump.poll(cx, conn, deadline, idle_ms)
        {
            self.keep &= result.is_ok();
            self.pump = None;
        }
    }
}

fn malformed(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
