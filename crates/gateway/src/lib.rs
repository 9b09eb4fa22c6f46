//! The gateway: accepts client traffic, chooses an instance, proxies.
//!
//! Invariants: workers share nothing on the request path but the pointer to the routing table and atomics; a request in
//! flight is counted from its choice to its end, whatever end that is; a request's bytes are judged by the framing guard
//! before any parser sees them; nothing of what managers, cells or the bus do or fail to do stops traffic.
//!
//! Must not: decide about lanes, tiers or endpoints (that is `towpath-route`), keep state that a restart would miss beyond
//! its data directory, depend on another service.

mod access_log;
mod buffer;
mod cache;
mod client;
mod clock;
mod config;
mod control;
mod deadline;
mod descriptors;
mod files;
#[cfg(fuzzing)]
pub mod fuzzing;
mod gateway;
mod hand_over;
mod listeners;
mod local_exec;
mod metrics;
mod plugins;
mod request;
mod resources;
mod settings;
mod sticky;
mod stream_proxy;
mod table;
mod tls;
mod upstream;
mod vital;
mod worker;
mod worker_thread;

pub use config::{
    AccessLogConfig, CacheConfig, DnsConfig, GatewayConfig, LimitsConfig, ProxyProtocolConfig, StreamConfig,
    TimeoutsConfig, TlsConfig, UpstreamPoolConfig,
};
pub use gateway::{Gateway, GatewayError};
pub use hand_over::{TakeOver, TakeOverError};
pub use resources::file::{Loaded, ResourceSource};
pub use settings::{
    ConfigErrors, FieldError, GatewaySettings, Kept, LimitSettings, ProxyProtocolSettings, Resources,
    StreamSettings, TimeoutSettings, TlsSettings, UpstreamPoolSettings,
};
pub use sticky::check_shared_key;
pub use tls::{TlsError, certificate_notes};
pub use towpath_framing as framing;
pub use towpath_types::{NetBlock, NetBlockError};
