//! Clients that change groups through any manager, and remember what they were told.

use super::Cluster;
use super::manager::SimManager;
use super::world::World;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use towpath_manager::core::Core;
use towpath_manager::core::keys::{self, GroupRef};
use towpath_manager::error::CommitError;
use towpath_store::{Expect, MemoryStore, Store, StoreError, Write};
use towpath_types::resource::Key;
use towpath_types::spec::{AppSpec, GroupSpec, ReleaseSpec};
use towpath_types::{AppRef, Digest, LaneName, Millis, SpaceRef};

/// Releases of each app.
const RELEASES: u8 = 3;
/// Most instances of a group.
const MOST: u64 = 12;

/// Clients at work.
pub(super) struct Clients {
    on: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Told>>,
}

/// What one client was told about its group.
struct Told {
    group: GroupRef,
    /// Writes that were acknowledged.
    acknowledged: u64,
    /// The last write that may have been done: acknowledged, or of unknown fate.
    spec: GroupSpec,
}

/// What has to come true.
pub(super) struct Wanted {
    /// The last acknowledged state of every group.
    pub(super) groups: BTreeMap<GroupRef, GroupSpec>,
    /// Acknowledged writes, in all.
    pub(super) writes: u64,
}

fn release(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

impl Clients {
    /// Makes the apps in the store, and lets one client loose on each.
    pub(super) async fn start(cluster: &Cluster, apps: u64) -> Self {
        let on = Arc::new(AtomicBool::new(true));
        let managers: Arc<Vec<SimManager>> = Arc::new(cluster.managers.clone());
        let mut tasks = Vec::new();
        for (group, spec) in make_apps(cluster, apps, 2).await {
            let client = Client {
                world: cluster.world.clone(),
                managers: managers.clone(),
                store: cluster.store.clone(),
                told: Told { group, acknowledged: 0, spec },
                attempts: 0,
            };
            tasks.push(tokio::spawn(client.work(on.clone())));
        }
        Self { on, tasks }
    }

    /// Has all clients finish the write that they are at.
    pub(super) async fn stop(self) -> Wanted {
        self.on.store(false, Ordering::SeqCst);
        let mut wanted = Wanted { groups: BTreeMap::new(), writes: 0 };
        for task in self.tasks {
            if let Ok(told) = task.await {
                wanted.writes += told.acknowledged;
                wanted.groups.insert(told.group, told.spec);
            }
        }
        wanted
    }
}

/// Makes the apps in the store, for a run in which nobody changes them.
pub(super) async fn still(cluster: &Cluster, apps: u64, count: u32) -> Wanted {
    Wanted { groups: make_apps(cluster, apps, count).await.into_iter().collect(), writes: 0 }
}

/// Makes apps with a group of so many instances each.
async fn make_apps(cluster: &Cluster, apps: u64, count: u32) -> Vec<(GroupRef, GroupSpec)> {
    let mut made = Vec::new();
    for n in 0..apps {
        let Ok(name) = format!("app-{n}").parse() else { continue };
        let app = AppRef::new(&SpaceRef::first(), name);
        let group = GroupRef::new(app.clone(), LaneName::base());
        let spec = first_spec(&group, count);
        let mut writes = vec![put(&cluster.world, keys::app_key(&app), json!(AppSpec::default()))];
        for n in 1..=RELEASES {
            let release = json!(release_spec(&app, n));
            writes.push(put(&cluster.world, keys::release_key(&app, self::release(n)), release));
        }
        writes.push(put(&cluster.world, group.key(), json!(spec)));
        let write = towpath_store::Transaction { writes, fence: None, idempotency: None };
        if let Err(error) = cluster.store.commit(write).await {
            cluster.world.breaks(format!("the apps could not be made: {error}"));
        }
        made.push((group, spec));
    }
    made
}

impl Wanted {
    /// Restarts every group, as one does with a group whose rollout failed in the storm: the version that failed is not
    /// tried again by itself.
    pub(super) async fn restart_all(&mut self, cluster: &Cluster) {
        for (group, spec) in &mut self.groups {
            spec.restart += 1;
            let writes = vec![put(&cluster.world, group.key(), json!(spec))];
            let write = towpath_store::Transaction { writes, fence: None, idempotency: None };
            if let Err(error) = cluster.store.commit(write).await {
                cluster.world.breaks(format!("a restart could not be written: {error}"));
            }
        }
    }
}

struct Client {
    world: Arc<World>,
    managers: Arc<Vec<SimManager>>,
    store: Arc<MemoryStore>,
    told: Told,
    attempts: u64,
}

impl Client {
    async fn work(mut self, on: Arc<AtomicBool>) -> Told {
        while on.load(Ordering::SeqCst) {
            let pause = self.world.between(100, 8_000);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            self.look().await;
            let mut next = self.told.spec.clone();
            match self.world.up_to(5) {
                0 => next.restart += 1,
                1 => next.stopped = !next.stopped,
                2 => next.release = release(u8::try_from(self.world.between(1, 3)).unwrap_or(1)),
                _ => next.count = u32::try_from(self.world.up_to(MOST)).unwrap_or_default(),
            }
            if next != self.told.spec {
                self.write(next).await;
            }
        }
        self.told
    }

    /// What this client was told is done has to be there, and nothing else: nobody else writes to its group.
    async fn look(&self) {
        let stored = self.store.get(&self.told.group.key()).await;
        let spec =
            stored.ok().flatten().and_then(|record| serde_json::from_value::<GroupSpec>(record.spec).ok());
        if spec.as_ref() != Some(&self.told.spec) {
            let (name, told) = (&self.told.group.app.app, &self.told.spec);
            self.world
                .breaks(format!("an acknowledged write is lost: {name} has {spec:?}, was told {told:?}"));
        }
    }

    /// Writes until it is known to be done, through one manager after the other, by one idempotency key.
    async fn write(&mut self, next: GroupSpec) {
        self.attempts += 1;
        let once = format!("{}-{}", self.told.group.app.app, self.attempts);
        let key = self.told.group.key();
        loop {
            let nth = self.world.up_to(self.managers.len().saturating_sub(1) as u64);
            let manager = self.managers.get(usize::try_from(nth).unwrap_or_default());
            let core = manager.and_then(SimManager::core);
            let done = match core {
                Some(core) => {
                    let patience = Duration::from_secs(5);
                    tokio::time::timeout(patience, write_once(&core, &self.world, &key, &next, &once)).await
                }
                None => Ok(false),
            };
            if done == Ok(true) {
                self.told.acknowledged += 1;
                self.told.spec = next;
                return;
            }
            self.world.wait_up_to(1_000).await;
        }
    }
}

/// Whether it is known to be done. The idempotency key makes a second time harmless.
async fn write_once(core: &Arc<Core>, world: &World, key: &Key, next: &GroupSpec, once: &str) -> bool {
    let writes = vec![put(world, key.clone(), json!(next))];
    match core.commit_once(writes, Some(once.into())).await {
        Ok(commit) => {
            world.note(format_args!("{once} is done at {}", commit.revision));
            true
        }
        Err(CommitError::Store(StoreError::Conflict { .. } | StoreError::Invalid(_))) => {
            world.breaks(format!("{once} was refused"));
            false
        }
        Err(_) => false,
    }
}

fn put(world: &World, key: Key, spec: serde_json::Value) -> Write {
    let id = towpath_types::OperationId::mint(1, world.bytes()).to_string();
    Write::Put { id, key, expect: Expect::Any, spec: Some(spec), status: None }
}

fn first_spec(group: &GroupRef, count: u32) -> GroupSpec {
    GroupSpec {
        app: group.app.app.clone(),
        lane: group.lane.clone(),
        region: String::new(),
        count,
        release: release(1),
        env: BTreeMap::new(),
        limits: Default::default(),
        health: None,
        restart: 0,
        stopped: false,
    }
}

fn release_spec(app: &AppRef, n: u8) -> ReleaseSpec {
    ReleaseSpec {
        release: release(n),
        app: app.app.clone(),
        source: release(n),
        artifact: Digest::from_bytes([n + 100; 32]),
        artifact_bytes: 1000,
        builder: "binary".into(),
        command: format!("run-{n}"),
        env: BTreeMap::new(),
        health: towpath_types::health::HealthCheck { start_timeout: Millis::secs(30), ..Default::default() },
        protocol: Default::default(),
        grace: Millis::secs(1),
        by: String::new(),
        note: String::new(),
    }
}
