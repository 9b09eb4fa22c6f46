//! Tells gateways what changed in the routing table, and every two seconds that this manager lives.

use crate::core::Core;
use crate::core::cache::CacheStep;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinSet;
use tokio::time::Instant;
use towpath_types::Revision;
use towpath_wire::gateway::GatewayDelta;
use towpath_wire::{encode, subject};

/// The feed of all gateways is one resource: its owner tells, so that no older item follows a newer one.
const RESOURCE: &str = "gateway-feed";
/// Interval of the sign of life.
const ALIVE: Duration = Duration::from_secs(2);
/// A revision that changes no item is told with at most this delay, so that many of them are told once.
const QUIET: Duration = Duration::from_millis(50);
/// A delta over this size is not sent; gateways are made to ask for a snapshot.
const MOST_BYTES: usize = 800_000;

/// Starts the teller.
pub(super) fn spawn(core: &Arc<Core>, tasks: &mut JoinSet<()>) {
    let core = core.clone();
    tasks.spawn(async move {
        tokio::select! {
            () = run(&core) => {}
            () = core.stopped() => {}
        }
    });
}

async fn run(core: &Core) {
    let mut steps = core.steps();
    let at = core.cache.revision();
    let mut teller = Teller { told: at, seen: at, next: Instant::now() + ALIVE };
    loop {
        let news = tokio::select! {
            step = steps.recv() => Some(step),
            () = tokio::time::sleep_until(teller.next) => None,
        };
        match news {
            None => teller.tell_alive(core).await,
            Some(Ok(step)) => teller.tell_step(core, &step).await,
            Some(Err(RecvError::Lagged(_))) => teller.tell_gap(core).await,
            Some(Err(RecvError::Closed)) => return,
        }
    }
}

struct Teller {
    /// Gateways that got everything are at this revision.
    told: Revision,
    /// Up to here all steps were looked at. The cache may be ahead: a sign of life that named its revision would skip
    /// the items of steps that still wait to be told.
    seen: Revision,
    /// When the next message is due at the latest.
    next: Instant,
}

impl Teller {
    async fn tell_step(&mut self, core: &Core, step: &CacheStep) {
        let missed = step.from > self.seen;
        self.seen = self.seen.max(step.to);
        if step.from == Revision(0) || missed {
            // Loaded anew, or steps were missed: what changed is not known item by item.
            return self.tell_gap(core).await;
        }
        if step.partial {
            // Another manager tells of it; whoever has not heard that asks for a snapshot at the next word from here.
            self.told = self.told.max(step.to);
            return;
        }
        if step.to <= self.told {
            // A gap was told since: whoever was behind has asked for a snapshot that holds this already.
            return;
        }
        if step.items.is_empty() {
            self.next = self.next.min(Instant::now() + QUIET);
            return;
        }
        if !tells(core) {
            (self.told, self.next) = (step.to, Instant::now() + ALIVE);
            return;
        }
        let mut delta = self.delta(core, step.to);
        for (key, item) in &step.items {
            match item {
                Some(item) => delta.put.push((**item).clone()),
                None => delta.delete.push(key.clone()),
            }
        }
        self.send(core, delta).await;
    }

    /// A sign of life; carries revisions that changed no item.
    async fn tell_alive(&mut self, core: &Core) {
        let at = self.seen;
        if at == Revision(0) {
            self.next = Instant::now() + ALIVE;
            return;
        }
        let delta = self.delta(core, at.max(self.told));
        self.send(core, delta).await;
    }

    /// Whoever is behind has missed something and asks for a snapshot.
    async fn tell_gap(&mut self, core: &Core) {
        // A store that was set back takes both back with it.
        self.told = core.cache.revision();
        self.seen = self.told;
        let delta = self.delta(core, self.told);
        self.send(core, delta).await;
    }

    fn delta(&self, core: &Core, to: Revision) -> GatewayDelta {
        GatewayDelta { epoch: core.epoch(), from: self.told, to, put: Vec::new(), delete: Vec::new() }
    }

    async fn send(&mut self, core: &Core, delta: GatewayDelta) {
        self.next = Instant::now() + ALIVE;
        let to = delta.to;
        self.told = to;
        if !tells(core) {
            return;
        }
        let mut payload = encode(&delta);
        if payload.len() > MOST_BYTES {
            let gap = GatewayDelta { from: to, put: Vec::new(), delete: Vec::new(), ..delta };
            payload = encode(&gap);
        }
        // A loss is seen by the next message's `from`, so a failure needs no retry here.
        if let Err(error) = core.bus.publish(subject::GATEWAY_DELTA, payload.into()).await {
            tracing::debug!(%error, "a change of the routing table was not sent");
        }
    }
}

