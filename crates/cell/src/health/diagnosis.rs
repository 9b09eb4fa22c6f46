//! Where an app really listens: so that another process on its port is not taken for it, and so that a person is told what is
//! wrong when it listens somewhere else.

use super::listener::Listeners;
use crate::procfs;
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// So often in a row a listener must be seen to be another's.
const LOOKS: u32 = 3;

/// What is known of the listener on an instance's port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Listening {
    /// The instance itself, or it cannot be told.
    Own,
    /// Another process of the machine.
    Foreign,
}

/// A listening socket of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Socket {
    at: SocketAddr,
    inode: u64,
}

/// Whether the listener at `at` belongs to the instance below `shim`. Blocks.
pub(crate) fn listening(shim: u32, at: SocketAddr) -> Listening {
    let exact = Listeners::open().ok();
    // An app may close a socket and open another between a look at the listener and one at its own sockets.
    for _ in 0..LOOKS {
        let sockets: Vec<u64> = match exact.as_ref().map(|listeners| listeners.find(at)) {
            Some(Ok(found)) => found.iter().map(|listener| listener.inode).collect(),
            _ => {
                let on_port = |socket: &Socket| socket.at.port() == at.port();
                listeners().into_iter().filter(on_port).map(|socket| socket.inode).collect()
            }
        };
        match own_inodes(shim) {
            Some(own) if !sockets.is_empty() && !sockets.iter().any(|inode| own.contains(inode)) => {}
            _ => return Listening::Own,
        }
    }
    Listening::Foreign
}

/// Why nothing answers on `wanted`, as far as can be seen from the instance's sockets: a predicate. Blocks.
pub(crate) fn explain_silence(shim: u32, wanted: SocketAddr) -> String {
    find_elsewhere(shim, wanted).unwrap_or_else(|| format!("does not listen on $PORT ({})", wanted.port()))
}

/// Where the instance listens, if that is not where it must: a predicate. Blocks.
pub(crate) fn find_elsewhere(shim: u32, wanted: SocketAddr) -> Option<String> {
    let own = own_inodes(shim).filter(|own| !own.is_empty())?;
    let sockets =
        listeners().into_iter().filter(|socket| own.contains(&socket.inode)).map(|socket| socket.at);
    explain_elsewhere(&sockets.collect::<Vec<_>>(), wanted)
}

fn explain_elsewhere(sockets: &[SocketAddr], wanted: SocketAddr) -> Option<String> {
    let port = wanted.port();
    if let Some(other) = sockets.iter().find(|at| at.port() == port) {
        return Some(format!("listens on {other} only, but must listen on {wanted} or on all addresses"));
    }
    let other = sockets.first()?.port();
    Some(format!("listens on port {other}, but must listen on $PORT ({port})"))
}

/// Inodes of the sockets that the tree below `shim` holds. `None`: they cannot be read.
fn own_inodes(shim: u32) -> Option<HashSet<u64>> {
    let mut inodes = HashSet::new();
    let mut was_readable = false;
    for pid in procfs::descendants(shim) {
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
        was_readable = true;
        let socket = |entry: std::fs::DirEntry| {
            let link = std::fs::read_link(entry.path()).ok()?;
            link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok()
        };
        inodes.extend(entries.flatten().filter_map(socket));
    }
    was_readable.then_some(inodes)
}

fn listeners() -> Vec<Socket> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (read("/proc/net/tcp"), read("/proc/net/tcp6"));
    v4.lines().chain(v6.lines()).filter_map(parse_listener).collect()
}

/// A line of `/proc/net/tcp` or `tcp6`, if it is a listening socket.
fn parse_listener(line: &str) -> Option<Socket> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    if *fields.get(3)? != LISTEN {
        return None;
    }
    let (address, port) = fields.get(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Socket { at: SocketAddr::new(parse_address(address)?, port), inode: fields.get(9)?.parse().ok()? })
}

/// The kernel prints each 32-bit word of the address in the machine's byte order.
fn parse_address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(hex.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes());
    match hex.len() {
        8 => Some(IpAddr::V4(Ipv4Addr::from(word(0)?))),
        32 => {
            let bytes: Vec<u8> = (0..4).filter_map(word).flatten().collect();
            Some(IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn listeners_are_parsed() {
        let line =
            "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000 0 4242 1 x";
        let socket = parse_listener(line).unwrap();
        assert_eq!(socket, Socket { at: "127.0.0.1:8080".parse().unwrap(), inode: 4242 });
        let v6 = "   0: 00000000000000000000000001000000:1F90 0:0 0A 0:0 0:0 0 0 0 7 1 x";
        assert_eq!(parse_listener(v6).unwrap().at, "[::1]:8080".parse().unwrap());
        assert_eq!(parse_listener(&line.replace(" 0A ", " 01 ")), None);
    }

    #[test]
    fn a_listener_outside_the_tree_is_foreign() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        assert!(listeners().iter().any(|socket| socket.at == at));
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        // The tree "below" this process is the child, which does not hold the listener (it is close-on-exec).
        let found = listening(std::process::id(), at);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, Listening::Foreign);
    }

    #[test]
    fn people_are_told_where_it_listens_instead() {
        let wanted = "10.0.0.1:20001".parse().unwrap();
        let text = |sockets: &[&str]| {
            explain_elsewhere(&sockets.iter().map(|s| s.parse().unwrap()).collect::<Vec<_>>(), wanted)
        };
        assert_eq!(text(&[]), None);
        assert_eq!(
            text(&["0.0.0.0:3000"]).unwrap(),
            "listens on port 3000, but must listen on $PORT (20001)"
        );
        assert!(text(&["127.0.0.1:20001"]).unwrap().starts_with("listens on 127.0.0.1:20001 only"));
    }
}
