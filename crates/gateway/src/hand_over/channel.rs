//! Messages over a unix socket, one a line, some with a descriptor.

use super::Message;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use tokio::io::Interest;
use tokio::net::UnixStream;

/// Longest message, and most that is read ahead.
const LINE_MAX: usize = 16 << 20;
/// Bytes of one read.
const PIECE_BYTES: usize = 16 * 1024;

/// See the module.
pub(super) struct Channel {
    stream: UnixStream,
    buffer: Vec<u8>,
    /// Descriptors come in the order of the messages to which they belong.
    descriptors: VecDeque<OwnedFd>,
}

impl Channel {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, buffer: Vec::new(), descriptors: VecDeque::new() }
    }

    /// The stream alone. What was read ahead is lost: nothing may have been.
    pub(super) fn into_std(self) -> io::Result<std::os::unix::net::UnixStream> {
        self.stream.into_std()
    }

    /// Sends a message.
    pub(super) async fn send(&self, message: &Message, descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        let mut rest = line.as_slice();
        let mut descriptor = descriptor;
        while !rest.is_empty() {
            let sent = self.stream.async_io(Interest::WRITABLE, || self.send_some(rest, descriptor)).await?;
            rest = rest.get(sent..).unwrap_or_default();
            // It went with the first byte.
            descriptor = None;
        }
        Ok(())
    }

    fn send_some(&self, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: &[BorrowedFd<'_>] = descriptor.as_slice();
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(io::Error::other("there is no room for a descriptor"));
        }
        Ok(sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
    }

    /// The next message, with its descriptor; `None` = the other side has ended.
    pub(super) async fn receive(&mut self) -> io::Result<Option<(Message, Option<OwnedFd>)>> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let message: Message = serde_json::from_slice(&line)?;
                let descriptor = if message.carries() { Some(self.descriptor()?) } else { None };
                return Ok(Some((message, descriptor)));
            }
            if self.buffer.len() > LINE_MAX {
                return Err(io::Error::other("a message is too long"));
            }
            let mut piece = vec![0; PIECE_BYTES];
            let received =
                self.stream.async_io(Interest::READABLE, || receive_some(&self.stream, &mut piece)).await;
            let (length, descriptors) = received?;
            self.descriptors.extend(descriptors);
            if length == 0 {
                return Ok(None);
            }
            self.buffer.extend_from_slice(piece.get(..length).unwrap_or_default());
        }
    }

    fn descriptor(&mut self) -> io::Result<OwnedFd> {
        self.descriptors.pop_front().ok_or_else(|| io::Error::other("a descriptor is missing"))
    }
}

fn receive_some(stream: &UnixStream, piece: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(stream, &mut [IoSliceMut::new(piece)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().collect()))
}
