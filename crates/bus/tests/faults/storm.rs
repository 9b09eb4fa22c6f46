//! Many clients lose their server in one instant. They must not come back in one.

use crate::fake_server::{FakeServer, Mood};
use crate::until;
use bytes::Bytes;
use std::time::Duration;
use tokio::time::Instant;
use towpath_bus::{Bus, BusState, NatsBus, NatsConfig};

const CLIENTS: usize = 300;
const WINDOW: Duration = Duration::from_millis(50);

/// Most arrivals within any [`WINDOW`].
fn densest(arrivals: &[Instant]) -> usize {
    let mut sorted = arrivals.to_vec();
    sorted.sort();
    let until = |begin: usize| sorted.partition_point(|at| *at < sorted[begin] + WINDOW);
    (0..sorted.len()).map(|begin| until(begin) - begin).max().unwrap_or(0)
}

/// The clock is the test's: it stands still while there is work, and moves on to the next timer when there is none.
#[tokio::test]
async fn clients_that_lost_their_server_come_back_one_after_the_other() {
    let local = tokio::task::LocalSet::new();
    local.run_until(lose_and_find_again()).await;
}

async fn lose_and_find_again() {
    let server = FakeServer::start().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let bus = NatsBus::connect(NatsConfig::new(&server.url)).await.unwrap();
        let news = bus.subscribe("news").await.unwrap();
        clients.push((bus, news));
    }
    assert_eq!(server.take_arrivals().len(), CLIENTS);
    tokio::time::pause();

    // A short absence: everybody is back after the first attempt, spread over half a second.
    server.set(Mood::Shut);
    for (bus, _) in &clients {
        until(bus, BusState::Down).await;
    }
    server.set(Mood::Open);
    all_are_back(&mut clients).await;
    let arrivals = server.take_arrivals();
    assert!(densest(&arrivals) < CLIENTS / 2, "{} within {WINDOW:?}", densest(&arrivals));

    // A long one: attempts become rare, and go on.
    server.set(Mood::Shut);
    let begin = Instant::now();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let arrivals = server.take_arrivals();
    assert!(densest(&arrivals) < CLIENTS / 2, "{} within {WINDOW:?}", densest(&arrivals));
    let late = arrivals.iter().filter(|at| **at >= begin + Duration::from_secs(20)).count();
    assert!((CLIENTS..=6 * CLIENTS).contains(&late), "{late} attempts in the last ten seconds");
    server.set(Mood::Open);
    all_are_back(&mut clients).await;
    let arrivals = server.take_arrivals();
    assert!(arrivals.len() >= CLIENTS);
    assert!(densest(&arrivals) < CLIENTS / 4, "{} within {WINDOW:?}", densest(&arrivals));
}

/// Each client is up, and its subscription is in place.
async fn all_are_back(clients: &mut [(NatsBus, towpath_bus::Subscription)]) {
    for (bus, news) in clients {
        until(bus, BusState::Up).await;
        bus.publish("news", Bytes::from_static(b"good")).await.unwrap();
        assert_eq!(news.next().await.unwrap().payload, "good");
    }
}
