//! Servers of a cluster that go, come back, or freeze.

use crate::service::{Done, answered_again, ask, connect, serve};
use crate::{SOON, until};
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use towpath_bus::{Bus, BusError, BusState, NatsBus};
use towpath_testkit::{NatsCluster, NatsOptions, nats, poll_until_async};

/// Clients that ask all the time, each question once; gives the questions and whether they were answered.
struct Traffic {
    stop: Arc<AtomicBool>,
    clients: Vec<tokio::task::JoinHandle<Vec<(String, bool)>>>,
}

impl Traffic {
    fn start(buses: &[Arc<NatsBus>]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let clients = buses.iter().cloned().enumerate().map(|(number, bus)| {
            let stop = stop.clone();
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let question = format!("{number}-{}", asked.len());
                    let answer = ask(&bus, &question).await;
                    let expected = matches!(
                        answer,
                        Ok(())
                            | Err(BusError::Timeout { .. }
                                | BusError::NoResponder(_)
                                | BusError::Unreachable(_))
                    );
                    assert!(expected, "{answer:?}");
                    asked.push((question, answer.is_ok()));
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                asked
            })
        });
        let clients = clients.collect();
        Self { stop, clients }
    }

    async fn end(self) -> Vec<(String, bool)> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for client in self.clients {
            all.extend(client.await.unwrap());
        }
        all
    }
}

async fn survives_a_rolling_restart(options: NatsOptions) {
    let mut cluster = NatsCluster::start_with(3, &options);
    let done = Done::default();
    let mut members = Vec::new();
    for _ in 0..3 {
        let bus = connect(cluster.urls()).await;
        serve(bus.clone(), done.clone()).await;
        members.push(bus);
    }
    let mut askers = Vec::new();
    for _ in 0..3 {
        askers.push(connect(cluster.urls()).await);
    }
    // Somebody who hears everything in order, until it is told to listen anew.
    let mut news = askers[0].subscribe("news").await.unwrap();
    let traffic = Traffic::start(&askers);
    for number in 0..3 {
        tokio::task::block_in_place(|| cluster.stop_one(number));
        for (who, bus) in askers.iter().enumerate() {
            answered_again(bus, &format!("{number}-down-{who}"), 5).await;
        }
        tokio::task::block_in_place(|| cluster.restart_one(number));
        for (who, bus) in askers.iter().enumerate() {
            answered_again(bus, &format!("{number}-up-{who}"), 5).await;
        }
        poll_until_async(SOON, "a subscription is back", async || {
            members[0].publish("news", Bytes::from_static(b"new")).await.ok();
            tokio::time::timeout(Duration::from_millis(50), news.next()).await.ok().flatten()
        })
        .await;
    }
    let asked = traffic.end().await;
    assert!(asked.iter().any(|(_, answered)| *answered));
    for (question, answered) in asked {
        let times = done.times(&question);
        assert!(times <= 1, "{question} was carried out {times} times");
        assert!(!answered || times == 1, "{question} was answered and never carried out");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_is_survived_under_traffic() {
    survives_a_rolling_restart(NatsOptions { jetstream: true, ..NatsOptions::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_the_newer_server_is_survived_under_traffic() {
    let program = Some(nats::newer_server());
    survives_a_rolling_restart(NatsOptions { jetstream: true, program, ..NatsOptions::default() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_of_a_cluster_is_left_and_forgotten() {
    // Servers that find out about each other as soon as clients do: without this, a question may go to a member behind
    // the frozen server for minutes.
    let options =
        NatsOptions { config: "ping_interval: \"1s\"\nping_max: 2".to_owned(), ..NatsOptions::default() };
    let cluster = NatsCluster::start_with(3, &options);
    let done = Done::default();
    // All begin at the server that will freeze, and know of no other one but from it.
    let first = vec![cluster.server(0).url()];
    let mut buses = Vec::new();
    for _ in 0..4 {
        buses.push(connect(first.clone()).await);
    }
    let (members, askers) = buses.split_at(2);
    for member in members {
        serve(member.clone(), done.clone()).await;
    }
    answered_again(&askers[0], "before", 5).await;
    cluster.server(0).pause();
    for bus in &buses {
        until(&**bus, BusState::Down).await;
    }
    for bus in &buses {
        until(&**bus, BusState::Up).await;
    }
    for (number, asker) in askers.iter().enumerate() {
        answered_again(asker, &format!("frozen-{number}"), 20).await;
    }
    // It goes on as if nothing had been. What it still had is late, and nobody waits for it.
    cluster.server(0).resume();
    let last = connect(first).await;
    answered_again(&last, "after", 20).await;
    for number in 1..=20 {
        assert!(done.times(&format!("after-again-{number}")) <= 1);
    }
}
