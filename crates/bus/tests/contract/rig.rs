//! A bus to test, with a switch.

use std::sync::Arc;
use std::time::Duration;
use towpath_bus::{Bus, BusState, MemoryBus, Message, NatsBus, NatsConfig, Subscription};
use towpath_testkit::NatsServer;

/// Long enough for anything that does happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) trait Rig {
    /// Another client of the bus under test, whose subscribers may be `capacity` messages behind.
    async fn client_with_capacity(&self, capacity: usize) -> Arc<dyn Bus>;
    /// Takes the bus away.
    fn take_down(&mut self);
    /// Brings it back.
    fn bring_up(&mut self);

    /// Waits until everybody's subscriptions are known everywhere.
    async fn settle(&self) {}

    /// Whether a queue group's members get about the same share, wherever they are connected.
    fn shares_evenly(&self) -> bool {
        true
    }

    async fn client(&self) -> Arc<dyn Bus> {
        self.client_with_capacity(65_536).await
    }
}

pub(crate) struct MemoryRig(MemoryBus);

impl MemoryRig {
    pub(crate) fn new() -> Self {
        Self(MemoryBus::with_capacity(10))
    }
}

impl Rig for MemoryRig {
    async fn client_with_capacity(&self, capacity: usize) -> Arc<dyn Bus> {
        Arc::new(self.0.share_with_capacity(capacity))
    }

    fn take_down(&mut self) {
        self.0.set_state(BusState::Down);
    }

    fn bring_up(&mut self) {
        self.0.set_state(BusState::Up);
    }
}

pub(crate) struct NatsRig(pub(crate) NatsServer);

impl NatsRig {
    pub(crate) fn new() -> Self {
        Self(NatsServer::start())
    }
}

impl Rig for NatsRig {
    async fn client_with_capacity(&self, capacity: usize) -> Arc<dyn Bus> {
        let config = NatsConfig { subscription_capacity: capacity, ..NatsConfig::new(self.0.url()) };
        Arc::new(NatsBus::connect(config).await.unwrap())
    }

    fn take_down(&mut self) {
        self.0.stop();
    }

    fn bring_up(&mut self) {
        self.0.restart();
    }
}

/// The next message, which has to come.
pub(crate) async fn next(subscription: &mut Subscription) -> Message {
    tokio::time::timeout(SOON, subscription.next()).await.expect("a message in time").expect("an open bus")
}

/// The next message as text.
pub(crate) async fn next_text(subscription: &mut Subscription) -> String {
    String::from_utf8(next(subscription).await.payload.to_vec()).unwrap()
}

/// Waits for a state.
pub(crate) async fn until(bus: &dyn Bus, state: BusState) {
    let mut states = bus.state();
    tokio::time::timeout(SOON, states.wait_for(|now| *now == state))
        .await
        .unwrap_or_else(|_| panic!("the bus is not {state:?} in time"))
        .unwrap();
}

/// Answers each request with `prefix` and its payload, until the test ends.
pub(crate) fn answer(bus: Arc<dyn Bus>, mut subscription: Subscription, prefix: &'static str) {
    tokio::spawn(async move {
        while let Some(request) = subscription.next().await {
            let answer = [prefix.as_bytes(), &request.payload].concat();
            bus.publish(&request.reply.expect("a request"), answer.into()).await.unwrap();
        }
    });
}
