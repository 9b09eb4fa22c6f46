//! Hosts in one form: lower case, no port, no final dot, IPv6 as the shortest text in brackets.

use std::io::Write;
use std::net::Ipv6Addr;

/// Room for a host in its one form.
pub(crate) const HOST_MAX: usize = 256;

/// Each byte of a host name in lower case; 0 for what may not be in one.
const LOWER: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let ascii = byte as u8;
        if ascii.is_ascii_alphanumeric() || matches!(ascii, b'-' | b'_' | b'.') {
            #[expect(clippy::indexing_slicing, reason = "the compiler evaluates it, within bounds")]
            {
                table[byte] = ascii.to_ascii_lowercase();
            }
        }
        byte += 1;
    }
    table
};

/// The host in `raw` (a `Host` header or `:authority`) if it is in the one form but for a port: nearly always.
pub(crate) fn plain(raw: &[u8]) -> Option<&[u8]> {
    let (mut len, mut before, mut other) = (0, b'.', false);
    for byte in raw {
        if *byte == b':' {
            break;
        }
        let lower = *LOWER.get(usize::from(*byte))?;
        other |= lower != *byte || (lower == b'.' && before == b'.');
        before = lower;
        len += 1;
    }
    let (host, port) = raw.split_at_checked(len)?;
    let whole = !other && before != b'.' && len <= 253 && is_port(port);
    whole.then_some(host)
}

/// Nothing, or a colon and digits.
fn is_port(text: &[u8]) -> bool {
    match text {
        [] => true,
        [b':', port @ ..] => port.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Brings `raw` into the one form, in `buf`; nothing if it is no host at all.
pub(crate) fn normalize<'b>(raw: &[u8], buf: &'b mut [u8; HOST_MAX]) -> Option<&'b [u8]> {
    if raw.first() == Some(&b'[') { normalize_v6(raw, buf) } else { normalize_name(raw, buf) }
}

fn normalize_name<'b>(raw: &[u8], buf: &'b mut [u8; HOST_MAX]) -> Option<&'b [u8]> {
    let (mut len, mut before) = (0, b'.');
    for (to, byte) in buf.iter_mut().zip(raw).take_while(|(_, byte)| **byte != b':') {
        let lower = *LOWER.get(usize::from(*byte))?;
        if lower == 0 || (lower == b'.' && before == b'.') {
            return None;
        }
        before = lower;
        *to = lower;
        len += 1;
    }
    let port = is_port(raw.get(len..)?);
    let len = if before == b'.' { len.checked_sub(1)? } else { len };
    if !port || len == 0 || len > 253 {
        return None;
    }
    buf.get(..len)
}

fn normalize_v6<'b>(raw: &[u8], buf: &'b mut [u8; HOST_MAX]) -> Option<&'b [u8]> {
    let end = raw.iter().position(|byte| *byte == b']')?;
    if !is_port(raw.get(end + 1..)?) {
        return None;
    }
    let address: Ipv6Addr = std::str::from_utf8(raw.get(1..end)?).ok()?.parse().ok()?;
    let mut rest = buf.as_mut_slice();
    write!(rest, "[{address}]").ok()?;
    let len = HOST_MAX - rest.len();
    buf.get(..len)
}

/// The host without its first label: what a wildcard of one label stands before.
pub(crate) fn parent(host: &[u8]) -> Option<&[u8]> {
    let dot = host.iter().position(|byte| *byte == b'.')?;
    host.get(dot + 1..).filter(|rest| !rest.is_empty())
}

/// Splits `<lane>--<rest>`. `xn--…` is an internationalized name, not a lane.
pub(crate) fn split_lane(host: &[u8]) -> Option<(&[u8], &[u8])> {
    let label = host.iter().position(|byte| *byte == b'.').unwrap_or(host.len());
    let at = host.get(..label)?.windows(2).position(|pair| pair == b"--")?;
    let (lane, rest) = (host.get(..at)?, host.get(at + 2..)?);
    let whole = !lane.is_empty() && !matches!(rest.first(), None | Some(b'.'));
    (whole && lane != b"xn").then_some((lane, rest))
}

