//! Whether the store can be read and written now. It is found out without writing: a heartbeat that was sent from here would
//! keep a manager alive whose own heartbeats have stopped.

use crate::core::Core;
use serde::Serialize;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use towpath_store::{ManagerRow, StoreError, Transaction};

/// Longest time for each part.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer is used again for so long, so that whoever asks often costs the store nothing.
const FRESH: Duration = Duration::from_secs(1);

/// How the store stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoreState {
    /// Reads and writes work.
    Up,
    /// Reads work, writes do not.
    Degraded,
    /// Nothing works; traffic does all the same.
    Down,
}

/// Whether the store answers.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub(crate) struct StoreView {
    /// Reads and writes work.
    pub(crate) ok: bool,
    pub(crate) state: StoreState,
    /// What does not work, and why; empty if all does.
    pub(crate) why: String,
}

/// What was found.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) store: StoreView,
    pub(crate) managers: Vec<ManagerRow>,
}

/// Asks the store, once at a time.
#[derive(Debug, Default)]
pub(crate) struct StoreProbe(Mutex<Option<(Instant, Found)>>);

impl StoreProbe {
    /// How the store stands now.
    pub(crate) async fn look(&self, core: &Core) -> Found {
        let mut last = self.0.lock().await;
        if let Some((at, found)) = &*last
            && at.elapsed() < FRESH
        {
            return found.clone();
        }
        let found = probe(core).await;
        *last = Some((Instant::now(), found.clone()));
        found
    }
}

async fn probe(core: &Core) -> Found {
    let view = |state, why| StoreView { ok: state == StoreState::Up, state, why };
    let (read, written) = tokio::join!(in_time(core.store.managers()), write(core));
    match (read, written) {
        (Err(why), _) => Found { store: view(StoreState::Down, why), managers: Vec::new() },
        (Ok(managers), Err(why)) => Found { store: view(StoreState::Degraded, why), managers },
        (Ok(managers), Ok(())) => Found { store: view(StoreState::Up, String::new()), managers },
    }
}

/// Goes the way of every commit, without changing anything; that there is room to write is known from the heartbeats.
async fn write(core: &Core) -> Result<(), String> {
    let fence = core.fence().ok_or("this manager is not a member at the moment; changes have to wait")?;
    let nothing = Transaction { writes: Vec::new(), fence: Some(fence), idempotency: None };
    in_time(core.store.commit(nothing)).await.map_err(|why| format!("writes fail: {why}"))?;
    match core.heartbeat_trouble() {
        Some(why) => Err(format!("writes fail: {why}")),
        None if !core.may_act() => Err("this manager's heartbeats have stopped".into()),
        None => Ok(()),
    }
}

async fn in_time<T>(call: impl Future<Output = Result<T, StoreError>>) -> Result<T, String> {
    match tokio::time::timeout(PATIENCE, call).await {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("the store does not answer within {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::ManagerSettings;
    use std::sync::Arc;
    use towpath_bus::MemoryBus;
    use towpath_store::{Fence, MemoryStore, Store};
    use towpath_types::{Incarnation, ManagerId};

    #[tokio::test(start_paused = true)]
    async fn asking_whether_a_manager_is_ready_does_not_keep_it_alive() {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(MemoryStore::new(1_000, 100));
        let manager = ManagerId::mint(1, [1; 10]);
        let core =
            Core::new(ManagerSettings::new(dir.path()), store.clone(), Arc::new(MemoryBus::new()), manager);
        let fence = Fence { manager, incarnation: Incarnation(1) };
        let row = ManagerRow {
            manager,
            incarnation: fence.incarnation,
            address: String::new(),
            version: String::new(),
            weight: 1.0,
            started_ms: 0,
            silent_ms: 0,
            evicted: false,
        };
        store.register_manager(&row).await.unwrap();
        core.set_fence(Some(fence));
        let probe = StoreProbe::default();
        assert_eq!(probe.look(&core).await.store.state, StoreState::Up);
        // Its heartbeats have stopped, and somebody asks every second.
        for _ in 0..7 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            probe.look(&core).await;
        }
        assert_eq!(store.managers().await.unwrap()[0].silent_ms, 7_000);
        let found = probe.look(&core).await.store;
        assert_eq!(found.state, StoreState::Degraded, "{found:?}");
        assert!(found.why.contains("heartbeats"), "{found:?}");
    }
}
