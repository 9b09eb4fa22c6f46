//! The real binary with real apps, as a user would run it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stderr,
    unreachable_pub,
    reason = "test code"
)]

mod apps;
mod client;
mod load;
mod platform;
mod streams;

mod bus_faults;
mod cells;
mod clocks;
mod cluster;
mod deploy;
mod deploys;
mod documents;
mod failures;
mod https;
mod lanes;
mod lifecycle;
mod managers;
mod object_storage;
mod people;
mod pushes;
mod real_world;
mod run_cluster;
mod sealed;
mod secrets;
mod startup;
mod store_faults;
mod store_gone;
mod stream_routes;
mod takeovers;
mod upgrades;
