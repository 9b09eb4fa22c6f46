//! `syslog`: what is known of requests goes to a syslog server, each entry in RFC 5424's form.

use super::Settings;
use super::logs::{Batch, Told};
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use super::logs::Metadata;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[schemars(extend("additionalProperties" = false))]
pub struct Config {
    /// Name or address of the server.
    #[schemars(length(min = 1))]
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Only this default is taken: what waits is bounded by entries, for all loggers in the same way.
    #[serde(default = "flush_limit")]
    #[schemars(range(min = 1))]
    pub flush_limit: u64,
    /// Only this default is taken, for the same reason.
    #[serde(default = "drop_limit")]
    pub drop_limit: u64,
    /// Milliseconds for a message.
    #[serde(default = "three_thousand")]
    #[schemars(range(min = 1, max = 3_600_000))]
    pub timeout: u64,
    /// The protocol below.
    #[serde(default)]
    pub sock_type: SockType,
    /// Only this default is taken: a connection is enough.
    #[serde(default = "five")]
    #[schemars(range(min = 5))]
    pub pool_size: u32,
    /// Speak TLS.
    #[serde(default)]
    pub tls: bool,
    /// What is told.
    #[serde(flatten)]
    pub told: Told,
    /// How it is sent.
    #[serde(flatten)]
    pub batch: Batch,
}

/// The protocol below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SockType {
    /// TCP.
    #[default]
    Tcp,
    /// UDP, an entry a datagram.
    Udp,
}

fn flush_limit() -> u64 {
    4096
}

fn drop_limit() -> u64 {
    1_048_576
}

fn three_thousand() -> u64 {
    3000
}

fn five() -> u32 {
    5
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        self.told.check(faults);
        let idle = [
            ("flush_limit", self.flush_limit != flush_limit()),
            ("drop_limit", self.drop_limit != drop_limit()),
            ("pool_size", self.pool_size != five()),
        ];
        for (field, _) in idle.iter().filter(|(_, set)| *set) {
            let why = "does nothing: batch_max_size, inactive_timeout and the metadata's max_pending_entries bound what waits; leave it out";
            faults.push(Fault::new(*field, why));
        }
        if self.tls && self.sock_type == SockType::Udp {
            faults.push(Fault::new("tls", "needs sock_type tcp"));
        }
    }
}
