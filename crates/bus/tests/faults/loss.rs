//! Messages that are lost on the way, members of a queue group that nobody hears any more, buffers while nothing moves.

use crate::service::{Done, answered_again, ask, connect, serve};
use crate::{SOON, until};
use bytes::Bytes;
use std::time::Duration;
use towpath_bus::{Bus, BusError, BusState};
use towpath_testkit::{Fault, NatsOptions, NatsServer, TcpProxy, nats};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_request_fails_and_is_not_repeated_behind_its_callers_back() {
    let server = NatsServer::start();
    let proxy = TcpProxy::start(([127, 0, 0, 1], server.port()).into());
    let done = Done::default();
    serve(connect(vec![server.url()]).await, done.clone()).await;
    let asker = connect(vec![format!("nats://{}", proxy.address())]).await;
    let mut news = asker.subscribe("news").await.unwrap();
    ask(&asker, "first").await.unwrap();

    proxy.when_client_sends(b"never-arrives", Fault::LoseRequest);
    let lost = ask(&asker, "never-arrives").await;
    assert!(matches!(lost, Err(BusError::Unreachable(_) | BusError::Timeout { .. })), "{lost:?}");
    until(&*asker, BusState::Up).await;
    answered_again(&asker, "then", 5).await;
    assert_eq!(done.times("never-arrives"), 0);

    proxy.when_client_sends(b"answer-is-lost", Fault::LoseAnswer);
    let lost = ask(&asker, "answer-is-lost").await;
    assert!(matches!(lost, Err(BusError::Unreachable(_) | BusError::Timeout { .. })), "{lost:?}");
    until(&*asker, BusState::Up).await;
    answered_again(&asker, "at last", 5).await;
    assert_eq!((done.times("answer-is-lost"), proxy.triggered()), (1, 2));

    // Its subscription is there again.
    asker.publish("news", Bytes::from_static(b"good")).await.unwrap();
    let heard = tokio::time::timeout(SOON, news.next()).await.unwrap().unwrap();
    assert_eq!(heard.payload, "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_nobody_hears_any_more_is_dropped_from_its_queue_group() {
    // The old server takes what it sends to a client for a sign of life of that client, and keeps it.
    let options = NatsOptions {
        config: "ping_interval: \"1s\"\nping_max: 2".to_owned(),
        program: Some(nats::newer_server()),
        ..NatsOptions::default()
    };
    let server = NatsServer::start_with(&options);
    let proxy = TcpProxy::start(([127, 0, 0, 1], server.port()).into());
    let (near, far) = (Done::default(), Done::default());
    serve(connect(vec![server.url()]).await, near.clone()).await;
    serve(connect(vec![format!("nats://{}", proxy.address())]).await, far.clone()).await;
    let asker = connect(vec![server.url()]).await;
    answered_again(&asker, "before", 10).await;
    // The way to one of them swallows everything. Its share of the requests ends by their deadlines.
    proxy.freeze();
    answered_again(&asker, "meanwhile", 30).await;
    proxy.thaw();
    answered_again(&asker, "after", 30).await;
    let twice = (1..=30)
        .any(|n| near.times(&format!("after-again-{n}")) + far.times(&format!("after-again-{n}")) > 1);
    assert!(!twice, "a request went to both");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_a_frozen_server_is_bounded() {
    const SIZE: usize = 900_000;
    let server = NatsServer::start();
    let bus = connect(vec![server.url()]).await;
    let mut echo = bus.subscribe("large").await.unwrap();
    // Much more than the bound passes while the server answers.
    for _ in 0..60 {
        bus.publish("large", Bytes::from(vec![1; SIZE])).await.unwrap();
        tokio::time::timeout(SOON, echo.next()).await.unwrap().unwrap();
    }
    server.pause();
    let mut taken = 0;
    let refused = loop {
        let publish = bus.publish("large", Bytes::from(vec![2; SIZE]));
        match tokio::time::timeout(SOON, publish).await.expect("publishing ends with the outage") {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, BusError::Unreachable(_)), "{refused:?}");
    assert!(taken <= 18, "{taken} messages of {SIZE} bytes wait for a server that takes none");
    // While it is known to be away, nothing is kept for it at all.
    until(&*bus, BusState::Down).await;
    for _ in 0..1000 {
        assert!(bus.publish("large", Bytes::from(vec![3; SIZE])).await.is_err());
    }
    server.resume();
    until(&*bus, BusState::Up).await;
    bus.publish("large", Bytes::from_static(b"new")).await.unwrap();
    loop {
        let heard = tokio::time::timeout(SOON, echo.next()).await.unwrap().unwrap();
        assert_ne!(heard.payload[0], 3);
        if heard.payload == "new" {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_message_is_refused_by_its_size_and_the_connection_stays() {
    let options = NatsOptions { config: "max_payload: 1000".to_owned(), ..NatsOptions::default() };
    let server = NatsServer::start_with(&options);
    let bus = connect(vec![server.url()]).await;
    let refused = bus.request("a", Bytes::from(vec![0; 1001]), Duration::from_secs(60)).await.unwrap_err();
    assert!(matches!(refused, BusError::TooLarge(1001)), "{refused:?}");
    assert!(refused.to_string().contains("max_payload"), "{refused}");
    assert_eq!(*bus.state().borrow(), BusState::Up);
    bus.flush().await.unwrap();
}
