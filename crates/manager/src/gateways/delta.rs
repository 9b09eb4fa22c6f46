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
        if step.items.is_empty() {
            self.next = self.next.min(Instant::now() + QUIET);
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
        self.told = core.cache.revision();
        let delta = self.delta(core, self.told);
        self.send(core, delta).await;
    }

    fn delta(&self, core: &Core, to: Revision) -> GatewayDelta {
        GatewayDelta { epoch: core.epoch(), from: self.told, to, put: Vec::new(), delete: Vec::new() }
    }

    async fn send(&mut self, core: &Core, delta: GatewayDelta) {
        self.next = Instant::now() + ALIVE;
        let to = delta.to;
        let mut payload = encode(&delta);
        if payload.len() > MOST_BYTES {
            let gap = GatewayDelta { from: to, put: Vec::new(), delete: Vec::new(), ..delta };
            payload = encode(&gap);
        }
        self.told = to;
        if !core.ownership.is_mine(RESOURCE) {
            // Another manager tells. What it knows earlier or later must not be mixed in.
            return;
        }
        // A loss is seen by the next message's `from`, so a failure needs no retry here.
        if let Err(error) = core.bus.publish(subject::GATEWAY_DELTA, payload.into()).await {
            tracing::debug!(%error, "a change of the routing table was not sent");
        }
    }
}
