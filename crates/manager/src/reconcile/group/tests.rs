//! Tables: what is stored and announced → what is written and told.

use super::*;
use crate::core::keys::{app_key, release_key};
use crate::settings::ManagerSettings;
use serde_json::json;
use std::sync::Arc;
use towpath_bus::{Bus, MemoryBus, Subscription};
use towpath_store::{Expect, Fence, ManagerRow, Query, SqliteStore, Store, Transaction, Write};
use towpath_types::load::HostLoad;
use towpath_types::spec::{Assignment, GroupStatus, InstanceVersion, RolloutPhase, Wanted};
use towpath_types::{
    AppRef, CellId, Digest, ErrorCode, Incarnation, LaneName, ManagerId, Place, Record, Revision, SpaceRef,
};
use towpath_wire::cell::{CellAnnounce, CellPoke};
use towpath_wire::{decode, subject};

/// One manager's core on a store of its own, with one group of two, and what is heard of it.
struct Table {
    core: Arc<Core>,
    bus: MemoryBus,
    mailboxes: Mailboxes,
    group: GroupRef,
    pokes: Subscription,
    _dir: tempfile::TempDir,
}

fn cell() -> CellId {
    CellId::mint(1, [1; 10])
}

fn announce() -> CellAnnounce {
    CellAnnounce {
        cell: cell(),
        incarnation: Incarnation(1),
        seq: 1,
        place: Place::default(),
        address: "127.0.0.1".into(),
        version: String::new(),
        driver: String::new(),
        memory_bytes: 8 << 30,
        cores: 1,
        host: HostLoad::default(),
        cordoned: false,
        leaving: false,
        desired: Revision(0),
        builders: vec![],
        troubles: Vec::new(),
        ports: None,
        priority: 0,
        instances: vec![],
    }
}

impl Table {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("s.db")).await.unwrap());
        let bus = MemoryBus::new();
        let manager = ManagerId::mint(1, [9; 10]);
        let row = ManagerRow {
            manager,
            incarnation: Incarnation(1),
            address: String::new(),
            version: String::new(),
            weight: 1.0,
            started_ms: 0,
            silent_ms: 0,
            evicted: false,
        };
        store.register_manager(&row).await.unwrap();
        let core = Core::new(ManagerSettings::new(dir.path()), store, Arc::new(bus.clone()), manager);
        core.set_fence(Some(Fence { manager, incarnation: Incarnation(1) }));
        core.soft.begin_listening();
        let app = AppRef::new(&SpaceRef::first(), "shop".parse().unwrap());
        let group = GroupRef::new(app, LaneName::base());
        let pokes = bus.subscribe(&subject::cell_poke(cell())).await.unwrap();
        let table = Self { core, bus, mailboxes: Mailboxes::default(), group, pokes, _dir: dir };
        let release = Digest::from_bytes([1; 32]);
        table.put(app_key(&table.group.app), json!({})).await;
        let spec = json!({"release": release, "app": "shop", "source": release, "artifact": release,
            "artifact_bytes": 1, "builder": "binary", "command": "./run"});
        table.put(release_key(&table.group.app, release), spec).await;
        table
            .put(table.group.key(), json!({"app": "shop", "lane": "base", "count": 2, "release": release}))
            .await;
        table.see().await;
        table
    }

    async fn put(&self, key: towpath_types::resource::Key, spec: serde_json::Value) {
        let id = self.core.mint_record_id();
        let write = Write::Put { key, id, expect: Expect::Any, spec: Some(spec), status: None };
        let transaction = Transaction { writes: vec![write], fence: None, idempotency: None };
        self.core.store.commit(transaction).await.unwrap();
    }

    /// What the feed would do: the cache takes over the store.
    async fn see(&self) {
        let page = self.core.store.list(&Query::default()).await.unwrap();
        self.core.cache.load(page.records, page.revision);
    }

    async fn reconcile(&self) -> Option<Duration> {
        reconcile(&self.core, &self.mailboxes, self.group.clone()).await
    }

    async fn stored(&self) -> (Revision, GroupStatus) {
        let record = self.core.store.get(&self.group.key()).await.unwrap().unwrap();
        (record.revision, record.status().unwrap())
    }

    /// Pokes that were sent.
    async fn poked(&mut self) -> Vec<CellPoke> {
        let mut found = Vec::new();
        while let Ok(Some(message)) = tokio::time::timeout(Duration::from_millis(20), self.pokes.next()).await
        {
            found.push(decode(&message.payload).unwrap());
        }
        found
    }
}

