//! When the bus goes away and comes back.

use crate::rig::{Rig, SOON, answer, next, next_text, until};
use bytes::Bytes;
use std::time::{Duration, Instant};
use towpath_bus::{BusError, BusState};

pub(crate) async fn an_outage_is_seen_and_survived(rig: &mut impl Rig) {
    let (here, there) = (rig.client().await, rig.client().await);
    let mut plain = here.subscribe("news.*").await.unwrap();
    let mut queued = here.subscribe_queue("work", "workers").await.unwrap();
    let questions = there.subscribe("question").await.unwrap();
    answer(there.clone(), questions, "re: ");
    assert_eq!(*here.state().borrow(), BusState::Up);
    for _ in 0..2 {
        rig.take_down();
        until(&*here, BusState::Down).await;
        until(&*there, BusState::Down).await;
        let begin = Instant::now();
        let refused = here.publish("news.x", Bytes::new()).await;
        assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");
        let refused = here.request("question", Bytes::new(), Duration::from_secs(60)).await;
        assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");
        assert!(begin.elapsed() < SOON, "it took {:?} to find out", begin.elapsed());

        rig.bring_up();
        until(&*here, BusState::Up).await;
        until(&*there, BusState::Up).await;
        rig.settle().await;
        there.publish("news.x", Bytes::from_static(b"again")).await.unwrap();
        assert_eq!(next_text(&mut plain).await, "again");
        there.publish("work", Bytes::from_static(b"to do")).await.unwrap();
        assert_eq!(next_text(&mut queued).await, "to do");
        assert_eq!(here.request("question", Bytes::from_static(b"?"), SOON).await.unwrap(), "re: ?");
    }
}

pub(crate) async fn a_subscription_made_in_an_outage_works_after_it(rig: &mut impl Rig) {
    let (here, there) = (rig.client().await, rig.client().await);
    rig.take_down();
    until(&*here, BusState::Down).await;
    let mut subscription = tokio::time::timeout(SOON, here.subscribe("news")).await.unwrap().unwrap();
    rig.bring_up();
    until(&*here, BusState::Up).await;
    until(&*there, BusState::Up).await;
    rig.settle().await;
    there.publish("news", Bytes::from_static(b"good")).await.unwrap();
    assert_eq!(next_text(&mut subscription).await, "good");
}

pub(crate) async fn a_request_in_flight_fails_with_the_outage(rig: &mut impl Rig) {
    let (asker, listener) = (rig.client().await, rig.client().await);
    let mut subscription = listener.subscribe("mute").await.unwrap();
    let asking =
        tokio::spawn(async move { asker.request("mute", Bytes::new(), Duration::from_secs(60)).await });
    next(&mut subscription).await;
    rig.take_down();
    let refused =
        tokio::time::timeout(SOON, asking).await.expect("it does not wait for its timeout").unwrap();
    assert!(matches!(refused, Err(BusError::Unreachable(_))), "{refused:?}");
}
