//! One process's connection to the bus: messages take time, get lost, come twice, overtake each other.

use super::sabotage::Sabotage;
use super::world::{Gate, World};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use towpath_bus::{Bus, BusError, BusState, MemoryBus, Message, Subscription, SubscriptionSource};
use towpath_wire::cell::SyncRequest;
use towpath_wire::{decode, encode};

/// A handle of one process.
pub(super) struct Link {
    world: Arc<World>,
    gate: Arc<Gate>,
    bus: MemoryBus,
    /// Epochs that cells name are not heard.
    deaf: bool,
}

impl Link {
    pub(super) fn new(world: Arc<World>, gate: Arc<Gate>, bus: MemoryBus) -> Self {
        Self { world, gate, bus, deaf: false }
    }

    /// That of a manager, which may have been told to ignore epochs.
    pub(super) fn of_manager(self) -> Self {
        let deaf = matches!(self.world.sabotage(), Some(Sabotage::Epochs | Sabotage::ManagersEpochs));
        Self { deaf, ..self }
    }

    fn check(&self) -> Result<(), BusError> {
        if self.gate.is_isolated() {
            return Err(BusError::Unreachable("it is cut off".into()));
        }
        Ok(())
    }

    /// Takes in what arrives for as long as the process lives, whether it listens or not.
    fn hear(&self, mut inner: Subscription) -> Subscription {
        let (gate, mut death, deaf) = (self.gate.clone(), self.gate.death(), self.deaf);
        let (taken, heard) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    _ = death.wait_for(|dead| *dead) => return,
                    () = taken.closed() => return,
                    message = inner.next() => match message {
                        // What arrives while the process is cut off is lost; what arrives while it is paused waits.
                        Some(_) if gate.is_isolated() => {}
                        Some(message) => drop(taken.send(if deaf { without_epoch(message) } else { message })),
                        None => return,
                    },
                }
            }
        });
        Subscription::new(Box::new(Ear { gate: self.gate.clone(), heard }))
    }
}

#[async_trait]
impl Bus for Link {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        self.gate.pass().await;
        self.check()?;
        let weather = self.world.weather();
        if self.world.happens(weather.lost) {
            return Ok(());
        }
        for _ in 0..=u32::from(self.world.happens(weather.doubled)) {
            let (bus, subject, payload) = (self.bus.clone(), subject.to_owned(), payload.clone());
            let pause = Duration::from_millis(self.world.up_to(weather.delay_ms));
            tokio::spawn(async move {
                tokio::time::sleep(pause).await;
                drop(bus.publish(&subject, payload).await);
            });
        }
        Ok(())
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        self.gate.pass().await;
        self.check()?;
        let weather = self.world.weather();
        if self.world.happens(weather.lost) {
            tokio::time::sleep(timeout).await;
            return Err(BusError::Timeout { subject: subject.to_owned(), timeout });
        }
        if self.world.happens(weather.doubled) {
            drop(self.bus.publish(subject, payload.clone()).await);
        }
        self.world.wait_up_to(weather.delay_ms).await;
        let answer = self.bus.request(subject, payload, timeout).await;
        self.gate.pass().await;
        self.check()?;
        answer
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        Ok(self.hear(self.bus.subscribe(pattern).await?))
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        Ok(self.hear(self.bus.subscribe_queue(pattern, queue).await?))
    }

    fn state(&self) -> watch::Receiver<BusState> {
        self.gate.bus()
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.gate.pass().await;
        self.check()
    }
}

/// A cell's request as a manager hears it that does not look at epochs.
fn without_epoch(message: Message) -> Message {
    match decode::<SyncRequest>(&message.payload) {
        Ok(request) => Message { payload: encode(&SyncRequest { epoch: 0, ..request }).into(), ..message },
        Err(_) => message,
    }
}

/// What a process hears.
struct Ear {
    gate: Arc<Gate>,
    heard: mpsc::UnboundedReceiver<Message>,
}

#[async_trait]
impl SubscriptionSource for Ear {
    async fn next(&mut self) -> Option<Message> {
        self.gate.pass().await;
        let message = self.heard.recv().await;
        if self.gate.is_dead() {
            std::future::pending::<()>().await;
        }
        message
    }

    fn lost(&self) -> u64 {
        0
    }
}
