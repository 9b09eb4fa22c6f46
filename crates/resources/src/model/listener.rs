//! `listeners`: where gateways take connections, beside those of their settings. Ours; APISIX has them in its settings only.

use super::text::Labels;
use crate::{Fault, Id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// An address at which every gateway listens while the resource is there.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Ours: address and port, for example `0.0.0.0:6379` or `[::]:53`.
    #[schemars(length(min = 3, max = 64))]
    pub listen: String,
    /// Ours: what is spoken there.
    pub protocol: ListenerProtocol,
}

/// What is spoken at a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ListenerProtocol {
    /// HTTP/1.1 and HTTP/2, for routes.
    Http,
    /// The same in TLS, with the certificates of `ssls`.
    Https,
    /// TCP, for stream routes.
    Tcp,
    /// TLS with the certificates of `ssls`; what is in it is for stream routes, which see the server name that the client asks for.
    Tls,
    /// TLS that is passed on as it is; stream routes see the server name that the client asks for.
    TlsPassthrough,
    /// UDP, for stream routes.
    Udp,
}

impl Listener {
    /// Where it listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listen.parse().ok().filter(|address: &SocketAddr| address.port() != 0)
    }

    pub(crate) fn check(&self, faults: &mut Vec<Fault>) {
        if self.address().is_none() {
            let message = format!(
                "{:?} is no address with a port: write for example 0.0.0.0:6379 or [::]:53",
                self.listen
            );
            faults.push(Fault::new("listen", message));
        }
    }
}