#[tokio::test]
async fn with_a_cell_instances_are_assigned_and_the_cell_is_told_the_revision() {
    let mut table = Table::new().await;
    table.core.soft.hear_cell(announce());
    table.core.raise_epoch(7);
    assert!(table.reconcile().await.is_some());
    let (revision, status) = table.stored().await;
    assert_eq!(status.assignments.len(), 2);
    assert_eq!(status.phase, RolloutPhase::Rolling);
    assert!(status.assignments.iter().all(|assignment| assignment.cell == cell()));
    assert_eq!(table.poked().await, vec![CellPoke { epoch: 7, revision }]);
    // Nothing new, nothing written, nobody told.
    table.see().await;
    table.reconcile().await;
    assert_eq!(table.stored().await, (revision, status));
    assert!(table.poked().await.is_empty());
}

#[tokio::test]
async fn without_a_cell_it_waits_and_says_why() {
    let mut table = Table::new().await;
    table.reconcile().await;
    let (_, status) = table.stored().await;
    assert_eq!((status.phase, status.code), (RolloutPhase::Waiting, Some(ErrorCode::NoRoom)));
    assert_eq!(status.message, "no cell has reported yet");
    assert!(table.poked().await.is_empty());
}

#[tokio::test]
async fn nothing_is_done_without_membership_ownership_or_bus() {
    type Change = fn(&Table);
    let cases: [(&str, Change); 3] = [
        ("no member", |table| table.core.set_fence(None)),
        ("the bus is down", |table| table.bus.set_state(BusState::Down)),
        ("another owns it", |table| {
            let name = table.group.to_string();
            let other = |n: u8| ManagerId::mint(2, [n; 10]);
            let taker = (0..=255).map(other).find(|id| {
                table.core.ownership.set_members([(*id, 1.0)]);
                !table.core.ownership.is_mine(&name)
            });
            assert!(taker.is_some());
        }),
    ];
    for (case, change) in cases {
        let mut table = Table::new().await;
        table.core.soft.hear_cell(announce());
        let before = table.stored().await;
        change(&table);
        table.reconcile().await;
        assert_eq!(table.stored().await, before, "{case}");
        assert!(table.poked().await.is_empty(), "{case}");
    }
}

#[tokio::test]
async fn what_was_overtaken_or_fenced_writes_nothing_and_is_looked_at_again() {
    let mut table = Table::new().await;
    table.core.soft.hear_cell(announce());
    // Somebody wrote in the meantime: the cache is behind.
    let spec = json!({"app": "shop", "lane": "base", "count": 3, "release": Digest::from_bytes([1; 32])});
    table.put(table.group.key(), spec).await;
    let before = table.stored().await;
    assert!(table.reconcile().await.is_some_and(|wake| wake < Duration::from_secs(1)));
    assert_eq!(table.stored().await, before);
    table.see().await;
    table.reconcile().await;
    assert_eq!(table.stored().await.1.assignments.len(), 3);
    table.poked().await;

    let mut table = Table::new().await;
    table.core.soft.hear_cell(announce());
    table.core.store.evict_silent(0).await.unwrap();
    let before = table.stored().await;
    assert!(table.reconcile().await.is_some());
    assert_eq!(table.stored().await, before);
    assert_eq!(table.core.fence(), None, "it stops acting at once");
    assert!(table.poked().await.is_empty());
}

#[tokio::test]
async fn what_two_managers_promised_twice_is_taken_back_by_the_owner_of_the_newest() {
    let table = Table::new().await;
    table.core.soft.hear_cell(CellAnnounce { memory_bytes: 600 << 20, ..announce() });
    table.reconcile().await;
    table.see().await;
    // Another manager, which did not know of that, has placed two on the same room.
    let other = GroupRef::new(table.group.app.clone(), "feature".parse().unwrap());
    let release = Digest::from_bytes([1; 32]);
    table.put(other.key(), json!({"app": "shop", "lane": "feature", "count": 2, "release": release})).await;
    let mut theirs = table.core.cache.group(&table.group).unwrap().status.clone();
    for (n, assignment) in theirs.assignments.iter_mut().enumerate() {
        assignment.instance = towpath_types::InstanceId::mint(u64::MAX >> 17, [n as u8; 10]);
    }
    let record = table.core.store.get(&other.key()).await.unwrap().unwrap();
    let write = Write::Put {
        key: other.key(),
        id: record.id,
        expect: Expect::Any,
        spec: None,
        status: Some(json!(theirs)),
    };
    let transaction = Transaction { writes: vec![write], fence: None, idempotency: None };
    table.core.store.commit(transaction).await.unwrap();
    table.see().await;
    // The older ones stay, the newer ones go, whoever looks first.
    let mine = plan_next(&table.core, &table.group).unwrap().plan;
    assert_eq!(mine.status.assignments.len(), 2);
    reconcile(&table.core, &table.mailboxes, other.clone()).await;
    table.see().await;
    assert_eq!(table.core.cache.group(&other).unwrap().status.assignments, []);
    assert_eq!(table.core.cache.group(&other).unwrap().status.code, Some(ErrorCode::NoRoom));
    assert_eq!(table.core.cache.group(&table.group).unwrap().status.assignments.len(), 2);
}

