//! A subscription's buffer: bounded in messages and in bytes; what has no room is lost and counted.

use crate::{Message, SUBSCRIPTION_BYTES};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// What a message takes beside its texts and payload.
const OVERHEAD: usize = std::mem::size_of::<Message>();

#[derive(Default)]
struct Counts {
    bytes: AtomicUsize,
    lost: AtomicU64,
}

/// Where messages come in.
pub(crate) struct Inlet {
    buffer: mpsc::Sender<Message>,
    counts: Arc<Counts>,
}

/// Where they go out.
pub(crate) struct Outlet {
    buffer: mpsc::Receiver<Message>,
    counts: Arc<Counts>,
}

/// What became of an offered message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offered {
    Taken,
    /// There was no room for it.
    Refused,
    /// Nobody will ever read it.
    Closed,
}

/// A buffer for this many messages.
pub(crate) fn buffer(capacity: usize) -> (Inlet, Outlet) {
    let (sender, receiver) = mpsc::channel(capacity.max(1));
    let counts = Arc::new(Counts::default());
    (Inlet { buffer: sender, counts: counts.clone() }, Outlet { buffer: receiver, counts })
}

fn size(message: &Message) -> usize {
    let reply = message.reply.as_ref().map_or(0, String::len);
    OVERHEAD + message.subject.len() + reply + message.payload.len()
}

impl Inlet {
    /// Puts a message in, if there is room. Never waits.
    pub(crate) fn offer(&self, message: Message) -> Offered {
        let size = size(&message);
        let before = self.counts.bytes.fetch_add(size, Ordering::Relaxed);
        let sent = if before + size > SUBSCRIPTION_BYTES {
            Offered::Refused
        } else {
            match self.buffer.try_send(message) {
                Ok(()) => return Offered::Taken,
                Err(mpsc::error::TrySendError::Full(_)) => Offered::Refused,
                Err(mpsc::error::TrySendError::Closed(_)) => Offered::Closed,
            }
        };
        self.counts.bytes.fetch_sub(size, Ordering::Relaxed);
        sent
    }

    /// Notes that messages were lost.
    pub(crate) fn count_lost(&self, messages: u64) {
        self.counts.lost.fetch_add(messages, Ordering::Relaxed);
    }
}

impl Outlet {
    /// The next message; `None` when the other end is gone. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        let message = self.buffer.recv().await?;
        self.counts.bytes.fetch_sub(size(&message), Ordering::Relaxed);
        Some(message)
    }

    /// Messages lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.counts.lost.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn message(size: usize) -> Message {
        Message { subject: "a".to_owned(), reply: None, payload: Bytes::from(vec![0; size]) }
    }

    #[tokio::test]
    async fn bytes_are_bounded_and_come_free_again() {
        let (inlet, mut outlet) = buffer(1000);
        let half = SUBSCRIPTION_BYTES / 2;
        assert_eq!(inlet.offer(message(half)), Offered::Taken);
        assert_eq!(inlet.offer(message(half)), Offered::Refused, "with its head it is too much");
        assert_eq!(inlet.offer(message(1)), Offered::Taken, "a smaller one has room");
        assert_eq!(outlet.next().await.map(|message| message.payload.len()), Some(half));
        assert_eq!(inlet.offer(message(half)), Offered::Taken);
        drop(outlet);
        assert_eq!(inlet.offer(message(1)), Offered::Closed);
    }
}
