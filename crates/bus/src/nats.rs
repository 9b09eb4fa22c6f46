//! The NATS adapter (core NATS: at most once).
//!
//! Answers to requests share one subscription. Each other subscription is pumped into a buffer of its own, where lost
//! messages are counted. The state is [`BusState::Up`] only after a round trip through the server that followed the
//! (re)connect, because by then the server knows all subscriptions.

mod config;
mod window;

use crate::buffer::{Inlet, Offered, Outlet, buffer};
use crate::inbox::Waiting;
use crate::subject::{check_pattern, check_queue, check_subject};
use crate::{Bus, BusError, BusState, MAX_PAYLOAD, Message, Subscription, SubscriptionSource};
use async_nats::connection::State;
use async_nats::{Client, ConnectErrorKind, Event, PublishErrorKind, StatusCode, Subscriber};
use async_trait::async_trait;
use bytes::Bytes;
use config::reconnect_delay;
use futures::StreamExt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use window::Window;

pub use config::{NatsAuth, NatsConfig, NatsTls};

/// Longest wait for a round trip through the server.
const ROUND_TRIP: Duration = Duration::from_secs(2);
/// How often the state is looked at if no event says that it changed.
const LOOK_AT_STATE: Duration = Duration::from_millis(250);

/// The bus over NATS. Closed when dropped.
pub struct NatsBus {
    shared: Arc<Shared>,
    capacity: usize,
    tasks: Vec<AbortHandle>,
}

struct Shared {
    client: Client,
    /// Beginning of this client's inboxes; a token follows.
    inbox: String,
    next_token: AtomicU64,
    waiting: Waiting<async_nats::Message>,
    state: watch::Sender<BusState>,
    window: Window,
    /// Messages that the client library had no room for, of whatever subscription.
    overrun: Arc<AtomicU64>,
}

impl NatsBus {
    /// Connects. With `retry_initial` it returns at once and comes up when a server can be reached.
    pub async fn connect(config: NatsConfig) -> Result<Self, BusError> {
        let servers = config.servers()?;
        let events = Arc::new(Notify::new());
        let overrun = Arc::new(AtomicU64::new(0));
        let was_connected = Arc::new(AtomicBool::new(false));
        let options = config.options().await?;
        let options = options
            .event_callback({
                let (events, was_connected) = (events.clone(), was_connected.clone());
                let overrun = overrun.clone();
                move |event| {
                    note(&event);
                    match event {
                        Event::Connected => was_connected.store(true, Ordering::Relaxed),
                        Event::SlowConsumer(_) => drop(overrun.fetch_add(1, Ordering::Relaxed)),
                        _ => {}
                    }
                    events.notify_one();
                    std::future::ready(())
                }
            })
            .reconnect_delay_callback(move |attempt| {
                let first = attempt <= 1 && !was_connected.load(Ordering::Relaxed);
                if first { Duration::ZERO } else { reconnect_delay(attempt, fastrand::f64()) }
            });
        let client = options.connect(servers).await.map_err(|error| match error.kind() {
            ConnectErrorKind::ServerParse => BusError::Invalid(error.to_string()),
            _ => BusError::Unreachable(error.to_string()),
        })?;
        let shared = Arc::new(Shared {
            inbox: format!("{}.", client.new_inbox()),
            client,
            next_token: AtomicU64::new(1),
            waiting: Waiting::default(),
            state: watch::Sender::new(BusState::Down),
            window: Window::new(),
            overrun,
        });
        let answers = shared.client.subscribe(format!("{}*", shared.inbox)).await;
        let answers = answers.map_err(|error| BusError::Unreachable(error.to_string()))?;
        let tasks = vec![
            tokio::spawn(shared.clone().take_answers(answers)).abort_handle(),
            tokio::spawn(shared.clone().follow_state(events)).abort_handle(),
            tokio::spawn(shared.clone().reopen_window()).abort_handle(),
        ];
        let bus = Self { shared, capacity: config.subscription_capacity.max(1), tasks };
        if !config.retry_initial {
            let mut state = bus.state();
            let up =
                tokio::time::timeout(config.connect_timeout, state.wait_for(|state| *state == BusState::Up));
            let silent = |_| BusError::Unreachable("the NATS server does not answer".to_owned());
            up.await.map_err(silent)?.map_err(|_| BusError::Unreachable("closed".to_owned()))?;
        }
        Ok(bus)
    }

