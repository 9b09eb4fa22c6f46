//! Blocks of addresses in CIDR form, and who is behind the proxies in them.

use std::net::{IpAddr, SocketAddr};

/// An address, or all addresses that share a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NetBlock {
    address: IpAddr,
    bits: u32,
}

/// The text is neither an address nor `address/bits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address or a CIDR block")]
pub struct NetBlockError;

impl NetBlock {
    /// Whether the address is inside. IPv4 addresses mapped into IPv6 count as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(block), IpAddr::V4(address)) => {
                same_prefix(u128::from(block.to_bits()) << 96, u128::from(address.to_bits()) << 96, self.bits)
            }
            (IpAddr::V6(block), IpAddr::V6(address)) => {
                same_prefix(block.to_bits(), address.to_bits(), self.bits)
            }
            _ => false,
        }
    }
}

fn same_prefix(a: u128, b: u128, bits: u32) -> bool {
    bits == 0 || (a ^ b).checked_shr(128 - bits).unwrap_or(0) == 0
}

impl std::str::FromStr for NetBlock {
    type Err = NetBlockError;
    fn from_str(text: &str) -> Result<Self, NetBlockError> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
        let address: IpAddr = address.parse().map_err(|_| NetBlockError)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |b| b.parse().map_err(|_| NetBlockError))?;
        if bits > most { Err(NetBlockError) } else { Ok(Self { address, bits }) }
    }
}

/// Who a request really comes from: the address furthest to the left in `X-Forwarded-For` that only trusted proxies vouch for.
/// From the right, each address was written by the hop to the right of it, and the first that is not trusted itself is the
/// client. What stands further to the left is the client's own word. `values` are the header's, the last one first.
pub fn client_behind<'a>(
    peer: IpAddr,
    values: impl Iterator<Item = &'a [u8]>,
    trusts: impl Fn(IpAddr) -> bool,
) -> IpAddr {
    let mut client = peer.to_canonical();
    for hop in values.flat_map(|value| value.rsplit(|&b| b == b',')) {
        if !trusts(client) {
            return client;
        }
        let Some(address) = parse_hop(hop.trim_ascii()) else { return client };
        client = address;
    }
    client
}

/// An address, perhaps with a port.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse().ok().or_else(|| text.parse().ok().map(|with_port: SocketAddr| with_port.ip()));
    address.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_hold_what_shares_their_prefix() {
        for (block, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.1"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("0.0.0.0/0", "9.9.9.9", "::1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
        ] {
            let block: NetBlock = block.parse().unwrap();
            assert!(block.contains(inside.parse().unwrap()));
            assert!(!block.contains(outside.parse().unwrap()));
        }
        assert!("10.0.0.0/8".parse::<NetBlock>().unwrap().contains("::ffff:10.1.1.1".parse().unwrap()));
        for bad in ["", "x", "10.0.0.0/33", "10.0.0.0/-1", "::/129"] {
            assert!(bad.parse::<NetBlock>().is_err(), "{bad}");
        }
    }

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
            assert_eq!(parse_hop(hop.as_bytes()), address.map(|text| text.parse().unwrap()), "{hop}");
        }
    }
    #[test]
    fn the_client_is_whom_only_trusted_proxies_vouch_for() {
        let trusted: NetBlock = "10.0.0.0/8".parse().unwrap();
        for (peer, values, client) in [
            ("9.9.9.9", &["6.6.6.6"][..], "9.9.9.9"),
            ("10.0.0.1", &["6.6.6.6, 9.9.9.9, 10.1.2.3"], "9.9.9.9"),
            ("10.0.0.1", &["6.6.6.6, 9.9.9.9", "10.1.2.3"], "9.9.9.9"),
            ("10.0.0.1", &["9.9.9.9, nonsense"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("::ffff:10.0.0.1", &["[2001:db8::1]:80"], "2001:db8::1"),
            ("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
            ("10.0.0.1", &[], "10.0.0.1"),
        ] {
            let values = values.iter().rev().map(|value| value.as_bytes());
            let found = client_behind(peer.parse().unwrap(), values, |address| trusted.contains(address));
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer}");
        }
    }
}
