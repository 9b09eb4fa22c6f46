//! What every bus has to do, run for the in-memory one and for real NATS servers: one alone, clusters, encrypted
//! with keys, of an old and a newer version.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod cluster;
mod nats_only;
mod outage;
mod pubsub;
mod requests;
mod rig;

use cluster::{ClusterRig, Make};
use rig::{MemoryRig, NatsRig};

/// Makes one test for each case, with a rig of this kind.
macro_rules! tests {
    ($adapter:ident, $rig:expr, $($module:ident :: $case:ident),* $(,)?) => {
        mod $adapter {
            use super::*;
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case(&mut $rig).await;
            })*
        }
    };
}

/// What every bus has to do.
macro_rules! contract {
    ($adapter:ident, $rig:expr) => {
        tests! {
            $adapter, $rig,
            pubsub::a_message_reaches_whose_pattern_matches,
            pubsub::messages_of_a_publisher_keep_their_order,
            pubsub::a_subscription_is_in_place_when_it_returns,
            pubsub::a_queue_group_shares_messages,
            pubsub::a_slow_subscriber_loses_messages_and_knows_how_many,
            pubsub::a_slow_subscriber_is_bounded_in_bytes_too,
            pubsub::bad_subjects_and_sizes_are_refused,
            pubsub::the_largest_message_passes,
            requests::a_request_is_answered,
            requests::many_requests_at_once_get_their_own_answers,
            requests::a_request_that_nobody_hears_fails_at_once,
            requests::a_request_that_nobody_answers_times_out,
            requests::only_one_of_a_queue_group_answers,
            requests::a_dropped_subscription_is_no_responder,
            requests::a_late_answer_does_no_harm,
            outage::an_outage_is_seen_and_survived,
            outage::a_subscription_made_in_an_outage_works_after_it,
            outage::a_request_in_flight_fails_with_the_outage,
        }
    };
}

contract!(memory, MemoryRig::new());
contract!(nats, NatsRig::new());
contract!(nats_cluster, ClusterRig::start(Make { servers: 3, ..Make::default() }).await);
contract!(
    nats_encrypted_with_nkeys,
    ClusterRig::start(Make { servers: 1, secure: true, ..Make::default() }).await
);
contract!(
    newer_nats_cluster_encrypted_with_nkeys,
    ClusterRig::start(Make { servers: 3, secure: true, newer: true }).await
);
