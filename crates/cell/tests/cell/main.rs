//! A whole cell with real processes, a bus in memory, and a manager that the test plays.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod builds;
mod ending;
mod lifecycle;
mod limits;
mod logs;
mod starting;
mod support;
mod survival;
mod wishes;
