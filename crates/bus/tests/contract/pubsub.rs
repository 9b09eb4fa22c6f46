//! Publishing and subscribing.

use crate::rig::{Rig, SOON, next, next_text};
use bytes::Bytes;
use std::collections::BTreeSet;
use towpath_bus::{BusError, MAX_PAYLOAD, SUBSCRIPTION_BYTES};
use towpath_testkit::poll_until;

pub(crate) async fn a_message_reaches_whose_pattern_matches(rig: &mut impl Rig) {
    let (publisher, subscriber) = (rig.client().await, rig.client().await);
    let mut subscriptions = Vec::new();
    for pattern in ["cell.a.load", "cell.*.load", "cell.>", "cell.b.*", "other"] {
        subscriptions.push((pattern, subscriber.subscribe(pattern).await.unwrap()));
    }
    for subject in ["cell.a.load", "cell.b.load", "cell.b.load.more", "cell", "other"] {
        publisher.publish(subject, Bytes::from(subject)).await.unwrap();
    }
    let expected: [&[&str]; 5] = [
        &["cell.a.load"],
        &["cell.a.load", "cell.b.load"],
        &["cell.a.load", "cell.b.load", "cell.b.load.more"],
        &["cell.b.load"],
        &["other"],
    ];
    publisher.flush().await.unwrap();
    for ((pattern, subscription), expected) in subscriptions.iter_mut().zip(expected) {
        // A last message on a subject that the pattern fits shows that there was nothing more before it.
        let last = pattern.replace(['*', '>'], "end");
        publisher.publish(&last, Bytes::from_static(b"end")).await.unwrap();
        for subject in expected {
            let message = next(subscription).await;
            assert_eq!(
                (message.subject.as_str(), &*message.payload),
                (*subject, subject.as_bytes()),
                "{pattern}"
            );
            assert_eq!(message.reply, None);
        }
        assert_eq!(next_text(subscription).await, "end", "{pattern} got more than it should");
    }
}

pub(crate) async fn messages_of_a_publisher_keep_their_order(rig: &mut impl Rig) {
    let subscriber = rig.client().await;
    let mut subscription = subscriber.subscribe("count.*").await.unwrap();
    let mut publishers = Vec::new();
    for name in ["count.a", "count.b", "count.c"] {
        let publisher = rig.client().await;
        publishers.push(tokio::spawn(async move {
            for number in 0..500_u32 {
                publisher.publish(name, Bytes::from(number.to_string())).await.unwrap();
            }
            publisher.flush().await.unwrap();
        }));
    }
    let mut expected = std::collections::HashMap::new();
    for _ in 0..1500 {
        let message = next(&mut subscription).await;
        let count: &mut u32 = expected.entry(message.subject).or_default();
        assert_eq!(message.payload, count.to_string());
        *count += 1;
    }
    for publisher in publishers {
        publisher.await.unwrap();
    }
}

pub(crate) async fn a_subscription_is_in_place_when_it_returns(rig: &mut impl Rig) {
    let (publisher, subscriber) = (rig.client().await, rig.client().await);
    for round in 0..50 {
        let subject = format!("round.{round}");
        let mut subscription = subscriber.subscribe(&subject).await.unwrap();
        publisher.publish(&subject, Bytes::from_static(b"seen")).await.unwrap();
        assert_eq!(next_text(&mut subscription).await, "seen");
    }
}

pub(crate) async fn a_queue_group_shares_messages(rig: &mut impl Rig) {
    let publisher = rig.client().await;
    let mut members = Vec::new();
    for _ in 0..3 {
        let client = rig.client().await;
        members.push(client.subscribe_queue("work.*", "workers").await.unwrap());
    }
    let mut onlooker = publisher.subscribe("work.*").await.unwrap();
    for number in 0..300 {
        publisher.publish("work.item", Bytes::from(number.to_string())).await.unwrap();
    }
    for number in 0..300 {
        assert_eq!(next_text(&mut onlooker).await, number.to_string());
    }
    let mut seen = BTreeSet::new();
    let mut shares = [0; 3];
    while seen.len() < 300 {
        let [a, b, c] = &mut members[..] else { panic!("three members") };
        let (member, message) = tokio::select! {
            message = next(a) => (0, message),
            message = next(b) => (1, message),
            message = next(c) => (2, message),
        };
        shares[member] += 1;
        assert!(seen.insert(message.payload), "a message came twice");
    }
    if rig.shares_evenly() {
        assert!(shares.iter().all(|share| *share > 30), "the shares are {shares:?}");
    }
}

