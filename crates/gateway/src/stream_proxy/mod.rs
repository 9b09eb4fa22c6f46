//! Connections and datagrams that are passed on as they are: stream routes.
//!
//! accept → (TLS passed through: read the server name) → route → gate (plugins) → endpoint → connect, again elsewhere if that fails
//! → copy both ways until both ends are done, or silent for too long.
//!
//! Invariants: a session holds its place in limits and its count in flight as guards, given back on every end; each direction holds
//! at most one piece that could not be written yet, and nothing while it is silent; what a client does is never an endpoint's
//! failure; sessions of UDP are bounded in number and in idle time.

pub(crate) mod accept;
mod choose;
mod gate;
mod pump;
pub(crate) mod routes;
mod session;
pub(crate) mod sniff;
mod tcp;
#[cfg(test)]
mod tests;
pub(crate) mod udp;

pub(crate) use routes::Streams;
