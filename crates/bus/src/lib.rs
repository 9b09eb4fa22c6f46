//! The bus: subjects, publish and subscribe, queue groups, request and reply, behind one trait.
//!
//! Invariants: messages of one publisher on one subject arrive in order; delivery is at most once; a slow subscriber
//! loses messages (and is told by [`Subscription::lost`]) and never slows a publisher; payloads are at most
//! [`MAX_PAYLOAD`] bytes; every buffer is bounded in messages and bytes, also while there is no connection. Subjects are dot-separated tokens; `*` matches one token, a final `>` matches one or more.
//!
//! Must not: know what the payloads mean (that is `wire`), keep anything on disk.

use async_trait::async_trait;
use bytes::Bytes;
use std::time::Duration;

mod buffer;
mod inbox;
mod memory;
mod nats;
mod subject;

pub use memory::MemoryBus;
pub use nats::{NatsAuth, NatsBus, NatsConfig, NatsTls};

/// Largest payload in bytes: what an unconfigured NATS server takes, less room for headers.
pub const MAX_PAYLOAD: usize = 1_000_000;

/// Bytes that wait for a subscriber before it loses messages.
pub const SUBSCRIPTION_BYTES: usize = 64 * 1024 * 1024;

/// A received message.
#[derive(Debug, Clone)]
pub struct Message {
    /// The concrete subject.
    pub subject: String,
    /// Where an answer goes, for requests.
    pub reply: Option<String>,
    /// The content.
    pub payload: Bytes,
}

/// Why a bus call failed.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// Not connected, or closed. Trying again later may work.
    #[error("the bus is not reachable: {0}")]
    Unreachable(String),
    /// Nobody listens on the requested subject.
    #[error("nobody answers on {0}")]
    NoResponder(String),
    /// No answer in time.
    #[error("no answer on {subject} within {timeout:?}")]
    Timeout {
        /// The requested subject.
        subject: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The payload is over [`MAX_PAYLOAD`], or over the server's own limit.
    #[error("a message of {0} bytes is over the limit of {MAX_PAYLOAD} or the server's own (max_payload)")]
    TooLarge(usize),
    /// The subject or the configuration is not valid.
    #[error("{0}")]
    Invalid(String),
}

/// Whether the bus is there. When it is gone, silence proves nothing about anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusState {
    /// Connected, and all subscriptions are in place.
    Up,
    /// Not connected; reconnection is being tried.
    Down,
}

/// A stream of messages. Dropping it ends the subscription.
pub struct Subscription {
    inner: Box<dyn SubscriptionSource>,
}

/// What an adapter implements for [`Subscription`].
#[async_trait]
pub trait SubscriptionSource: Send + Sync {
    /// The next message; `None` when the bus is closed for good. Cancel-safe.
    async fn next(&mut self) -> Option<Message>;
    /// Messages lost so far because this subscriber was too slow.
    fn lost(&self) -> u64;
}

impl Subscription {
    /// Wraps an adapter's source.
    pub fn new(inner: Box<dyn SubscriptionSource>) -> Self {
        Self { inner }
    }

    /// The next message; `None` when the bus is closed for good. Cancel-safe.
    pub async fn next(&mut self) -> Option<Message> {
        self.inner.next().await
    }

    /// Messages lost so far because this subscriber was too slow.
    pub fn lost(&self) -> u64 {
        self.inner.lost()
    }
}

/// The bus. Cheap to share behind an `Arc`.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Sends a message to all subscribers of the subject.
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError>;

    /// Sends a message and waits for one answer.
    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError>;

    /// Receives what matches the pattern. When this returns, messages published afterwards by anybody (in a cluster of
    /// servers: at this server) are seen. While the bus is down it returns all the same; the subscription is in place
    /// when the state is [`BusState::Up`] again. Subscriptions outlive outages; messages during one are lost.
    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError>;

    /// Like [`Bus::subscribe`], but each message goes to one member of the named queue group.
    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError>;

    /// Follows the state of the connection.
    fn state(&self) -> tokio::sync::watch::Receiver<BusState>;

    /// Waits until all that was published has been handed to the server.
    async fn flush(&self) -> Result<(), BusError>;
}
