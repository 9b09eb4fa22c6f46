//! For tests only, never shipped: real servers on free ports in directories of their own, apps that behave as told,
//! waiting with a deadline, a clock that is set by hand.
//!
//! Invariants: whatever is started here ends with its guard, and at the latest with the test process, even if that is
//! killed. A missing server is a failed test that says which package to install; nothing is skipped.
//!
//! Must not: be a dependency of anything but tests and benches.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here has to fail the test"
)]

pub mod app;
pub mod clock;
pub mod nats;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod standby;
pub mod tls;
pub mod wait;

pub use app::HttpApp;
pub use clock::ManualClock;
pub use nats::{NatsCluster, NatsOptions, NatsServer};
pub use ports::free_port;
pub use postgres::{Postgres, PostgresOptions};
pub use process::Process;
pub use proxy::{Fault, TcpProxy};
pub use tempfile::TempDir;
pub use wait::{poll_until, poll_until_async};

/// A directory that is removed with its guard.
pub fn temp_dir() -> TempDir {
    tempfile::Builder::new().prefix("towpath-test-").tempdir().expect("a temporary directory")
}
