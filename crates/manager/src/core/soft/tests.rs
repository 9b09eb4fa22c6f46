use super::*;
use std::collections::BTreeMap;
use std::time::Duration;
use towpath_types::load::{HostLoad, InstanceLoad};
use towpath_types::{AppRef, Digest, GatewayId, Incarnation, LaneName, Place, SpaceRef};
use towpath_wire::cell::InstanceState;
use towpath_wire::gateway::Heard;

fn instance(n: u8) -> InstanceId {
    InstanceId::mint(1, [n; 10])
}

fn cell(n: u8) -> CellId {
    CellId::mint(1, [n; 10])
}

fn announce(seq: u64, instances: &[(u8, InstanceState)]) -> CellAnnounce {
    let report = |(n, state): &(u8, InstanceState)| InstanceReport {
        instance: instance(*n),
        app: AppRef::new(&SpaceRef::first(), "shop".parse().unwrap()),
        lane: LaneName::base(),
        release: Digest::from_bytes([1; 32]),
        port: 4000,
        protocol: Default::default(),
        weight: 100,
        state: *state,
        state_ms: 0,
        restarts: 0,
        reason: String::new(),
        load: InstanceLoad::default(),
        memory_bytes: 0,
        pid: 1,
        memory_limit: 0,
    };
    CellAnnounce {
        cell: cell(1),
        incarnation: Incarnation(1),
        seq,
        place: Place::default(),
        address: "127.0.0.1".into(),
        version: String::new(),
        driver: String::new(),
        memory_bytes: 1,
        cores: 1,
        host: HostLoad::default(),
        cordoned: false,
        leaving: false,
        desired: Revision(0),
        builders: vec![],
        troubles: Vec::new(),
        ports: None,
        priority: 0,
        instances: instances.iter().map(report).collect(),
    }
}

fn report(n: u8, heard: u64) -> GatewayReport {
    GatewayReport {
        gateway: GatewayId::mint(1, [n; 10]),
        incarnation: Incarnation(1),
        place: Place::default(),
        version: String::new(),
        listeners: vec![],
        revision: Revision(n.into()),
        heard: BTreeMap::from([(cell(1), Heard { incarnation: Incarnation(1), seq: heard })]),
        draining: BTreeMap::new(),
        refused: BTreeMap::new(),
        leaving: false,
    }
}

fn soft() -> SoftState {
    let soft = SoftState::new(Arc::new(Clock::start()));
    soft.begin_listening();
    soft
}

async fn pass(ms: u64) {
    tokio::time::advance(Duration::from_millis(ms)).await;
}

#[tokio::test(start_paused = true)]
async fn heard_means_that_every_live_gateway_has_the_announcement_in_which_the_state_began() {
    let soft = soft();
    soft.hear_cell(announce(1, &[(1, InstanceState::Starting)]));
    soft.hear_cell(announce(2, &[(1, InstanceState::Ready)]));
    soft.hear_cell(announce(3, &[(1, InstanceState::Ready)]));
    let heard = |soft: &SoftState| soft.instance(instance(1)).unwrap().heard;
    soft.hear_gateway(report(1, 2));
    assert!(!heard(&soft), "others may not have reported yet");
    pass(SETTLE_MS).await;
    assert!(heard(&soft), "the second announcement is enough, the third told nothing new");
    soft.hear_gateway(report(2, 1));
    assert!(!heard(&soft));
    soft.hear_gateway(report(2, 7));
    assert!(heard(&soft));
    soft.hear_cell(announce(4, &[(1, InstanceState::Draining)]));
    assert!(!heard(&soft));
    // A gateway that is silent, or leaves, is not waited for.
    soft.hear_gateway(report(1, 4));
    assert!(heard(&soft), "the second heard up to 7");
    soft.hear_gateway(report(2, 1));
    assert!(!heard(&soft));
    soft.hear_gateway(GatewayReport { leaving: true, ..report(2, 1) });
    assert!(heard(&soft));
    assert_eq!(soft.live_gateways(), 1);
    assert_eq!(soft.served_revision(), Some(Revision(1)));
    pass(LIVE_MS + 1).await;
    assert_eq!(soft.live_gateways(), 0);
    assert_eq!(soft.served_revision(), None);
}

#[tokio::test(start_paused = true)]
async fn a_new_start_of_a_cell_has_to_be_heard_anew_and_old_news_is_ignored() {
    let soft = soft();
    pass(SETTLE_MS).await;
    soft.hear_cell(announce(5, &[(1, InstanceState::Ready)]));
    soft.hear_gateway(report(1, 5));
    assert!(soft.instance(instance(1)).unwrap().heard);
    let change = soft.hear_cell(announce(4, &[]));
    assert_eq!(change, AnnounceChange::default());
    let again = CellAnnounce { incarnation: Incarnation(2), ..announce(1, &[(1, InstanceState::Ready)]) };
    assert!(soft.hear_cell(again).fresh);
    assert!(!soft.instance(instance(1)).unwrap().heard);
    assert!(!soft.hear_cell(announce(6, &[])).fresh, "the start before has nothing more to say");
}

#[tokio::test(start_paused = true)]
async fn announcements_tell_what_changed() {
    let soft = soft();
    let first = soft.hear_cell(announce(1, &[(1, InstanceState::Starting), (2, InstanceState::Ready)]));
    assert!(first.returned && first.instances.len() == 2);
    let second = soft.hear_cell(announce(2, &[(1, InstanceState::Starting), (2, InstanceState::Ready)]));
    assert!(!second.returned && second.instances.is_empty());
    let third = soft.hear_cell(announce(3, &[(1, InstanceState::Ready), (3, InstanceState::Starting)]));
    assert_eq!(third.instances, vec![instance(1), instance(3), instance(2)]);
    assert!(soft.instance(instance(2)).is_none());
}

