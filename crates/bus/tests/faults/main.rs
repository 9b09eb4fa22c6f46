//! What the bus does when servers, connections and messages fail.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod cluster;
mod fake_server;
mod loss;
mod service;
mod storm;

use std::time::Duration;
use towpath_bus::{Bus, BusState};

/// Long enough for anything that does happen.
const SOON: Duration = Duration::from_secs(60);

/// Waits for a state.
async fn until(bus: &dyn Bus, state: BusState) {
    let mut states = bus.state();
    tokio::time::timeout(SOON, states.wait_for(|now| *now == state))
        .await
        .unwrap_or_else(|_| panic!("the bus is not {state:?} in time"))
        .unwrap();
}
