//! Shares limits with the other gateways over the bus: says that it is there, hears who else is, asks owners for parts, and
//! grants parts of the keys that it owns. A task of its own on the control thread, idle until some limit is shared.

use crate::clock;
use crate::plugins::shares::Shares;
use bytes::Bytes;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use towpath_bus::{Bus, BusState, Message, Subscription};
use towpath_route::limit::lease::{Ask, Crowd, Grant, Ledger, Sort, owner_of};
use towpath_types::GatewayId;
use towpath_wire::limits::{LimitAsk, LimitGrant, LimitsMessage, Said};
use towpath_wire::{decode, encode, subject};

/// How often a gateway says that it is there, and asks again for what it holds.
const ALIVE: Duration = Duration::from_millis(1000);
/// One that was not heard for so long is gone.
const GONE_MS: u64 = 3_500;
/// Time for the others to answer one that is new, before it asks anybody for anything.
const HELLO: Duration = Duration::from_millis(100);
/// Pause before subscriptions are tried again.
const SUBSCRIBE_AGAIN: Duration = Duration::from_millis(200);
/// Keys of which a gateway grants parts.
const ROOM: usize = 131_072;
/// Most keys of one message.
const BATCH: usize = 1000;
/// Most gateways that are known.
const PEERS: usize = 1024;

/// See the module.
pub(super) struct Sharing {
    pub(super) gateway: GatewayId,
    pub(super) bus: Arc<dyn Bus>,
    pub(super) shares: Arc<Shares>,
    pub(super) leaving: watch::Receiver<bool>,
}

struct State {
    gateway: GatewayId,
    bus: Arc<dyn Bus>,
    shares: Arc<Shares>,
    /// The others, and when they were last heard.
    peers: BTreeMap<GatewayId, u64>,
    since_ms: u64,
    up: bool,
    ledger: Ledger,
    /// Keys that were to be asked for while the others were still to be found.
    early: HashSet<u128>,
    ready: bool,
}

impl Sharing {
    /// Never ends.
    pub(super) async fn run(self) {
        let Some(mut asked) = self.shares.asked() else { return std::future::pending().await };
        self.shares.begun().await;
        let mut leaving = self.leaving;
        let mut state = State {
            gateway: self.gateway,
            bus: self.bus,
            shares: self.shares,
            peers: BTreeMap::new(),
            since_ms: clock::now_ms(),
            up: false,
            ledger: Ledger::new(ROOM),
            early: HashSet::new(),
            ready: false,
        };
        loop {
            let subscriptions = state.subscribe().await;
            state.follow(subscriptions, &mut asked, &mut leaving).await;
            tokio::time::sleep(SUBSCRIBE_AGAIN).await;
        }
    }
}

impl State {
    async fn subscribe(&self) -> (Subscription, Subscription) {
        let own = subject::gateway_limits(self.gateway);
        loop {
            let (all, own) =
                (self.bus.subscribe(subject::GATEWAY_LIMITS_ALL).await, self.bus.subscribe(&own).await);
            if let (Ok(all), Ok(own)) = (all, own) {
                return (all, own);
            }
            tokio::time::sleep(SUBSCRIBE_AGAIN).await;
        }
    }

