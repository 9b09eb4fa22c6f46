//! Request and reply.

use crate::rig::{Rig, SOON, answer, next, next_text};
use bytes::Bytes;
use std::time::{Duration, Instant};
use towpath_bus::BusError;
use towpath_testkit::poll_until_async;

pub(crate) async fn a_request_is_answered(rig: &mut impl Rig) {
    let (asker, answerer) = (rig.client().await, rig.client().await);
    let subscription = answerer.subscribe("question.*").await.unwrap();
    answer(answerer, subscription, "re: ");
    let reply = asker.request("question.one", Bytes::from_static(b"what?"), SOON).await.unwrap();
    assert_eq!(reply, "re: what?");
}

pub(crate) async fn many_requests_at_once_get_their_own_answers(rig: &mut impl Rig) {
    let (asker, answerer) = (rig.client().await, rig.client().await);
    let mut subscription = answerer.subscribe("question").await.unwrap();
    let mut asked = Vec::new();
    for number in 0..100 {
        let asker = asker.clone();
        let question = Bytes::from(number.to_string());
        asked.push(tokio::spawn(async move { asker.request("question", question, SOON).await }));
    }
    let mut questions = Vec::new();
    for _ in 0..100 {
        questions.push(next(&mut subscription).await);
    }
    for question in questions.into_iter().rev() {
        answerer.publish(&question.reply.unwrap(), question.payload).await.unwrap();
    }
    for (number, asked) in asked.into_iter().enumerate() {
        assert_eq!(asked.await.unwrap().unwrap(), number.to_string());
    }
}

pub(crate) async fn a_request_that_nobody_hears_fails_at_once(rig: &mut impl Rig) {
    let asker = rig.client().await;
    let begin = Instant::now();
    let refused = asker.request("nobody", Bytes::new(), Duration::from_secs(60)).await;
    assert!(matches!(&refused, Err(BusError::NoResponder(subject)) if subject == "nobody"), "{refused:?}");
    assert!(begin.elapsed() < SOON);
}

pub(crate) async fn a_request_that_nobody_answers_times_out(rig: &mut impl Rig) {
    let (asker, listener) = (rig.client().await, rig.client().await);
    let mut subscription = listener.subscribe("mute").await.unwrap();
    let timeout = Duration::from_millis(50);
    let refused = asker.request("mute", Bytes::new(), timeout).await;
    assert!(matches!(&refused, Err(BusError::Timeout { subject, .. }) if subject == "mute"), "{refused:?}");
    assert!(next(&mut subscription).await.reply.is_some());
}

pub(crate) async fn only_one_of_a_queue_group_answers(rig: &mut impl Rig) {
    let asker = rig.client().await;
    let mut members = Vec::new();
    for _ in 0..2 {
        let client = rig.client().await;
        members.push(client.subscribe_queue("question", "managers").await.unwrap());
    }
    let [a, b] = &mut members[..] else { panic!("two members") };
    for number in 0..20 {
        let question = Bytes::from(number.to_string());
        let answering = async {
            let request = tokio::select! { request = next(a) => request, request = next(b) => request };
            asker.publish(&request.reply.unwrap(), request.payload).await.unwrap();
        };
        let (reply, ()) = tokio::join!(asker.request("question", question.clone(), SOON), answering);
        assert_eq!(reply.unwrap(), question);
    }
}

pub(crate) async fn a_dropped_subscription_is_no_responder(rig: &mut impl Rig) {
    let (asker, listener) = (rig.client().await, rig.client().await);
    let subscription = listener.subscribe("fleeting").await.unwrap();
    drop(subscription);
    poll_until_async(SOON, "nobody on the subject", async || {
        let refused = asker.request("fleeting", Bytes::new(), Duration::from_millis(50)).await;
        matches!(refused, Err(BusError::NoResponder(_))).then_some(())
    })
    .await;
}

pub(crate) async fn a_late_answer_does_no_harm(rig: &mut impl Rig) {
    let (asker, answerer) = (rig.client().await, rig.client().await);
    let mut subscription = answerer.subscribe("question").await.unwrap();
    let given_up = asker.request("question", Bytes::from_static(b"1"), Duration::from_millis(20)).await;
    assert!(matches!(given_up, Err(BusError::Timeout { .. })));
    let first = next(&mut subscription).await;
    let asking = tokio::spawn({
        let asker = asker.clone();
        async move { asker.request("question", Bytes::from_static(b"2"), SOON).await }
    });
    let second = next(&mut subscription).await;
    for request in [first, second] {
        answerer.publish(&request.reply.unwrap(), request.payload).await.unwrap();
    }
    assert_eq!(asking.await.unwrap().unwrap(), "2");
    // Two answers to one request: the second is dropped too.
    let asking = tokio::spawn(async move { asker.request("question", Bytes::from_static(b"3"), SOON).await });
    let third = next(&mut subscription).await.reply.unwrap();
    answerer.publish(&third, Bytes::from_static(b"once")).await.unwrap();
    answerer.publish(&third, Bytes::from_static(b"twice")).await.unwrap();
    assert_eq!(asking.await.unwrap().unwrap(), "once");
    let mut all = answerer.subscribe("after").await.unwrap();
    answerer.publish("after", Bytes::from_static(b"alive")).await.unwrap();
    assert_eq!(next_text(&mut all).await, "alive");
}
