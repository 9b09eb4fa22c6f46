//! A whole manager on a memory bus and SQLite, with fake cells and gateways that speak the real messages.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod cells;
mod faults;
#[allow(dead_code, unused_imports, reason = "each test binary uses a part")]
mod fleet;
mod gateways;
mod rollout;
