//! Who a request really comes from, where proxies stand in front of the gateway.

use crate::client::conn::Conn;
use http::HeaderMap;
use std::net::{IpAddr, SocketAddr};

/// The address furthest to the left in `X-Forwarded-For` that only trusted proxies vouch for: from the right, each address
/// was written by the hop to the right of it, and the first that is not trusted itself is the client. What stands further
/// to the left is the client's own word.
pub(crate) fn client(conn: &Conn, headers: &HeaderMap) -> IpAddr {
    let mut client = conn.client();
    for value in headers.get_all("x-forwarded-for").iter().rev() {
        for hop in value.as_bytes().rsplit(|&b| b == b',') {
            let Some(address) = parse(hop.trim_ascii()) else { return client };
            client = address;
            if !conn.worker.trusts(client) {
                return client;
            }
        }
    }
    client
}

/// An address, perhaps with a port.
fn parse(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse().ok().map(|with_port: SocketAddr| with_port.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hops_are_addresses_with_or_without_a_port() {
        for (hop, address) in [
            ("9.9.9.9", Some("9.9.9.9")),
            ("9.9.9.9:80", Some("9.9.9.9")),
            ("2001:db8::1", Some("2001:db8::1")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("[2001:db8::1]", Some("2001:db8::1")),
            ("::ffff:9.9.9.9", Some("9.9.9.9")),
            ("unknown", None),
            ("", None),
        ] {
            assert_eq!(parse(hop.as_bytes()), address.map(|text| text.parse().unwrap()), "{hop}");
        }
    }
}
