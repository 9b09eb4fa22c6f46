//! Sources staged by a whole cell, with the ecosystems' own tools, and what comes out of it run.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    unreachable_pub,
    clippy::indexing_slicing,
    reason = "test code"
)]

#[path = "../cell/support.rs"]
mod bench;
mod failures;
mod hostility;
mod installers;
mod ready;
mod sources;
mod support;
