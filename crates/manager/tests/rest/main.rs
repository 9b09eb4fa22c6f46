//! The REST API of a whole manager on a memory bus and SQLite, with fake cells and gateways that speak the real messages.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

#[path = "../control/fleet/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the tests of the control loops, which need more of it"
)]
mod fleet;

mod access;
mod apisix;
mod audit;
mod builds;
mod changes;
mod client;
mod conditions;
mod envsize;
mod faults;
mod framing;
mod identity;
mod logins;
mod logs;
mod managers;
mod platform;
mod push;
mod quota;
mod repeats;
mod resources;
mod rotations;
mod sealed;
mod sealed_resources;
mod secrets;
mod stager;
mod steps;
mod tokens;
mod uploads;
