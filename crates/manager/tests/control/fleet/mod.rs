//! A fleet for tests: fake cells and gateways that speak the real messages, and a manager on a memory bus and SQLite.

mod cell;
mod faulty;
mod gateway;
mod loose;

pub(crate) use cell::{FakeCell, Script};
pub(crate) use faulty::FaultyStore;
pub(crate) use gateway::FakeGateway;
pub(crate) use loose::LooseBus;

use serde_json::json;
use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use towpath_bus::{Bus, MemoryBus};
use towpath_manager::core::Core;
use towpath_manager::core::cache::CachedGroup;
use towpath_manager::core::keys::{self, GroupRef};
use towpath_manager::core::outcome::{GroupGoal, GroupOutcome};
use towpath_manager::{Manager, ManagerSettings};
use towpath_store::{Expect, SqliteStore, Store, Write};
use towpath_types::resource::Key;
use towpath_types::spec::{AppSpec, GroupSpec, ReleaseSpec};
use towpath_types::{AppRef, Digest, LaneName, Millis, SpaceRef};

/// Longest wait for anything that should happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A manager with its store and bus.
pub(crate) struct Fleet {
    pub(crate) manager: Option<Manager>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) bus: MemoryBus,
    pub(crate) dir: tempfile::TempDir,
}

/// Settings for a manager of a test.
pub(crate) fn settings(dir: &Path) -> ManagerSettings {
    let mut settings = ManagerSettings::new(dir.join("manager"));
    settings.listen = "127.0.0.1:0".parse().unwrap();
    // Of the start before, if that had one.
    settings.secrets_key_file = Some(dir.join("secrets.key")).filter(|file| file.exists());
    settings
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());
        Self::start_with(dir, store, |_| {}).await
    }

    pub(crate) async fn start_with(
        dir: tempfile::TempDir,
        store: Arc<dyn Store>,
        change: impl FnOnce(&mut ManagerSettings),
    ) -> Self {
        let bus = MemoryBus::new();
        let mut settings = settings(dir.path());
        change(&mut settings);
        let manager = Manager::start(settings, store.clone(), Arc::new(bus.clone())).await.unwrap();
        Self { manager: Some(manager), store, bus, dir }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.manager.as_ref().unwrap().core()
    }

    pub(crate) fn bus(&self) -> Arc<dyn Bus> {
        Arc::new(self.bus.clone())
    }

    pub(crate) async fn cell(&self) -> FakeCell {
        FakeCell::start(self.bus()).await
    }

    pub(crate) async fn gateway(&self) -> FakeGateway {
        FakeGateway::start(self.bus()).await
    }

    /// Ends the manager and starts another one on the same store and bus.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start_again().await;
    }

    pub(crate) async fn stop(&mut self) {
        self.manager.take().unwrap().stop().await;
    }

    /// Another manager on the same directory, store and bus.
    pub(crate) async fn start_again(&mut self) {
        let manager =
            Manager::start(settings(self.dir.path()), self.store.clone(), self.bus()).await.unwrap();
        self.manager = Some(manager);
    }

    pub(crate) async fn put(&self, key: Key, spec: serde_json::Value) {
        let write = Write::Put {
            id: self.core().mint_record_id(),
            key,
            expect: Expect::Any,
            spec: Some(spec),
            status: None,
        };
        self.core().commit(vec![write]).await.unwrap();
    }

    /// Makes an app with a release and a group.
    pub(crate) async fn make_app(&self, name: &str, count: u32) -> GroupRef {
        let app = app(name);
        self.put(keys::app_key(&app), json!(AppSpec::default())).await;
        self.put_release(&app, 1).await;
        let group = GroupRef::new(app, LaneName::base());
        let spec = GroupSpec {
            app: group.app.app.clone(),
            lane: LaneName::base(),
            region: String::new(),
            count,
            release: release(1),
            env: [("GROUP".to_owned(), "1".into())].into(),
            limits: Default::default(),
            health: None,
            restart: 0,
            stopped: false,
        };
        self.put(group.key(), json!(spec)).await;
        group
    }

    pub(crate) async fn put_release(&self, app: &AppRef, n: u8) {
        let spec = ReleaseSpec {
            release: release(n),
            app: app.app.clone(),
            source: release(n),
            artifact: Digest::from_bytes([n + 100; 32]),
            artifact_bytes: 1000,
            builder: "binary".into(),
            command: format!("run-{n}"),
            env: [("FROM_RELEASE".to_owned(), n.to_string())].into(),
            health: towpath_types::health::HealthCheck {
                start_timeout: Millis::secs(3),
                ..Default::default()
            },
            protocol: Default::default(),
            grace: Millis::secs(1),
            by: String::new(),
            note: String::new(),
        };
        self.put(keys::release_key(app, release(n)), json!(spec)).await;
    }

    pub(crate) fn group(&self, group: &GroupRef) -> CachedGroup {
        self.core().cache.group(group).unwrap()
    }

    /// Changes a group's spec; gives the goal of that.
    pub(crate) async fn change(&self, group: &GroupRef, change: impl FnOnce(&mut GroupSpec)) -> GroupGoal {
        let mut spec = self.group(group).spec.clone();
        change(&mut spec);
        self.put(group.key(), json!(spec)).await;
        self.core().find_goal(group, false).unwrap()
    }

    /// Waits for the group's present goal.
    pub(crate) async fn settle(&self, group: &GroupRef) -> GroupOutcome {
        let goal = self.core().find_goal(group, false).unwrap();
        self.core().wait_group(&goal, SOON, |_| {}).await
    }
}

pub(crate) fn app(name: &str) -> AppRef {
    AppRef::new(&SpaceRef::first(), name.parse().unwrap())
}

pub(crate) fn release(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

/// Looks until it is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = tokio::time::Instant::now() + SOON;
    while !so() {
        assert!(tokio::time::Instant::now() < end, "did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Looks until it is so, asynchronously.
pub(crate) async fn until_async<F: Future<Output = bool>>(what: &str, mut so: impl FnMut() -> F) {
    let end = tokio::time::Instant::now() + SOON;
    while !so().await {
        assert!(tokio::time::Instant::now() < end, "did not happen: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
