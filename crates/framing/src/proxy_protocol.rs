//! The PROXY protocol, versions 1 and 2: who the client of a proxy in front is, said before the connection's first byte.
//!
//! Written after HAProxy's `doc/proxy-protocol.txt`. Strict, since whoever sends it has been told to be believed: what is not to
//! the letter is malformed. Extensions of version 2 (TLVs) are passed over.

use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Begins every header of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Begins every header of version 1.
const WORD: &[u8] = b"PROXY ";
/// Longest header of version 1, line end included.
const LONGEST_V1: usize = 107;
/// Longest rest of version 2 that is taken: addresses, and some extensions.
const LONGEST_V2: usize = 4096;

/// Client, and the address that it came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Addresses {
    /// The client.
    pub source: SocketAddr,
    /// Where it came to.
    pub destination: SocketAddr,
}

/// A whole header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whom it speaks for; nothing where the proxy speaks for itself (checks of its own), or cannot say.
    pub addresses: Option<Addresses>,
    /// Its length in bytes.
    pub len: usize,
}

/// A version to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

/// It is no header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the PROXY protocol's header is malformed")
    }
}

impl std::error::Error for Malformed {}

/// The header that `bytes` begin with; nothing as long as it is not whole.
pub fn parse(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let same = |with: &[u8]| bytes.iter().zip(with).all(|(byte, wanted)| byte == wanted);
    if same(SIGNATURE) {
        parse_v2(bytes)
    } else if same(WORD) {
        parse_v1(bytes)
    } else {
        Err(Malformed)
    }
}

fn parse_v1(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some(end) = bytes.iter().take(LONGEST_V1).position(|byte| *byte == b'\n') else {
        return if bytes.len() < LONGEST_V1 { Ok(None) } else { Err(Malformed) };
    };
    let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r")).ok_or(Malformed)?;
    let line = line.strip_prefix(WORD).and_then(|rest| std::str::from_utf8(rest).ok()).ok_or(Malformed)?;
    let len = end + 1;
    // What follows `UNKNOWN` is not looked at.
    if line == "UNKNOWN" || line.starts_with("UNKNOWN ") {
        return Ok(Some(Header { addresses: None, len }));
    }
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or(Malformed);
    let family = word()?;
    let ips = [word()?, word()?].map(|text| match family {
        "TCP4" => text.parse().map(IpAddr::V4).map_err(|_| Malformed),
        "TCP6" => text.parse().map(IpAddr::V6).map_err(|_| Malformed),
        _ => Err(Malformed),
    });
    let ports = [word()?, word()?].map(port);
    let ([source, destination], [from, to]) = (ips, ports);
    if word().is_ok() {
        return Err(Malformed);
    }
    let addresses = Addresses {
        source: SocketAddr::new(source?, from?),
        destination: SocketAddr::new(destination?, to?),
    };
    Ok(Some(Header { addresses: Some(addresses), len }))
}

/// Decimal without leading zeros.
fn port(text: &str) -> Result<u16, Malformed> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| plain).ok_or(Malformed)
}

fn parse_v2(bytes: &[u8]) -> Result<Option<Header>, Malformed> {
    let Some((&[version, family, high, low], rest)) =
        bytes.get(SIGNATURE.len()..).and_then(|rest| rest.split_first_chunk::<4>())
    else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let speaks_for_itself = match version {
        0x20 => true,
        0x21 => false,
        _ => return Err(Malformed),
    };
    if length > LONGEST_V2 {
        return Err(Malformed);
    }
    let Some(block) = rest.get(..length) else { return Ok(None) };
    let addresses = match family {
        _ if speaks_for_itself => None,
        0x11 => Some(read_addresses::<4>(block)?),
        0x21 => Some(read_addresses::<16>(block)?),
        // Unix sockets have no addresses that say anything here, and "unspecified" says so itself.
        0x00 | 0x31 => None,
        _ => return Err(Malformed),
    };
    Ok(Some(Header { addresses, len: SIGNATURE.len() + 4 + length }))
}

fn read_addresses<const N: usize>(block: &[u8]) -> Result<Addresses, Malformed> {
    let (source, rest) = block.split_first_chunk::<N>().ok_or(Malformed)?;
    let (destination, rest) = rest.split_first_chunk::<N>().ok_or(Malformed)?;
    let &[a, b, c, d, ..] = rest else { return Err(Malformed) };
    let (source, destination) = (address(source), address(destination));
    Ok(Addresses {
        source: SocketAddr::new(source.ok_or(Malformed)?, u16::from_be_bytes([a, b])),
        destination: SocketAddr::new(destination.ok_or(Malformed)?, u16::from_be_bytes([c, d])),
    })
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(|four| Ipv4Addr::from(four).into()),
        _ => <[u8; 16]>::try_from(bytes).ok().map(|sixteen| Ipv6Addr::from(sixteen).into()),
    }
}

/// Writes a header for a client; without addresses, one that says that the writer speaks for itself.
pub fn write(out: &mut Vec<u8>, version: Version, addresses: Option<Addresses>) {
    let same = addresses.map(|addresses| {
        let (source, destination) =
            (addresses.source.ip().to_canonical(), addresses.destination.ip().to_canonical());
        let (source, destination) = match (source, destination) {
            (IpAddr::V4(source), IpAddr::V6(_)) => (source.to_ipv6_mapped().into(), destination),
            (IpAddr::V6(_), IpAddr::V4(destination)) => (source, destination.to_ipv6_mapped().into()),
            same => same,
        };
        (source, destination, addresses.source.port(), addresses.destination.port())
    });
    match version {
        Version::V1 => {
            // Writing to memory does not fail.
            let _ = match same {
                None => out.write_all(b"PROXY UNKNOWN\r\n"),
                Some((source, destination, from, to)) => {
                    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
                    write!(out, "PROXY {family} {source} {destination} {from} {to}\r\n")
                }
            };
        }
        Version::V2 => write_v2(out, same),
    }
}