#[tokio::test]
async fn a_cell_whose_ports_are_taken_gets_no_instance_and_the_group_says_so() {
    let table = Table::new().await;
    table.core.soft.hear_cell(CellAnnounce { ports: Some(1), ..announce() });
    table.reconcile().await;
    table.see().await;
    table.reconcile().await;
    let (_, status) = table.stored().await;
    assert_eq!((status.assignments.len(), status.phase), (1, RolloutPhase::Waiting));
    assert_eq!(status.code, Some(ErrorCode::NoRoom));
    assert!(status.message.contains("port"), "{}", status.message);
}

#[tokio::test]
async fn two_groups_do_not_take_the_same_last_room() {
    let table = Table::new().await;
    table.core.soft.hear_cell(CellAnnounce { memory_bytes: 600 << 20, ..announce() });
    let other = GroupRef::new(table.group.app.clone(), "feature".parse().unwrap());
    let release = Digest::from_bytes([1; 32]);
    table.put(other.key(), json!({"app": "shop", "lane": "feature", "count": 2, "release": release})).await;
    table.see().await;
    // Two instances of 512 MiB fit on 600 MiB with an overcommit of two; the plans are made before either is in the cache.
    let first = plan_next(&table.core, &table.group).unwrap();
    let second = plan_next(&table.core, &other).unwrap();
    assert_eq!(first.plan.status.assignments.len(), 2);
    assert_eq!(second.plan.status.assignments.len(), 0);
    drop(first);
    assert_eq!(plan_next(&table.core, &other).unwrap().plan.status.assignments.len(), 2, "given back");
}

#[tokio::test]
async fn a_plan_looks_at_the_cells_of_which_something_has_changed_and_at_no_others() {
    let table = Table::new().await;
    let other = |n: u16| {
        let mut random = [0; 10];
        random[..2].copy_from_slice(&n.to_be_bytes());
        CellId::mint(2, random)
    };
    for n in 0..1_000 {
        table.core.soft.hear_cell(CellAnnounce { cell: other(n), ..announce() });
    }
    let looked = || {
        let mut placing = table.core.placing.begin();
        placing.refresh(&table.core);
        placing.refreshed()
    };
    assert_eq!(looked(), 1_000);
    table.reconcile().await;
    table.see().await;
    // Those of the two instances: their memory was taken, and is in the store now.
    assert!(looked() <= 1_004, "{}", looked());
    let before = looked();
    for _ in 0..20 {
        table.reconcile().await;
    }
    assert_eq!(looked(), before);
    table.core.soft.hear_cell(CellAnnounce { cell: other(7), seq: 2, ..announce() });
    assert_eq!(looked(), before + 1);
}

#[test]
fn progress_of_a_large_group_is_written_now_and_then_and_everything_else_at_once() {
    let group = |instances: usize, updated_ms: u64| -> CachedGroup {
        let version =
            InstanceVersion { release: Digest::from_bytes([1; 32]), settings: Digest::from_bytes([2; 32]) };
        let assignment = Assignment {
            instance: towpath_types::InstanceId::mint(1, [1; 10]),
            cell: cell(),
            ordinal: 0,
            version,
            wanted: Wanted::Run,
            since_ms: 0,
            drain_ms: None,
        };
        let status = GroupStatus { assignments: vec![assignment; instances], ..GroupStatus::default() };
        let spec = json!({"app": "shop", "lane": "base", "count": 2, "release": Digest::from_bytes([1; 32])});
        let record = Record {
            id: String::new(),
            key: GroupRef::new(AppRef::new(&SpaceRef::first(), "shop".parse().unwrap()), LaneName::base())
                .key(),
            generation: Default::default(),
            revision: Revision(1),
            created_ms: 0,
            updated_ms,
            spec: spec.clone(),
            status: json!(null),
        };
        let spec = serde_json::from_value(spec).unwrap();
        Arc::new(crate::core::cache::Typed { record: Arc::new(record), spec, status })
    };
    let large = group(1_000, 10_000);
    let progress = GroupStatus { message: "5 of 1000 ready".into(), ..large.status.clone() };
    assert_eq!(find_pause(11_000, &large, &progress), Some(Duration::from_secs(4)));
    assert_eq!(find_pause(15_000, &large, &progress), None, "long enough");
    let small = group(3, 10_000);
    let told = GroupStatus { message: "1 of 3 ready".into(), ..small.status.clone() };
    assert_eq!(find_pause(10_015, &small, &told), None);
    let waiting = GroupStatus { phase: RolloutPhase::Waiting, ..progress.clone() };
    assert_eq!(find_pause(11_000, &large, &waiting), None, "people wait for it");
    let mut fewer = progress;
    fewer.assignments.pop();
    assert_eq!(find_pause(11_000, &large, &fewer), None, "cells wait for it");
}
