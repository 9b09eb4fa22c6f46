//! Whether a request may be made on a connection, where certificates of clients are asked for.
//!
//! A connection was let in for the name of its handshake; its requests name hosts by themselves. So each request is held
//! against the rule of the host that it asks for, by the newest index, and against the rule that the connection came in by.

use super::handshake::Session;
use towpath_route::{host_forms, matched_form};

/// Why a request may not be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The host asks its clients for something that this connection was not asked for: another one is needed (421).
    Misdirected,
    /// This path needs a certificate, and none was shown (400).
    NoCertificate,
}

/// Judges a request for a host and a path.
pub(crate) fn judge(session: &Session, host: &[u8], path: &[u8]) -> Result<(), Denied> {
    let names = session.listener.names();
    let own = session.served.client.as_ref();
    if own.is_none() && !names.asks_clients {
        return Ok(());
    }
    let path = || matched_form(path);
    let skips = |rule: &super::client_auth::ClientRule| path().is_some_and(|path| rule.skips(&path));
    if let Some(own) = own
        && !session.verified
        && !skips(own)
    {
        return Err(Denied::NoCertificate);
    }
    for host in host_forms(host).into_iter().flatten() {
        let Some(rule) = names.find(&host).and_then(|served| served.client.as_ref()) else { continue };
        if own.is_none_or(|own| own.trust != rule.trust) {
            return Err(Denied::Misdirected);
        }
        if !session.verified && !skips(rule) {
            return Err(Denied::NoCertificate);
        }
    }
    Ok(())
}
