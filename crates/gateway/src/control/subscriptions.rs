//! What a gateway listens to, made, and made anew.

use super::signs::Signs;
use crate::clock;
use std::time::Duration;
use towpath_bus::{Bus, Message, Subscription};
use towpath_telemetry::Seldom;
use towpath_types::GatewayId;
use towpath_wire::subject;

/// Pause before subscriptions are tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(200);
/// Most messages that one commit takes in.
const BATCH: usize = 512;
/// Longest time that making a silent subscription anew may hold up the others.
const RENEW_WITHIN: Duration = Duration::from_secs(2);

/// The subscriptions of a gateway.
pub(super) struct Subscriptions {
    pub(super) deltas: Subscription,
    pub(super) announces: Subscription,
    pub(super) explains: Subscription,
    pub(super) deltas_signs: Signs,
    pub(super) announces_signs: Signs,
    explain: String,
    warned: Seldom,
}

impl Subscriptions {
    /// Subscribes, trying until it works: a bus that is not there yet delays nothing but this thread.
    pub(super) async fn make(bus: &dyn Bus, gateway: GatewayId) -> Self {
        let explain = subject::gateway_explain(gateway);
        loop {
            let deltas = bus.subscribe(subject::GATEWAY_DELTA).await;
            let announces = bus.subscribe(subject::CELL_ANNOUNCE_ALL).await;
            let explains = bus.subscribe(&explain).await;
            if let (Ok(deltas), Ok(announces), Ok(explains)) = (deltas, announces, explains) {
                let now_ms = clock::now_ms();
                return Self {
                    deltas,
                    announces,
                    explains,
                    deltas_signs: Signs::new(now_ms, fastrand::u64(..)),
                    announces_signs: Signs::new(now_ms, fastrand::u64(..)),
                    explain,
                    warned: Seldom::default(),
                };
            }
            tokio::time::sleep(SUBSCRIBE_AGAIN).await;
        }
    }

    /// Makes those anew that are silent although the bus is up. Whether anything was missed meanwhile is said by the next
    /// sign of life, which names a revision, and by the next announcements, which are complete. Questions have no rhythm:
    /// their subscription goes with that of the deltas.
    pub(super) async fn renew_silent(&mut self, bus: &dyn Bus, up_since_ms: Option<u64>) {
        if self.deltas_signs.are_missing(clock::now_ms(), up_since_ms) {
            self.warn("managers");
            if let Some(deltas) = subscribe(bus, subject::GATEWAY_DELTA).await {
                self.deltas = deltas;
            }
            if let Some(explains) = subscribe(bus, &self.explain).await {
                self.explains = explains;
            }
            self.deltas_signs.renewed(clock::now_ms(), fastrand::u64(..));
        }
        if self.announces_signs.are_missing(clock::now_ms(), up_since_ms) {
            self.warn("cells");
            if let Some(announces) = subscribe(bus, subject::CELL_ANNOUNCE_ALL).await {
                self.announces = announces;
            }
            self.announces_signs.renewed(clock::now_ms(), fastrand::u64(..));
        }
    }

    fn warn(&mut self, whose: &str) {
        if let Some(left_out) = self.warned.now(clock::now_ms()) {
            tracing::warn!(left_out, "nothing is heard of {whose} although the bus is up; subscribing again");
        }
    }
}

async fn subscribe(bus: &dyn Bus, pattern: &str) -> Option<Subscription> {
    match tokio::time::timeout(RENEW_WITHIN, bus.subscribe(pattern)).await {
        Ok(Ok(subscription)) => Some(subscription),
        Ok(Err(error)) => {
            tracing::debug!(%error, pattern, "a silent subscription could not be made anew");
            None
        }
        Err(_) => None,
    }
}

/// The message and all that can be had at once behind it.
pub(super) async fn batch(first: Message, more: &mut Subscription) -> Vec<Message> {
    let mut messages = vec![first];
    while messages.len() < BATCH {
        tokio::select! {
            biased;
            message = more.next() => match message {
                Some(message) => messages.push(message),
                None => break,
            },
            () = std::future::ready(()) => break,
        }
    }
    messages
}
