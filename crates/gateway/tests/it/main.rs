//! The gateway with real sockets, real apps and an in-memory bus.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unreachable_pub,
    reason = "test code"
)]

mod alone;
mod bodies;
mod control;
mod counts;
mod deaths;
mod dozing;
mod drain;
mod errors;
mod explains;
mod framing;
mod h2;
mod halves;
mod hand_over;
mod heads;
mod known_pains;
mod lanes;
mod limits;
mod names;
mod openid;
mod plugins;
mod plugins_cache;
mod plugins_coding;
mod plugins_logs;
mod plugins_seen;
mod proxies;
mod retries;
mod s3;
mod seen;
mod shared;
mod sticky;
mod streams;
mod support;
mod tls;
mod tls_client;
mod upgrades;
mod upstreams;
mod vital;