/// Whether this manager is the one that tells. What another one knows earlier or later must not be mixed in.
pub(crate) fn tells(core: &Core) -> bool {
    core.ownership.is_mine(RESOURCE) && core.may_act()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::keys::route_key;
    use crate::settings::ManagerSettings;
    use serde_json::json;
    use towpath_bus::{Bus, MemoryBus, Subscription};
    use towpath_store::{Change, Fence, SqliteStore};
    use towpath_types::{Generation, Incarnation, ManagerId, Record};
    use towpath_wire::decode;

    struct Told {
        core: Arc<Core>,
        deltas: Subscription,
        teller: Teller,
        _dir: tempfile::TempDir,
    }

    impl Told {
        /// A manager whose cache was loaded at revision 1.
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let store = Arc::new(SqliteStore::open(&dir.path().join("s.db")).await.unwrap());
            let bus = MemoryBus::new();
            let deltas = bus.subscribe(subject::GATEWAY_DELTA).await.unwrap();
            let settings = ManagerSettings::new(dir.path());
            let core = Core::new(settings, store, Arc::new(bus), ManagerId::mint(1, [1; 10]));
            core.cache.load(vec![], Revision(1));
            core.set_fence(Some(Fence { manager: core.manager, incarnation: Incarnation(1) }));
            let teller = Teller { told: Revision(1), seen: Revision(1), next: Instant::now() };
            Self { core, deltas, teller, _dir: dir }
        }

        /// A route comes into the cache at this revision.
        fn put(&self, revision: u64) -> CacheStep {
            let host = format!("h{revision}");
            let key = route_key(&host, "/");
            let app = json!({"org": "default", "space": "default", "app": "shop"});
            let record = Record {
                id: host.clone(),
                key: key.clone(),
                generation: Generation(1),
                revision: Revision(revision),
                created_ms: 0,
                updated_ms: 0,
                spec: json!({"host": host, "app": app}),
                status: json!({}),
            };
            self.core.cache.apply(vec![Change { revision: Revision(revision), key, record: Some(record) }])
        }

        async fn next(&mut self) -> (u64, u64, usize) {
            let message = self.deltas.next().await.unwrap();
            let delta: GatewayDelta = decode(&message.payload).unwrap();
            (delta.from.0, delta.to.0, delta.put.len())
        }
    }

    #[tokio::test]
    async fn a_sign_of_life_never_overtakes_changes_that_still_wait_to_be_told() {
        let mut told = Told::new().await;
        let (first, second) = (told.put(2), told.put(3));
        told.teller.tell_alive(&told.core).await;
        assert_eq!(told.next().await, (1, 1, 0));
        told.teller.tell_step(&told.core, &first).await;
        assert_eq!(told.next().await, (1, 2, 1));
        told.teller.tell_step(&told.core, &second).await;
        assert_eq!(told.next().await, (2, 3, 1));
    }

    #[tokio::test]
    async fn after_a_gap_older_steps_are_not_told_again_and_newer_ones_follow_without_another_gap() {
        let mut told = Told::new().await;
        let (first, second) = (told.put(2), told.put(3));
        told.teller.tell_gap(&told.core).await;
        assert_eq!(told.next().await, (3, 3, 0));
        told.teller.tell_step(&told.core, &first).await;
        told.teller.tell_step(&told.core, &second).await;
        let third = told.put(4);
        told.teller.tell_step(&told.core, &third).await;
        assert_eq!(told.next().await, (3, 4, 1));
    }

    #[tokio::test]
    async fn who_did_not_hear_what_another_manager_told_has_to_ask() {
        let mut told = Told::new().await;
        let step = CacheStep { partial: true, items: Vec::new(), ..told.put(2) };
        told.teller.tell_step(&told.core, &step).await;
        let next = told.put(3);
        told.teller.tell_step(&told.core, &next).await;
        assert_eq!(told.next().await, (2, 3, 1), "one that is at 1 has missed something");
    }

    #[tokio::test]
    async fn steps_without_items_are_carried_by_the_next_message() {
        let mut told = Told::new().await;
        let quiet = CacheStep { from: Revision(1), to: Revision(2), ..CacheStep::default() };
        told.teller.tell_step(&told.core, &quiet).await;
        assert!(told.teller.next <= Instant::now() + QUIET);
        let step = CacheStep { from: Revision(2), ..told.put(3) };
        told.teller.tell_step(&told.core, &step).await;
        assert_eq!(told.next().await, (1, 3, 1), "no gap");
    }
}
