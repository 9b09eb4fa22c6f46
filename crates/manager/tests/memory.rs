//! What a manager keeps in memory of each instance, counted by the allocator.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "test code"
)]
#![expect(unsafe_code, reason = "an allocator that counts")]

use serde_json::json;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use towpath_manager::core::cache::Cache;
use towpath_manager::core::clock::Clock;
use towpath_manager::core::keys::group_key;
use towpath_manager::core::soft::SoftState;
use towpath_store::Change;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::spec::{Assignment, GroupStatus, InstanceSettings, InstanceVersion, ReleaseSpec, Wanted};
use towpath_types::{
    AppRef, CellId, Digest, Generation, Incarnation, InstanceId, LaneName, Place, Record, Revision, SpaceRef,
};
use towpath_wire::cell::{CellAnnounce, InstanceReport, InstanceState};
use towpath_wire::{decode, encode};

struct Counting;
static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size().cast_signed(), Relaxed);
        // SAFETY: as promised by our caller.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size().cast_signed(), Relaxed);
        // SAFETY: as promised by our caller.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const GROUPS: u64 = 10;
const EACH: u64 = 200;
const INSTANCES: u64 = GROUPS * EACH;
const CELLS: u64 = 50;
/// Most bytes of an instance: in the hard state, in the soft state.
const MOST: (isize, isize) = (400, 500);

fn id(n: u64) -> [u8; 10] {
    let mut random = [7; 10];
    random[2..].copy_from_slice(&n.to_be_bytes());
    random
}

fn instance(n: u64) -> InstanceId {
    InstanceId::mint(1_700_000_000_000, id(n))
}

fn cell(n: u64) -> CellId {
    CellId::mint(1_700_000_000_000, id(n))
}

fn app(n: u64) -> AppRef {
    AppRef::new(&SpaceRef::first(), format!("application-{n}").parse().unwrap())
}

fn release(app: &AppRef) -> ReleaseSpec {
    let digest = Digest::from_bytes([1; 32]);
    serde_json::from_value(json!({
        "release": digest, "app": app.app, "source": digest, "artifact": digest, "artifact_bytes": 1000, "builder": "static",
        "command": "serve the site", "env": {"LANG": "C.UTF-8"},
    }))
    .unwrap()
}

/// A group with all its instances, as the feed brings it.
fn change(n: u64, revision: u64) -> Change {
    let (app, digest) = (app(n), Digest::from_bytes([1; 32]));
    let version = InstanceVersion { release: digest, settings: digest };
    let assignment = |at: u64| Assignment {
        instance: instance(n * EACH + at),
        cell: cell((n * EACH + at) % CELLS),
        ordinal: u32::try_from(at).unwrap(),
        version,
        wanted: Wanted::Run,
        since_ms: 1_700_000_000_000,
        drain_ms: None,
    };
    let status = GroupStatus {
        assignments: (0..EACH).map(assignment).collect(),
        settings: [(digest, InstanceSettings::default())].into(),
        releases: [(digest, release(&app))].into(),
        target: Some(version),
        ..GroupStatus::default()
    };
    let key = group_key(&app, &LaneName::base(), "");
    let record = Record {
        id: format!("group-{n}"),
        key: key.clone(),
        generation: Generation(1),
        revision: Revision(revision),
        created_ms: 0,
        updated_ms: 0,
        spec: json!({"app": app.app, "lane": "base", "count": EACH, "release": digest}),
        status: serde_json::from_str(&serde_json::to_string(&status).unwrap()).unwrap(),
    };
    Change { revision: Revision(revision), key, record: Some(record) }
}

/// What a cell says, as the bus brings it.
fn announce(n: u64, seq: u64) -> CellAnnounce {
    let report = |at: u64| InstanceReport {
        instance: instance(at),
        app: app(at / EACH),
        lane: LaneName::base(),
        release: Digest::from_bytes([1; 32]),
        port: 4000,
        protocol: Default::default(),
        weight: 100,
        state: InstanceState::Ready,
        state_ms: 0,
        restarts: 0,
        reason: String::new(),
        load: InstanceLoad::default(),
        memory_bytes: 1 << 20,
        pid: 1,
        memory_limit: 0,
    };
    let announce = CellAnnounce {
        cell: cell(n),
        incarnation: Incarnation(1),
        seq,
        place: Place { zone: "zone".into(), node: format!("node-{n}"), ..Place::default() },
        address: "10.0.0.1".into(),
        version: "1.0.0".into(),
        driver: "process".into(),
        memory_bytes: 1 << 40,
        cores: 64,
        host: HostLoad::default(),
        cordoned: false,
        leaving: false,
        desired: Revision(1),
        builders: vec!["python".into(), "node".into()],
        troubles: Vec::new(),
        ports: Some(10_000),
        priority: 0,
        instances: (0..INSTANCES).filter(|at| at % CELLS == n).map(report).collect(),
    };
    decode(&encode(&announce)).unwrap()
}

/// Bytes that are there afterwards and were not before, for each instance.
fn count(work: impl FnOnce()) -> isize {
    let before = LIVE.load(Relaxed);
    work();
    (LIVE.load(Relaxed) - before) / isize::try_from(INSTANCES).unwrap()
}

#[test]
fn an_instance_takes_less_than_a_kilobyte_of_a_manager() {
    let (cache, soft) = (Cache::default(), SoftState::new(Arc::new(Clock::start())));
    soft.begin_listening();
    // Several times, as in life: what came before must not stay.
    let hard = count(|| {
        for revision in 1..=3 {
            for n in 0..GROUPS {
                cache.apply(vec![change(n, revision * GROUPS + n)]);
            }
        }
    });
    let heard = count(|| {
        for seq in 1..=3 {
            for n in 0..CELLS {
                soft.hear_cell(announce(n, seq));
            }
        }
    });
    println!("bytes of each instance: {hard} in the hard state, {heard} in the soft state");
    assert!(cache.group(&towpath_manager::core::keys::GroupRef::new(app(1), LaneName::base())).is_some());
    assert_eq!(soft.instance(instance(5)).unwrap().report.app, app(0));
    assert!(hard <= MOST.0 && heard <= MOST.1, "{hard} {heard}");
}