    async fn add(&self, pattern: &str, queue: Option<&str>) -> Result<Subscription, BusError> {
        check_pattern(pattern)?;
        queue.map_or(Ok(()), check_queue)?;
        let client = &self.shared.client;
        let subscribed = match queue {
            None => client.subscribe(pattern.to_owned()).await,
            Some(queue) => client.queue_subscribe(pattern.to_owned(), queue.to_owned()).await,
        };
        let subscriber = subscribed.map_err(|error| BusError::Unreachable(error.to_string()))?;
        // If the connection goes away now, the subscription is made again with the next one.
        let _ = self.shared.while_up(self.shared.round_trip()).await;
        let (buffer, incoming) = buffer(self.capacity);
        let pump = tokio::spawn(pump(subscriber, buffer)).abort_handle();
        let overrun = self.shared.overrun.clone();
        let overrun_before = overrun.load(Ordering::Relaxed);
        Ok(Subscription::new(Box::new(NatsSource { incoming, pump, overrun, overrun_before })))
    }
}

impl Drop for NatsBus {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.state.send_replace(BusState::Down);
    }
}

impl Shared {
    async fn take_answers(self: Arc<Self>, mut answers: Subscriber) {
        while let Some(message) = answers.next().await {
            let token = message.subject.strip_prefix(self.inbox.as_str()).unwrap_or_default().to_owned();
            // An answer that comes after its request was given up is dropped.
            let _ = self.waiting.answer(&token, message);
        }
    }

    async fn follow_state(self: Arc<Self>, events: Arc<Notify>) {
        loop {
            let connected = self.client.connection_state() == State::Connected;
            let up = *self.state.borrow() == BusState::Up;
            if up && !connected {
                tracing::warn!("the connection to NATS is lost");
                self.state.send_replace(BusState::Down);
            } else if !up && connected {
                // A connection that breaks meanwhile is seen in the next round.
                let answered = tokio::time::timeout(ROUND_TRIP, self.round_trip()).await;
                if let Ok(Ok(())) = answered
                    && self.client.connection_state() == State::Connected
                {
                    self.note_server();
                    self.state.send_replace(BusState::Up);
                }
            }
            // Events can be lost when many come at once, so look from time to time as well.
            let _ = tokio::time::timeout(LOOK_AT_STATE, events.notified()).await;
        }
    }

    /// Asks the server whether it has what was sent, whenever that has become much.
    async fn reopen_window(self: Arc<Self>) {
        loop {
            let bytes = self.window.due().await;
            // What was on its way when the connection went has left the queue when there is a new one.
            while self.while_up(self.round_trip()).await.is_err() {
                let mut state = self.state.subscribe();
                if state.wait_for(|state| *state == BusState::Up).await.is_err() {
                    return;
                }
            }
            self.window.arrived(bytes);
        }
    }

    /// Hands a message to the client library when there is room for it.
    async fn send(&self, subject: &str, reply: Option<String>, payload: Bytes) -> Result<(), BusError> {
        let (size, subject) = (payload.len(), subject.to_owned());
        let closed = || BusError::Unreachable("closed".to_owned());
        let leave = self.window.enter(size).await.ok_or_else(closed)?;
        let sent = match reply {
            None => self.client.publish(subject, payload).await,
            Some(reply) => self.client.publish_with_reply(subject, reply, payload).await,
        };
        sent.map_err(|error| publish_error(&error, size))?;
        leave.sent();
        Ok(())
    }

