//! TLS towards clients: which certificate a name is served with, what its clients have to show, and the handshake.
//!
//! The `ssls` resources are the certificates of the process ([`Certificates`]); each listener ([`TlsListener`]) serves those that
//! its labels choose, from an index of its own behind one pointer: a change builds the new index and swaps it. A handshake
//! reads the client's first message, looks the name up, and goes on with the configuration of that certificate, so client
//! certificates and versions of TLS differ by name. A connection keeps the certificate that it began with, so nothing is
//! dropped when it is replaced; what a request may do is judged by the newest index ([`access`]).

pub(crate) mod access;
mod certificates;
mod client_auth;
mod expiry;
mod handshake;
mod listener;
mod names;
mod own;
mod served;
#[cfg(test)]
mod tests;
mod tickets;

pub(crate) use certificates::Certificates;
pub use expiry::certificate_notes;
pub(crate) use handshake::{Session, Turns, Use};
pub(crate) use listener::TlsListener;
pub use own::TlsError;
pub(crate) use tickets::TicketKeys;
