//! The in-memory bus: what `towpath up` and tests use. Publishing copies a message into the buffers of the matching
//! subscribers under a read lock and never waits for anybody.

use crate::buffer::{Inlet, Offered, Outlet, buffer};
use crate::inbox::Waiting;
use crate::subject::{INBOX, check_pattern, check_queue, check_subject, is_wild, matches};
use crate::{Bus, BusError, BusState, MAX_PAYLOAD, Message, Subscription, SubscriptionSource};
use async_trait::async_trait;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::watch;

/// Messages that wait for a subscriber before it loses some.
const DEFAULT_CAPACITY: usize = 65_536;

/// In-memory bus. Clones share it.
#[derive(Clone)]
pub struct MemoryBus {
    shared: Arc<Shared>,
    capacity: usize,
}

struct Shared {
    topics: RwLock<Topics>,
    waiting: Waiting<Bytes>,
    next_id: AtomicU64,
    state: watch::Sender<BusState>,
}

#[derive(Default)]
struct Topics {
    exact: HashMap<String, Topic>,
    wild: HashMap<String, Topic>,
}

/// The subscribers of one pattern.
#[derive(Default)]
struct Topic {
    plain: Vec<Sink>,
    queues: HashMap<String, Queue>,
}

#[derive(Default)]
struct Queue {
    members: Vec<Sink>,
    turn: AtomicUsize,
}

struct Sink {
    id: u64,
    buffer: Inlet,
}

impl Sink {
    /// Whether the message was taken.
    fn offer(&self, message: &Message) -> bool {
        self.buffer.offer(message.clone()) == Offered::Taken
    }
}

impl Queue {
    /// Gives the message to the next member in turn that has room; if none has, that one loses it.
    fn offer(&self, others: &[&Queue], message: &Message) {
        let members: Vec<&Sink> =
            self.members.iter().chain(others.iter().flat_map(|queue| queue.members.iter())).collect();
        if members.is_empty() {
            return;
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % members.len();
        let (before, from) = members.split_at(turn);
        if !from.iter().chain(before).any(|sink| sink.offer(message))
            && let Some(sink) = from.first()
        {
            sink.buffer.count_lost(1);
        }
    }
}

impl Topics {
    /// Hands the message out; returns whether anybody is subscribed to its subject.
    fn deliver(&self, message: &Message) -> bool {
        let wild = self.wild.iter().filter(|(pattern, _)| matches(pattern, &message.subject));
        let topics: Vec<&Topic> =
            self.exact.get(&message.subject).into_iter().chain(wild.map(|(_, topic)| topic)).collect();
        for sink in topics.iter().flat_map(|topic| &topic.plain) {
            if !sink.offer(message) {
                sink.buffer.count_lost(1);
            }
        }
        // A queue group is one group even if its members subscribed with different patterns.
        for (at, topic) in topics.iter().enumerate() {
            for (name, queue) in &topic.queues {
                let (before, after) = topics.split_at(at);
                if before.iter().any(|other| other.queues.contains_key(name)) {
                    continue;
                }
                let others: Vec<&Queue> =
                    after.iter().skip(1).filter_map(|other| other.queues.get(name)).collect();
                queue.offer(&others, message);
            }
        }
        !topics.is_empty()
    }

    fn of(&mut self, pattern: &str) -> &mut HashMap<String, Topic> {
        if is_wild(pattern) { &mut self.wild } else { &mut self.exact }
    }

    fn add(&mut self, pattern: &str, queue: Option<&str>, sink: Sink) {
        let topic = self.of(pattern).entry(pattern.to_owned()).or_default();
        match queue {
            None => topic.plain.push(sink),
            Some(queue) => topic.queues.entry(queue.to_owned()).or_default().members.push(sink),
        }
    }

    fn remove(&mut self, pattern: &str, id: u64) {
        let topics = self.of(pattern);
        let Some(topic) = topics.get_mut(pattern) else { return };
        topic.plain.retain(|sink| sink.id != id);
        for queue in topic.queues.values_mut() {
            queue.members.retain(|sink| sink.id != id);
        }
        topic.queues.retain(|_, queue| !queue.members.is_empty());
        if topic.plain.is_empty() && topic.queues.is_empty() {
            topics.remove(pattern);
        }
    }
}

impl Default for MemoryBus {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryBus {
    /// A bus with nobody on it.
    pub fn new() -> Self {
        Self::with_capacity(DEFAULT_CAPACITY)
    }