    /// Until a subscription ends.
    async fn follow(
        &mut self,
        (mut all, mut own): (Subscription, Subscription),
        asked: &mut mpsc::UnboundedReceiver<u128>,
        leaving: &mut watch::Receiver<bool>,
    ) {
        let mut up = self.bus.state();
        self.up = *up.borrow_and_update() == BusState::Up;
        self.tell_crowd();
        self.say(subject::GATEWAY_LIMITS_ALL, Said::Alive { new: true }).await;
        let ready = Instant::now() + HELLO;
        let mut alive = interval(ALIVE);
        alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                message = own.next() => match message {
                    Some(message) => self.hear(&message).await,
                    None => return,
                },
                message = all.next() => match message {
                    Some(message) => self.hear(&message).await,
                    None => return,
                },
                Some(key) = asked.recv() => {
                    let mut keys = HashSet::from([key]);
                    while keys.len() < BATCH && let Ok(key) = asked.try_recv() {
                        keys.insert(key);
                    }
                    if self.ready {
                        self.ask(keys, true).await;
                    } else {
                        self.early.extend(keys);
                    }
                }
                () = sleep_until(ready), if !self.ready => {
                    self.ready = true;
                    let early = std::mem::take(&mut self.early);
                    self.ask(early, true).await;
                }
                Ok(()) = up.changed() => {
                    self.up = *up.borrow_and_update() == BusState::Up;
                    self.tell_crowd();
                    if self.up {
                        self.peers.values_mut().for_each(|heard_ms| *heard_ms = clock::now_ms());
                        self.say(subject::GATEWAY_LIMITS_ALL, Said::Alive { new: true }).await;
                    }
                }
                Ok(()) = leaving.changed() => {
                    if *leaving.borrow_and_update() {
                        self.say(subject::GATEWAY_LIMITS_ALL, Said::Leaving).await;
                    }
                }
                _ = alive.tick() => self.tick(*leaving.borrow()).await,
            }
        }
    }

    async fn tick(&mut self, leaving: bool) {
        let now_ms = clock::now_ms();
        if !leaving {
            self.say(subject::GATEWAY_LIMITS_ALL, Said::Alive { new: false }).await;
        }
        // when the bus is away, nobody is heard
        let before = self.peers.len();
        if self.up {
            self.peers.retain(|_, heard_ms| now_ms < *heard_ms + GONE_MS);
        }
        if self.peers.len() != before {
            self.crowd_changed().await;
        }
        let held = self.shares.held(now_ms, true);
        self.ask(held, true).await;
        self.ledger.sweep(now_ms);
    }

    fn tell_crowd(&self) {
        self.shares.set_crowd(self.peers.len() + 1, self.up);
    }

    /// Keys have other owners now, who are told what this gateway has.
    async fn crowd_changed(&mut self) {
        self.since_ms = clock::now_ms();
        self.tell_crowd();
        let (gateway, peers) = (self.gateway, self.peers.keys().copied().collect::<Vec<_>>());
        let owner = |key| owner_of(key, peers.iter().chain([&gateway]).map(|gateway| gateway.0.as_u128()));
        self.ledger.keep(|key| owner(key) == Some(gateway.0.as_u128()));
        let held = self.shares.held(self.since_ms, false);
        self.ask(held, false).await;
    }

    async fn hear(&mut self, message: &Message) {
        let Ok(LimitsMessage { gateway, said }) = decode::<LimitsMessage>(&message.payload) else { return };
        if gateway == self.gateway {
            return;
        }
        let now_ms = clock::now_ms();
        match said {
            Said::Leaving => {
                if self.peers.remove(&gateway).is_some() {
                    self.crowd_changed().await;
                }
            }
            Said::Alive { new } => {
                let room = self.peers.len() < PEERS;
                if let Some(heard_ms) = self.peers.get_mut(&gateway) {
                    *heard_ms = now_ms;
                } else if room {
                    self.peers.insert(gateway, now_ms);
                    self.crowd_changed().await;
                }
                if new {
                    self.say(subject::GATEWAY_LIMITS_ALL, Said::Alive { new: false }).await;
                }
            }
            Said::Ask { number, asks } => {
                let grants: Vec<LimitGrant> = asks
                    .iter()
                    .filter_map(|ask| self.decide(gateway, &read_ask(ask)?))
                    .map(|grant| write_grant(&grant))
                    .collect();
                self.say(&subject::gateway_limits(gateway), Said::Grant { number, grants }).await;
            }
            Said::Grant { number, grants } => {
                for grant in grants.iter().filter_map(read_grant) {
                    self.shares.grant(now_ms, number, &grant);
                }
            }
        }
    }

    fn decide(&mut self, gateway: GatewayId, ask: &Ask) -> Option<Grant> {
        let crowd = Crowd { gateways: self.peers.len() + 1, since_ms: self.since_ms };
        self.ledger.ask(clock::now_ms(), gateway.0.as_u128(), ask, crowd, fastrand::u64(1..))
    }

    /// Asks the owners of these keys, each in messages of its own.
    async fn ask(&mut self, keys: impl IntoIterator<Item = u128>, more: bool) {
        let now_ms = clock::now_ms();
        let mut of_owner: BTreeMap<GatewayId, Vec<u128>> = BTreeMap::new();
        for key in keys {
            let all = self.peers.keys().chain([&self.gateway]);
            let owner = owner_of(key, all.map(|gateway| gateway.0.as_u128()));
            let owner = owner.map_or(self.gateway, |owner| GatewayId(uuid::Uuid::from_u128(owner)));
            of_owner.entry(owner).or_default().push(key);
        }
        for (owner, keys) in of_owner {
            for keys in keys.chunks(BATCH) {
                let number = self.shares.next_number();
                let asks = keys.iter().filter_map(|key| self.shares.ask(now_ms, *key, number, more));
                if owner == self.gateway {
                    let asks: Vec<Ask> = asks.collect();
                    for ask in asks {
                        if let Some(grant) = self.decide(owner, &ask) {
                            self.shares.grant(now_ms, number, &grant);
                        }
                    }
                } else {
                    let asks: Vec<LimitAsk> = asks.map(|ask| write_ask(&ask)).collect();
                    self.say(&subject::gateway_limits(owner), Said::Ask { number, asks }).await;
                }
            }
        }
    }

    async fn say(&self, subject: &str, said: Said) {
        let message = LimitsMessage { gateway: self.gateway, said };
        if let Err(error) = self.bus.publish(subject, Bytes::from(encode(&message))).await {
            tracing::debug!(%error, "the other gateways could not be told of shared limits");
        }
    }
}

fn read_key(key: &str) -> Option<u128> {
    u128::from_str_radix(key, 16).ok()
}

fn read_ask(ask: &LimitAsk) -> Option<Ask> {
    Some(Ask {
        key: read_key(&ask.key)?,
        sort: ask.window_ms.map_or(Sort::Places, |length| Sort::Window(length.max(1))),
        limit: ask.limit,
        have: ask.have,
        want: ask.want,
        need: ask.need,
        window: ask.window,
        left_ms: ask.left_ms,
    })
}

fn write_ask(ask: &Ask) -> LimitAsk {
    LimitAsk {
        key: format!("{:x}", ask.key),
        limit: ask.limit,
        have: ask.have,
        want: ask.want,
        need: ask.need,
        window_ms: match ask.sort {
            Sort::Window(length) => Some(length),
            Sort::Places => None,
        },
        window: ask.window,
        left_ms: ask.left_ms,
    }
}

fn read_grant(grant: &LimitGrant) -> Option<Grant> {
    let LimitGrant { total, free, window, left_ms, .. } = *grant;
    Some(Grant { key: read_key(&grant.key)?, total, free, window, left_ms })
}

fn write_grant(grant: &Grant) -> LimitGrant {
    let Grant { key, total, free, window, left_ms } = *grant;
    LimitGrant { key: format!("{key:x}"), total, free, window, left_ms }
}