#[tokio::test(start_paused = true)]
async fn silence_is_told_once_and_time_stands_still_while_the_bus_is_down() {
    let soft = soft();
    soft.hear_cell(announce(1, &[]));
    pass(19_000).await;
    soft.set_bus_up(false);
    pass(3_600_000).await;
    assert!(soft.take_lost(20_000).is_empty());
    assert_eq!(soft.cells()[0].silent_ms, 19_000);
    soft.set_bus_up(true);
    assert_eq!(soft.cells()[0].silent_ms, 0, "it gets the time to speak again");
    assert!(!soft.settled());
    pass(20_001).await;
    assert_eq!(soft.take_lost(20_000), vec![cell(1)]);
    assert!(soft.take_lost(20_000).is_empty(), "told once");
    assert!(soft.hear_cell(announce(2, &[])).returned);
    pass(20_001).await;
    assert_eq!(soft.take_lost(20_000), vec![cell(1)], "and again after it came back");
    pass(FORGET_MS).await;
    soft.take_lost(20_000);
    assert!(soft.cells().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cell_that_leaves_has_no_instances_any_more() {
    let soft = soft();
    soft.hear_cell(announce(1, &[(1, InstanceState::Ready)]));
    let leaving = CellAnnounce { leaving: true, ..announce(2, &[(1, InstanceState::Stopping)]) };
    assert_eq!(soft.hear_cell(leaving).instances, vec![instance(1)]);
    assert!(soft.instance(instance(1)).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_cell_that_left_is_known_as_such_until_it_comes_again() {
    let soft = soft();
    soft.hear_cell(announce(1, &[(1, InstanceState::Ready)]));
    soft.hear_cell(CellAnnounce { leaving: true, ..announce(3, &[]) });
    assert!(
        !soft.hear_cell(announce(2, &[(1, InstanceState::Ready)])).fresh,
        "old news does not bring it back"
    );
    let left = soft.cells();
    assert!(left[0].lost && left[0].announce.leaving);
    pass(30_000).await;
    assert!(soft.take_lost(20_000).is_empty(), "a cell that leaves is no loss");
    let again = CellAnnounce { incarnation: Incarnation(2), ..announce(1, &[]) };
    assert!(soft.hear_cell(again).returned);
    assert!(!soft.cells()[0].lost);
    soft.hear_cell(CellAnnounce { incarnation: Incarnation(2), leaving: true, ..announce(2, &[]) });
    pass(FORGET_LEFT_MS + 1).await;
    soft.take_lost(20_000);
    assert!(soft.cells().is_empty());
}

/// Time passes with a listener at work, and cell 2 announcing.
async fn listen(soft: &SoftState, seconds: u64, seq: &mut u64, second_speaks: bool) {
    for _ in 0..seconds {
        pass(1_000).await;
        if second_speaks {
            *seq += 1;
            soft.hear_cell(CellAnnounce { cell: cell(2), ..announce(*seq, &[]) });
        }
        soft.note_listener();
    }
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_stood_still_takes_nobody_for_lost() {
    let soft = soft();
    let mut seq = 0;
    soft.hear_cell(announce(1, &[]));
    listen(&soft, 2, &mut seq, true).await;
    // Stopped, and going on: whatever looks first, before the listener has heard anything.
    pass(3_600_000).await;
    let silent = |soft: &SoftState| soft.cells()[0].silent_ms;
    assert_eq!(silent(&soft), 2_000 + STALL_MS);
    assert!(soft.take_lost(20_000).is_empty());
    soft.note_listener();
    assert_eq!(silent(&soft), 2_000 + STALL_MS);
    listen(&soft, 14, &mut seq, true).await;
    assert!(soft.take_lost(20_000).is_empty());
    listen(&soft, 2, &mut seq, true).await;
    assert_eq!(soft.take_lost(20_000), vec![cell(1)], "one that is really gone is told all the same");
}

#[tokio::test(start_paused = true)]
async fn silence_of_all_cells_is_the_loss_of_none() {
    let soft = soft();
    let mut seq = 0;
    soft.hear_cell(announce(1, &[]));
    listen(&soft, 2, &mut seq, true).await;
    listen(&soft, 600, &mut seq, false).await;
    assert!(soft.take_lost(20_000).is_empty());
    assert!(soft.cells().iter().all(|cell| cell.lost), "they get nothing new");
    // One speaks again: the other gets its time, too, and is lost then.
    listen(&soft, 8, &mut seq, true).await;
    assert!(soft.take_lost(20_000).is_empty());
    listen(&soft, 12, &mut seq, true).await;
    assert_eq!(soft.take_lost(20_000), vec![cell(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_start_that_never_was_counts_no_longer_than_it_speaks() {
    let soft = soft();
    soft.note_listener();
    let forged = GatewayReport { incarnation: Incarnation(1 << 63), ..report(1, 0) };
    soft.hear_gateway(forged);
    pass(2_000).await;
    soft.note_listener();
    soft.hear_gateway(report(1, 5));
    assert_eq!(soft.gateways()[0].report.incarnation, Incarnation(1 << 63), "the later start counts");
    for _ in 0..4 {
        pass(2_000).await;
        soft.note_listener();
        soft.hear_gateway(report(1, 5));
    }
    let present = &soft.gateways()[0];
    assert_eq!((present.report.incarnation, present.lost), (Incarnation(1), false));
}
