//! Blocks of addresses in CIDR form.

use std::net::IpAddr;

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
}