    fn token(&self) -> String {
        self.next_token.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Sends a message to ourselves: when it comes back, the server has seen all that was sent before.
    async fn round_trip(&self) -> Result<(), BusError> {
        let token = self.token();
        let mut waiter = self.waiting.enter(token.clone());
        self.client
            .publish(format!("{}{token}", self.inbox), Bytes::new())
            .await
            .map_err(|error| BusError::Unreachable(error.to_string()))?;
        let closed = || BusError::Unreachable("closed".to_owned());
        waiter.wait().await.map(drop).ok_or_else(closed)
    }

    fn note_server(&self) {
        let server = self.client.server_info();
        tracing::info!(server = server.server_name, version = server.version, "connected to NATS");
        if server.max_payload < MAX_PAYLOAD {
            let (max_payload, needed) = (server.max_payload, MAX_PAYLOAD);
            tracing::warn!(max_payload, needed, "the NATS server takes smaller messages than may be sent");
        }
    }

    /// Runs something that needs the connection, and gives up when that goes away: the client library would let it wait.
    async fn while_up<T>(&self, work: impl Future<Output = Result<T, BusError>>) -> Result<T, BusError> {
        let mut state = self.state.subscribe();
        let gone = || BusError::Unreachable("not connected to NATS".to_owned());
        tokio::select! {
            biased;
            _ = state.wait_for(|state| *state == BusState::Down) => Err(gone()),
            result = work => result,
        }
    }
}

/// What an operator should know of.
fn note(event: &Event) {
    match event {
        Event::ClientError(error) => tracing::warn!(%error, "no connection to NATS"),
        Event::ServerError(error) => tracing::warn!(%error, "the NATS server complains"),
        Event::LameDuckMode => tracing::info!("the NATS server is about to end; another one will be used"),
        _ => {}
    }
}

fn check_sendable(subject: &str, payload: &Bytes) -> Result<(), BusError> {
    check_subject(subject)?;
    if payload.len() > MAX_PAYLOAD { Err(BusError::TooLarge(payload.len())) } else { Ok(()) }
}

/// Moves messages into the subscriber's buffer; what has no room there is lost and counted.
async fn pump(mut subscriber: Subscriber, buffer: Inlet) {
    while let Some(message) = subscriber.next().await {
        let message = Message {
            subject: message.subject.into_string(),
            reply: message.reply.map(async_nats::Subject::into_string),
            payload: message.payload,
        };
        match buffer.offer(message) {
            Offered::Taken => {}
            Offered::Refused => buffer.count_lost(1),
            Offered::Closed => return,
        }
    }
}

struct NatsSource {
    incoming: Outlet,
    pump: AbortHandle,
    overrun: Arc<AtomicU64>,
    overrun_before: u64,
}

impl Drop for NatsSource {
    fn drop(&mut self) {
        // Drops the subscriber with it, which ends the subscription at the server.
        self.pump.abort();
    }
}

#[async_trait]
impl SubscriptionSource for NatsSource {
    async fn next(&mut self) -> Option<Message> {
        self.incoming.next().await
    }

    fn lost(&self) -> u64 {
        // What the library lost may have been another subscription's: better told too often than never.
        self.incoming.lost() + self.overrun.load(Ordering::Relaxed) - self.overrun_before
    }
}

fn publish_error(error: &async_nats::PublishError, size: usize) -> BusError {
    match error.kind() {
        PublishErrorKind::MaxPayloadExceeded => BusError::TooLarge(size),
        PublishErrorKind::InvalidSubject => BusError::Invalid(error.to_string()),
        PublishErrorKind::Send => BusError::Unreachable(error.to_string()),
    }
}

#[async_trait]
impl Bus for NatsBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        check_sendable(subject, &payload)?;
        self.shared.while_up(self.shared.send(subject, None, payload)).await
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        check_sendable(subject, &payload)?;
        let token = self.shared.token();
        let inbox = format!("{}{token}", self.shared.inbox);
        let mut waiter = self.shared.waiting.enter(token);
        let exchange = async {
            self.shared.send(subject, Some(inbox), payload).await?;
            waiter.wait().await.ok_or_else(|| BusError::Unreachable("closed".to_owned()))
        };
        let answer = tokio::time::timeout(timeout, self.shared.while_up(exchange)).await;
        let timed_out = |_| BusError::Timeout { subject: subject.to_owned(), timeout };
        let answer = answer.map_err(timed_out)??;
        if answer.status == Some(StatusCode::NO_RESPONDERS) {
            return Err(BusError::NoResponder(subject.to_owned()));
        }
        Ok(answer.payload)
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        self.add(pattern, None).await
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        self.add(pattern, Some(queue)).await
    }

    fn state(&self) -> watch::Receiver<BusState> {
        self.shared.state.subscribe()
    }

    async fn flush(&self) -> Result<(), BusError> {
        let answered = tokio::time::timeout(ROUND_TRIP, self.shared.while_up(self.shared.round_trip())).await;
        answered.unwrap_or_else(|_| Err(BusError::Unreachable("the NATS server does not answer".to_owned())))
    }
}
