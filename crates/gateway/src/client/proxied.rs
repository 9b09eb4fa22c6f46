//! Connections that proxies make for clients: their first bytes say for whom (PROXY protocol).

use crate::framing::proxy_protocol::{Addresses, parse};
use std::io;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Most bytes that are looked at once.
const LOOK: usize = 256;

/// Reads the header, and not a byte more: what follows is for whoever speaks TLS or HTTP. Nothing = the proxy speaks for itself.
pub(crate) async fn read(stream: &mut TcpStream) -> io::Result<Option<Addresses>> {
    let mut header = Vec::with_capacity(LOOK);
    loop {
        let known = header.len();
        let mut look = [0; LOOK];
        let seen = stream.peek(&mut look).await?;
        if seen == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        header.extend_from_slice(look.get(..seen).unwrap_or_default());
        let parsed = parse(&header).map_err(io::Error::other)?;
        // All that was seen of a header that is not whole belongs to it.
        let take = parsed.map_or(seen, |parsed| parsed.len - known);
        stream.read_exact(look.get_mut(..take).unwrap_or_default()).await?;
        if let Some(parsed) = parsed {
            return Ok(parsed.addresses);
        }
    }
}