fn write_v2(out: &mut Vec<u8>, addresses: Option<(IpAddr, IpAddr, u16, u16)>) {
    out.extend_from_slice(SIGNATURE);
    let Some((source, destination, from, to)) = addresses else {
        return out.extend_from_slice(&[0x20, 0, 0, 0]);
    };
    out.extend_from_slice(if source.is_ipv4() { &[0x21, 0x11, 0, 12] } else { &[0x21, 0x21, 0, 36] });
    for ip in [source, destination] {
        match ip {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&from.to_be_bytes());
    out.extend_from_slice(&to.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn v2(version: u8, family: u8, block: &[u8]) -> Vec<u8> {
        let length = u16::try_from(block.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[version, family], &length, block].concat()
    }

    fn found(bytes: &[u8]) -> Option<(String, String)> {
        let header = parse(bytes).unwrap().unwrap();
        header.addresses.map(|one| (one.source.to_string(), one.destination.to_string()))
    }

    #[test]
    fn headers_to_the_letter_are_read() {
        let pair = |a: &str, b: &str| Some((a.to_owned(), b.to_owned()));
        let four = pair("192.0.2.1:56324", "10.0.0.2:443");
        assert_eq!(found(b"PROXY TCP4 192.0.2.1 10.0.0.2 56324 443\r\nGET /"), four);
        assert_eq!(found(b"PROXY TCP6 2001:db8::1 ::1 65535 0\r\n"), pair("[2001:db8::1]:65535", "[::1]:0"));
        assert_eq!(found(b"PROXY UNKNOWN\r\n"), None);
        assert_eq!(found(b"PROXY UNKNOWN whatever this is\r\n"), None);
        let block = [192, 0, 2, 1, 10, 0, 0, 2, 0xdc, 0x04, 0x01, 0xbb];
        assert_eq!(found(&v2(0x21, 0x11, &block)), four);
        assert_eq!(found(&v2(0x21, 0x11, &[&block[..], &[4, 0, 1, 0]].concat())), four, "extensions follow");
        assert_eq!(found(&v2(0x20, 0x11, &block)), None, "it speaks for itself");
        assert_eq!(found(&v2(0x21, 0x00, &[])), None);
        assert_eq!(found(&v2(0x21, 0x31, &[0; 216])), None);
    }

    #[test]
    fn everything_else_is_malformed() {
        let long = [b"PROXY UNKNOWN ".as_slice(), &[b'x'; 100], b"\r\n"].concat();
        for bytes in [
            b"GET / HTTP/1.1\r\n".as_slice(),
            b"proxy TCP4 1.1.1.1 1.1.1.2 1 2\r\n",
            b"PROXY  TCP4 1.1.1.1 1.1.1.2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1 1.1.1.2 1 2\n",
            b"PROXY TCP4 1.1.1.1 1.1.1.2 1\r\n",
            b"PROXY TCP4 1.1.1.1 1.1.1.2 1 2 3\r\n",
            b"PROXY TCP4 1.1.1.1 1.1.1.2 01 2\r\n",
            b"PROXY TCP4 1.1.1.1 1.1.1.2 +1 2\r\n",
            b"PROXY TCP4 1.1.1.1 1.1.1.2 1 65536\r\n",
            b"PROXY TCP4 1.1.1.01 1.1.1.2 1 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY TCP6 1.1.1.1 1.1.1.2 1 2\r\n",
            b"PROXY UDP4 1.1.1.1 1.1.1.2 1 2\r\n",
            b"PROXY UNKNOWNX\r\n",
            &long,
            &v2(0x11, 0x11, &[0; 12]),
            &v2(0x22, 0x11, &[0; 12]),
            &v2(0x21, 0x11, &[0; 11]),
            &v2(0x21, 0x21, &[0; 35]),
            &v2(0x21, 0x12, &[0; 12]),
            &v2(0x21, 0x41, &[0; 12]),
            &v2(0x21, 0x11, &[0; 5000]),
        ] {
            assert_eq!(parse(bytes), Err(Malformed), "{:?}", String::from_utf8_lossy(bytes));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_in_pieces_too(
            source in any::<(IpAddr, u16)>(), destination in any::<(IpAddr, u16)>(), two in any::<bool>(), rest in any::<Vec<u8>>()
        ) {
            let addresses = Addresses { source: source.into(), destination: destination.into() };
            let mut bytes = Vec::new();
            write(&mut bytes, if two { Version::V2 } else { Version::V1 }, Some(addresses));
            let len = bytes.len();
            for cut in 0..len {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            bytes.extend(rest);
            let header = parse(&bytes).unwrap().unwrap();
            prop_assert_eq!(header.len, len);
            let read = header.addresses.unwrap();
            let plain = |address: SocketAddr| (address.ip().to_canonical(), address.port());
            prop_assert_eq!(plain(read.source), plain(addresses.source));
            prop_assert_eq!(plain(read.destination), plain(addresses.destination));
        }

        #[test]
        fn no_bytes_are_too_odd(bytes in any::<Vec<u8>>()) {
            if let Ok(Some(header)) = parse(&bytes) {
                prop_assert!(header.len <= bytes.len());
            }
        }
    }
}