    /// A bus whose subscribers may be `capacity` messages behind before they lose some.
    pub fn with_capacity(capacity: usize) -> Self {
        let shared = Shared {
            topics: RwLock::default(),
            waiting: Waiting::default(),
            next_id: AtomicU64::new(1),
            state: watch::Sender::new(BusState::Up),
        };
        Self { shared: Arc::new(shared), capacity: capacity.max(1) }
    }

    /// The same bus; subscribers that are added through this handle may be `capacity` messages behind.
    pub fn share_with_capacity(&self, capacity: usize) -> Self {
        Self { shared: self.shared.clone(), capacity: capacity.max(1) }
    }

    /// Takes the bus down as if its server were gone, or brings it back (for tests of its users). Subscriptions stay.
    pub fn set_state(&self, state: BusState) {
        self.shared.state.send_replace(state);
    }

    fn check_sendable(&self, subject: &str, payload: &Bytes) -> Result<(), BusError> {
        check_subject(subject)?;
        if payload.len() > MAX_PAYLOAD {
            return Err(BusError::TooLarge(payload.len()));
        }
        if *self.shared.state.borrow() == BusState::Down {
            return Err(taken_down());
        }
        Ok(())
    }

    fn deliver(&self, message: &Message) -> bool {
        self.shared.topics.read().unwrap_or_else(PoisonError::into_inner).deliver(message)
    }

    fn add(&self, pattern: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        check_pattern(pattern)?;
        queue.map_or(Ok(()), check_queue)?;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (buffer, incoming) = buffer(self.capacity);
        let sink = Sink { id, buffer };
        self.shared.topics.write().unwrap_or_else(PoisonError::into_inner).add(pattern, queue, sink);
        let source = MemorySource { incoming, id, pattern: pattern.to_owned(), shared: self.shared.clone() };
        Ok(Subscription::new(Box::new(source)))
    }
}

fn taken_down() -> BusError {
    BusError::Unreachable("the in-memory bus was taken down".to_owned())
}

/// One subscription; leaves the table when dropped.
struct MemorySource {
    incoming: Outlet,
    id: u64,
    pattern: String,
    shared: Arc<Shared>,
}

impl Drop for MemorySource {
    fn drop(&mut self) {
        self.shared.topics.write().unwrap_or_else(PoisonError::into_inner).remove(&self.pattern, self.id);
    }
}

#[async_trait]
impl SubscriptionSource for MemorySource {
    async fn next(&mut self) -> Option<Message> {
        self.incoming.next().await
    }

    fn lost(&self) -> u64 {
        self.incoming.lost()
    }
}

#[async_trait]
impl Bus for MemoryBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.check_sendable(subject, &payload)?;
        let payload = if subject.starts_with(INBOX) {
            match self.shared.waiting.answer(subject, payload) {
                Ok(()) => return Ok(()),
                Err(payload) => payload,
            }
        } else {
            payload
        };
        self.deliver(&Message { subject: subject.to_owned(), reply: None, payload });
        Ok(())
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        self.check_sendable(subject, &payload)?;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let inbox = format!("{INBOX}{id}");
        let mut waiter = self.shared.waiting.enter(inbox.clone());
        let message = Message { subject: subject.to_owned(), reply: Some(inbox), payload };
        if !self.deliver(&message) {
            return Err(BusError::NoResponder(subject.to_owned()));
        }
        let mut state = self.shared.state.subscribe();
        let answered = async {
            tokio::select! {
                answer = waiter.wait() => Ok(answer),
                _ = state.wait_for(|state| *state == BusState::Down) => Err(taken_down()),
            }
        };
        match tokio::time::timeout(timeout, answered).await {
            Ok(Err(error)) => Err(error),
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) | Err(_) => Err(BusError::Timeout { subject: subject.to_owned(), timeout }),
        }
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        self.add(pattern, None)
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        self.add(pattern, Some(queue))
    }

    fn state(&self) -> watch::Receiver<BusState> {
        self.shared.state.subscribe()
    }

    async fn flush(&self) -> Result<(), BusError> {
        Ok(())
    }
}
