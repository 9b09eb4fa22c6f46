//! How an endpoint is chosen: balancers, spill, panic, ejection, retries, slow start, sticky sessions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "test code"
)]

mod balancers;
mod ejection;
mod foreign;
mod nodes;
mod refused;
mod staying;
mod support;
mod tiers;