/// The hosts that `raw` (a `Host` header or `:authority`) may be routed by, in their one form: itself, and itself without the
/// lane in its first label. Nothing if it is no host.
pub fn host_forms(raw: &[u8]) -> [Option<String>; 2] {
    let mut buf = [0; HOST_MAX];
    let Some(host) = normalize(raw, &mut buf) else { return [None, None] };
    let text = |host: &[u8]| String::from_utf8_lossy(host).into_owned();
    [Some(text(host)), split_lane(host).map(|(_, rest)| text(rest))]
}

/// Checks the host of a route; `Err` says what would be right.
pub fn check_route_host(host: &str) -> Result<(), String> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let mut buf = [0; HOST_MAX];
    match normalize(name.as_bytes(), &mut buf) {
        Some(one) if one == name.as_bytes() => Ok(()),
        Some(one) => Err(format!("host {host:?} is written {:?}", String::from_utf8_lossy(one))),
        None => Err(format!(
            "host {host:?} is not a host name; write for example shop.example.com or *.example.com"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(raw: &str) -> Option<String> {
        let mut buf = [0; HOST_MAX];
        if let Some(plain) = plain(raw.as_bytes()) {
            assert_eq!(normalize(raw.as_bytes(), &mut buf), Some(plain), "{raw}");
        }
        normalize(raw.as_bytes(), &mut buf).map(|host| String::from_utf8(host.to_vec()).unwrap())
    }

    #[test]
    fn hosts_come_into_one_form() {
        for (raw, want) in [
            ("Shop.Example.COM", "shop.example.com"),
            ("shop.example.com:8080", "shop.example.com"),
            ("shop.example.com.", "shop.example.com"),
            ("shop.example.com.:80", "shop.example.com"),
            ("shop:", "shop"),
            ("10.0.0.1:80", "10.0.0.1"),
            ("[::1]:8080", "[::1]"),
            ("[0:0:0:0:0:0:0:1]", "[::1]"),
            ("[2001:DB8::A]", "[2001:db8::a]"),
            ("a_b.example.com", "a_b.example.com"),
        ] {
            assert_eq!(one(raw).as_deref(), Some(want), "{raw}");
        }
        for bad in [
            "", ".", ":80", "a..b", ".a", "a b", "a@b", "a:b", "a:1:2", "[::1", "[::1]x", "[]", "[::1]:x",
            "ä", "*.a",
        ] {
            assert_eq!(one(bad), None, "{bad}");
        }
        assert_eq!(one(&"a".repeat(254)), None);
        assert!(one(&format!("{}.", "a".repeat(253))).is_some());
    }

    #[test]
    fn a_lane_is_split_off_but_not_from_internationalized_names() {
        let split = |host: &str| {
            split_lane(host.as_bytes()).map(|(a, b)| {
                (String::from_utf8_lossy(a).into_owned(), String::from_utf8_lossy(b).into_owned())
            })
        };
        assert_eq!(split("new--shop.localhost"), Some(("new".into(), "shop.localhost".into())));
        assert_eq!(split("new--xn--bcher-kva.de"), Some(("new".into(), "xn--bcher-kva.de".into())));
        for none in ["shop.localhost", "xn--bcher-kva.de", "--shop.a", "new--.a", "new--", "shop.new--b.a"] {
            assert_eq!(split(none), None, "{none}");
        }
    }

    #[test]
    fn route_hosts_must_be_in_the_one_form() {
        assert!(check_route_host("*.example.com").is_ok());
        assert!(check_route_host("Shop.example.com").unwrap_err().contains("shop.example.com"));
        for bad in ["", "*", "*.", "a:80", "*.*.a", "a/b"] {
            assert!(check_route_host(bad).is_err(), "{bad}");
        }
    }
}
