//! What the PostgreSQL store does when its server fails over, is slow or full, is behind PgBouncer, or comes back to many.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod bouncer;
mod failover;
mod full;
#[path = "../contract/rig.rs"]
#[allow(dead_code, reason = "shared with the contract suite, which uses all of it")]
mod rig;
mod slow;
mod storm;
mod writers;
