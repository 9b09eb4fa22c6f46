//! What every bus has to do, run for the in-memory one and for a real NATS server.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod nats_only;
mod outage;
mod pubsub;
mod requests;
mod rig;

use rig::{MemoryRig, NatsRig};

/// Makes one test for each case and adapter.
macro_rules! contract {
    ($($module:ident :: $case:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case(&mut crate::MemoryRig::new()).await;
            })*
        }
        mod nats {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                crate::$module::$case(&mut crate::NatsRig::new()).await;
            })*
        }
    };
}

contract! {
    pubsub::a_message_reaches_whose_pattern_matches,
    pubsub::messages_of_a_publisher_keep_their_order,
    pubsub::a_subscription_is_in_place_when_it_returns,
    pubsub::a_queue_group_shares_messages,
    pubsub::a_slow_subscriber_loses_messages_and_knows_how_many,
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
