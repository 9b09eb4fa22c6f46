//! Towards clients: sockets, TLS, the connections of both HTTP versions, tunnels.

pub(crate) mod accept;
pub(crate) mod conn;
pub(crate) mod doze;
pub(crate) mod guarded_io;
pub(crate) mod h1;
pub(crate) mod h2;
pub(crate) mod listen;
pub(crate) mod open_connections;
mod proxied;
pub(crate) mod stream;
pub(crate) mod tunnel;
mod turn_away;
