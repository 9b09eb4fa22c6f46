//! Limits that several gateways share over a bus.

use crate::alone::until;
use crate::support::{Client, PATIENCE, Rig, World};
use bytes::Bytes;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use towpath_bus::{
    Bus, BusError, BusState, MemoryBus, Message, NatsBus, NatsConfig, Subscription, SubscriptionSource,
};
use towpath_testkit::{HttpApp, NatsServer};
use towpath_wire::limits::{LimitsMessage, Said};
use towpath_wire::{decode, subject};

/// A way to the bus that can be cut, as the death of a process cuts it: nothing is said any more, nothing heard.
struct Cuttable {
    bus: Arc<dyn Bus>,
    cut: Arc<AtomicBool>,
}

struct CuttableSource(Subscription, Arc<AtomicBool>);

#[async_trait::async_trait]
impl SubscriptionSource for CuttableSource {
    async fn next(&mut self) -> Option<Message> {
        loop {
            let message = self.0.next().await;
            if !self.1.load(SeqCst) {
                return message;
            }
        }
    }

    fn lost(&self) -> u64 {
        0
    }
}

#[async_trait::async_trait]
impl Bus for Cuttable {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        if self.cut.load(SeqCst) { Ok(()) } else { self.bus.publish(subject, payload).await }
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        self.bus.request(subject, payload, timeout).await
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        let inner = self.bus.subscribe(pattern).await?;
        Ok(Subscription::new(Box::new(CuttableSource(inner, self.cut.clone()))))
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        self.bus.subscribe_queue(pattern, queue).await
    }

    fn state(&self) -> tokio::sync::watch::Receiver<BusState> {
        self.bus.state()
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.bus.flush().await
    }
}

struct Fleet {
    rigs: Vec<Rig>,
    cuts: Vec<Arc<AtomicBool>>,
    app: HttpApp,
}

impl Fleet {
    /// Three gateways on this bus, with these plugins on their one route.
    async fn start(bus: Arc<dyn Bus>, plugins: Value) -> Self {
        let mut signs = bus.subscribe(subject::GATEWAY_LIMITS_ALL).await.unwrap();
        let app = HttpApp::start("a");
        let route =
            json!({"uri": "/*", "plugins": plugins, "upstream": {"nodes": {app.address().to_string(): 1}}});
        let item = json!({"kind": "resource", "resource": "routes", "id": "1", "value": route});
        let world = World::new().item(item);
        let (mut rigs, mut cuts) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let cut = Arc::new(AtomicBool::new(false));
            let bus = Cuttable { bus: bus.clone(), cut: cut.clone() };
            rigs.push(Rig::start_with(world.clone(), |_| {}, Some(Arc::new(bus))).await);
            cuts.push(cut);
        }
        // Three signs of life of each: by then it has heard the others.
        let mut seen = HashMap::new();
        while seen.len() < 3 || seen.values().any(|signs| *signs < 3) {
            let message = tokio::time::timeout(PATIENCE, signs.next()).await.unwrap().unwrap();
            let said: LimitsMessage = decode(&message.payload).unwrap();
            *seen.entry(said.gateway).or_insert(0) += u32::from(said.said == Said::Alive { new: false });
        }
        Self { rigs, cuts, app }
    }

    fn status(&self, gateway: usize) -> u16 {
        self.rigs[gateway].get("a.test", "/").status
    }

    /// One more request is at the app, which does not answer; `None` = it was refused.
    fn try_hold(&self, gateway: usize) -> Option<Client> {
        let before = self.app.in_flight();
        let mut client = self.rigs[gateway].client();
        client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        client.stream.set_nonblocking(true).unwrap();
        let is_there = || self.app.in_flight() > before;
        until("it is at the app or refused", || is_there() || client.stream.peek(&mut [0]).is_ok());
        is_there().then_some(client)
    }

    fn hold(&self, gateway: usize) -> Client {
        let mut held = None;
        until("there is a slot", || {
            held = self.try_hold(gateway);
            held.is_some()
        });
        held.unwrap()
    }
}

fn count(limit: u64) -> Value {
    json!({"limit-count": {"count": limit, "time_window": 3600, "key": "all", "key_type": "global", "policy": "shared", "rejected_code": 429}})
}

fn conn(limit: u64) -> Value {
    json!({"limit-conn": {"conn": limit, "burst": 0, "default_conn_delay": 0.1, "key": "all", "key_type": "constant", "policy": "shared", "rejected_code": 429}})
}

/// A window admits its limit, whichever gateways are asked; the loss of one admits no more than the bound says.
async fn windows_hold(bus: Arc<dyn Bus>) {
    const LIMIT: usize = 60;
    let fleet = Fleet::start(bus, count(LIMIT as u64)).await;
    let mut admitted = 0;
    for _ in 0..25 {
        admitted += (0..3).filter(|gateway| fleet.status(*gateway) == 200).count();
    }
    // Who was granted something and is not asked any more may have kept it.
    admitted += (0..60).filter(|_| fleet.status(0) == 200).count();
    assert!(admitted <= LIMIT, "{admitted}");
    assert!(admitted >= LIMIT / 2, "{admitted}");
    fleet.cuts[1].store(true, SeqCst);
    let after = (0..100).filter(|n| fleet.status(n % 2 * 2) == 200).count();
    let alone = (0..100).filter(|_| fleet.status(1) == 200).count();
    assert!(admitted + after <= LIMIT + LIMIT + 3, "{admitted} + {after}");
    assert!(alone <= LIMIT.div_ceil(3), "{alone} by one that hears nobody");
}

/// Slots are those of all gateways, come back with the end of a request, and after the death of their gateway.
async fn slots_hold(bus: Arc<dyn Bus>) {
    let fleet = Fleet::start(bus, conn(6)).await;
    fleet.app.set_delay(Duration::from_secs(3600));
    let mut held: Vec<Client> = (0..6).map(|n| fleet.hold(n % 2)).collect();
    // All six are taken, so no gateway has any left.
    assert_eq!([0, 1, 2].map(|gateway| fleet.status(gateway)), [429; 3]);
    let one = held.pop().unwrap();
    socket2::SockRef::from(&one.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(one);
    let _third = fleet.hold(2);
    assert_eq!(fleet.status(2), 429);
    // One gateway is killed while it holds slots: they end by themselves.
    fleet.cuts[0].store(true, SeqCst);
    fleet.app.set_delay(Duration::ZERO);
    until("the dead one's slots are free", || fleet.status(2) == 200 && fleet.status(1) == 200);
}

#[tokio::test]
async fn a_window_of_three_gateways_admits_its_limit() {
    windows_hold(Arc::new(MemoryBus::new())).await;
}

#[tokio::test]
async fn slots_of_three_gateways_end_with_the_gateway_that_held_them() {
    slots_hold(Arc::new(MemoryBus::new())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_hold_over_nats() {
    let nats = NatsServer::start();
    let bus = || NatsBus::connect(NatsConfig::new(nats.url()));
    windows_hold(Arc::new(bus().await.unwrap())).await;
    slots_hold(Arc::new(bus().await.unwrap())).await;
}
