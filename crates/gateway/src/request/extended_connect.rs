//! Extended CONNECT (RFC 8441): a WebSocket over one stream of an HTTP/2 connection. Instances are asked in the way of
//! HTTP/1.1, by an upgrade; their 101 becomes a 200, and the stream the client's side of the tunnel.

use super::ids;
use super::record::Record;
use crate::upstream::AttemptFault;
use crate::worker::Worker;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Extensions, Method, StatusCode};
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;

/// The protocol that is translated. Of others it is not known what their handshake is in HTTP/1.1.
const WEBSOCKET: &str = "websocket";

/// What a request that asks for a tunnel needs beside what every request has.
pub(crate) struct Connect(OnUpgrade);

/// Turns an extended CONNECT into the upgrade request that an HTTP/1.1 client would have sent; `None` = it is none, or
/// for a protocol that is not translated, and is refused as CONNECT is.
pub(crate) fn translate(
    worker: &Worker,
    method: &mut Method,
    headers: &mut HeaderMap,
    extensions: &mut Extensions,
) -> Option<Connect> {
    if *method != Method::CONNECT || extensions.get::<Protocol>()?.as_str() != WEBSOCKET {
        return None;
    }
    let upgrade = extensions.remove::<OnUpgrade>()?;
    *method = Method::GET;
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static(WEBSOCKET));
    // HTTP/2 has no use for it (RFC 8441, 5.1), the instance insists on it.
    headers.insert(header::SEC_WEBSOCKET_KEY, ids::new_websocket_key(worker));
    Some(Connect(upgrade))
}

/// To the client, success means that there is a tunnel: an instance may refuse one, but not succeed without.
pub(crate) fn judge(record: &Record, status: StatusCode) -> Result<(), AttemptFault> {
    if record.connect.is_some() && status.is_success() {
        return Err(AttemptFault::Malformed("it answers the wish for a tunnel as if there had been none"));
    }
    Ok(())
}

impl Connect {
    /// The client's stream, once the response head is on its way; `None` = the client went away before.
    pub(crate) async fn stream(self) -> Option<hyper::upgrade::Upgraded> {
        match self.0.await {
            Ok(stream) => Some(stream),
            Err(error) => {
                tracing::trace!(%error, "a client went away before its tunnel was there");
                None
            }
        }
    }
}
