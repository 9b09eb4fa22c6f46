//! Who listens on a port, asked of the kernel by `sock_diag(7)`: one look-up in its table of listeners, some microseconds
//! however many sockets there are. `/proc/net/tcp` lists every connection of the machine, the long closed ones too.

use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

/// A listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    /// Its number, as in the links of `/proc/<pid>/fd`.
    pub(crate) inode: u64,
    /// The user that made it.
    pub(crate) user: u32,
}

/// A line to the kernel.
pub(crate) struct Listeners(OwnedFd);

// From `linux/netlink.h`, `linux/sock_diag.h`, `linux/inet_diag.h`.
const HEADER: usize = 16;
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const ERROR: u16 = 2;
const NO_COOKIE: [u8; 8] = [0xff; 8];
const TCP: u8 = 6;
/// `TCP_LISTEN`.
const LISTEN: u8 = 10;

impl Listeners {
    /// Opens it. Fails on kernels that have no such diagnosis, and where it is forbidden.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let line = socket(AddressFamily::Netlink, SockType::Raw, flags, SockProtocol::NetlinkSockDiag)?;
        Ok(Self(line))
    }

    /// The socket that a connection to `at` would reach, if there is one. Does not block: the kernel has answered when
    /// the question is sent.
    pub(crate) fn find(&self, at: SocketAddr) -> io::Result<Option<Listener>> {
        send(self.0.as_raw_fd(), &question(at), MsgFlags::empty())?;
        let mut answer = [0; 512];
        let length = recv(self.0.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
        read(answer.get(..length).unwrap_or_default())
    }
}

/// A `nlmsghdr` and an `inet_diag_req_v2` for exactly one socket.
fn question(at: SocketAddr) -> Vec<u8> {
    let (family, mut address) = (if at.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }, [0; 16]);
    match at.ip() {
        IpAddr::V4(ip) => address.iter_mut().zip(ip.octets()).for_each(|(to, from)| *to = from),
        IpAddr::V6(ip) => address = ip.octets(),
    }
    let mut body = vec![u8::try_from(family).unwrap_or(0), TCP, 0, 0];
    body.extend((1_u32 << LISTEN).to_ne_bytes());
    body.extend(at.port().to_be_bytes());
    body.extend([0; 2]);
    body.extend(address);
    body.extend([0; 16 + 4]);
    body.extend(NO_COOKIE);
    let mut message = Vec::with_capacity(HEADER + body.len());
    message.extend(u32::try_from(HEADER + body.len()).unwrap_or(0).to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

/// An `inet_diag_msg`, or an error: that there is none is one too.
fn read(answer: &[u8]) -> io::Result<Option<Listener>> {
    let word = |at: usize| Some(u32::from_ne_bytes(answer.get(at..at + 4)?.try_into().ok()?));
    let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let kind = u16::from_ne_bytes(answer.get(4..6).and_then(|b| b.try_into().ok()).ok_or_else(short)?);
    match kind {
        ERROR => {
            let error = word(HEADER).ok_or_else(short)?.cast_signed().wrapping_neg();
            if error == Errno::ENOENT as i32 { Ok(None) } else { Err(io::Error::from_raw_os_error(error)) }
        }
        BY_FAMILY => {
            let state = *answer.get(HEADER + 1).ok_or_else(short)?;
            let user = word(HEADER + 64).ok_or_else(short)?;
            let inode = u64::from(word(HEADER + 68).ok_or_else(short)?);
            Ok((state == LISTEN).then_some(Listener { inode, user }))
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::linux::fs::MetadataExt;

    /// The listeners here are of this process.
    fn inode(listener: &TcpListener) -> u64 {
        std::fs::metadata(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap().st_ino()
    }

    #[test]
    fn a_listener_is_found_wherever_it_is_bound_and_nothing_else_is() {
        let listeners = Listeners::open().unwrap();
        for (bound, asked) in [
            ("127.0.0.1", "127.0.0.1"),
            ("0.0.0.0", "127.0.0.1"),
            ("[::1]", "[::1]"),
            ("[::]", "[::1]"),
            ("[::]", "127.0.0.1"),
        ] {
            // Some machines have no IPv6.
            let Ok(listener) = TcpListener::bind(format!("{bound}:0")) else { continue };
            let port = listener.local_addr().unwrap().port();
            let at: SocketAddr = format!("{asked}:{port}").parse().unwrap();
            // A connection on the same port is not what is asked for.
            let connection = TcpStream::connect(at).unwrap();
            let me = nix::unistd::geteuid().as_raw();
            let wanted = Listener { inode: inode(&listener), user: me };
            assert_eq!(listeners.find(at).unwrap(), Some(wanted), "{bound} asked by {asked}");
            drop(listener);
            assert_ne!(listeners.find(at).unwrap(), Some(wanted), "{bound} asked by {asked}, closed");
            drop(connection);
        }
        let other = TcpListener::bind("127.0.0.2:0").unwrap();
        let at = SocketAddr::new("127.0.0.1".parse().unwrap(), other.local_addr().unwrap().port());
        let found = listeners.find(at).unwrap().map(|listener| listener.inode);
        assert_ne!(found, Some(inode(&other)), "listens on another address");
    }

    #[test]
    fn short_and_odd_answers_are_errors() {
        for length in 0..HEADER + 72 {
            let mut answer = vec![0; length];
            if let Some(kind) = answer.get_mut(4..6) {
                kind.copy_from_slice(&BY_FAMILY.to_ne_bytes());
            }
            assert!(read(&answer).is_err(), "{length} bytes");
        }
        assert!(read(&[0; 128]).is_err());
    }
}