pub(crate) async fn a_slow_subscriber_loses_messages_and_knows_how_many(rig: &mut impl Rig) {
    let publisher = rig.client().await;
    let slow_client = rig.client_with_capacity(10).await;
    let mut slow = slow_client.subscribe("much").await.unwrap();
    let quick_client = rig.client().await;
    let mut quick = quick_client.subscribe("much").await.unwrap();
    for number in 0..1000 {
        publisher.publish("much", Bytes::from(number.to_string())).await.unwrap();
    }
    for number in 0..1000 {
        assert_eq!(next_text(&mut quick).await, number.to_string());
    }
    poll_until(SOON, "990 lost messages", || (slow.lost() == 990).then_some(())).await;
    assert_eq!(quick.lost(), 0);
    // What it has is the oldest, in order; then it is in the game again.
    for number in 0..10 {
        assert_eq!(next_text(&mut slow).await, number.to_string());
    }
    publisher.publish("much", Bytes::from_static(b"fresh")).await.unwrap();
    assert_eq!(next_text(&mut slow).await, "fresh");
}

pub(crate) async fn a_slow_subscriber_is_bounded_in_bytes_too(rig: &mut impl Rig) {
    const SIZE: usize = 900_000;
    let publisher = rig.client().await;
    let mut slow = rig.client().await.subscribe("large").await.unwrap();
    let mut quick = publisher.subscribe("large").await.unwrap();
    let room = u64::try_from(SUBSCRIPTION_BYTES / SIZE).unwrap();
    for number in 0..room + 10 {
        let mut payload = vec![0; SIZE];
        payload[0] = u8::try_from(number).unwrap();
        publisher.publish("large", Bytes::from(payload)).await.unwrap();
        assert_eq!(u64::from(next(&mut quick).await.payload[0]), number);
    }
    poll_until(SOON, "10 lost messages", || (slow.lost() == 10).then_some(())).await;
    for number in 0..room {
        assert_eq!(u64::from(next(&mut slow).await.payload[0]), number);
    }
    assert_eq!(quick.lost(), 0);
}

pub(crate) async fn bad_subjects_and_sizes_are_refused(rig: &mut impl Rig) {
    let bus = rig.client().await;
    for bad in ["", "a..b", ".a", "a.", "a b", "a.*", "a.>", "a\r\nPUB x 1"] {
        let refused = bus.publish(bad, Bytes::new()).await;
        assert!(matches!(refused, Err(BusError::Invalid(_))), "{bad:?}: {refused:?}");
    }
    for bad in ["", "a..b", "a.>.b", "a*", "a b"] {
        assert!(matches!(bus.subscribe(bad).await, Err(BusError::Invalid(_))), "{bad:?}");
    }
    for bad in ["", "a b", "a\r\n"] {
        assert!(matches!(bus.subscribe_queue("a", bad).await, Err(BusError::Invalid(_))), "{bad:?}");
    }
    let large = Bytes::from(vec![0; MAX_PAYLOAD + 1]);
    assert!(
        matches!(bus.publish("a", large.clone()).await, Err(BusError::TooLarge(size)) if size == large.len())
    );
    assert!(matches!(bus.request("a", large, SOON).await, Err(BusError::TooLarge(_))));
}

pub(crate) async fn the_largest_message_passes(rig: &mut impl Rig) {
    let bus = rig.client().await;
    let mut subscription = bus.subscribe("a").await.unwrap();
    bus.publish("a", Bytes::from(vec![7; MAX_PAYLOAD])).await.unwrap();
    assert_eq!(next(&mut subscription).await.payload.len(), MAX_PAYLOAD);
}
