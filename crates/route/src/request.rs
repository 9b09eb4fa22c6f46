//! What this crate wants to know of a request, and the readers of cookies, query and baggage: foreign bytes.

use crate::path::hex;
use crate::vars::Value;
use std::net::IpAddr;

/// A request as the gateway has it. Implementations must not allocate.
pub trait RequestView {
    /// The `nth` value of a header (`name` in any case), if there are so many.
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]>;
    /// The path without the query, as the client sent it.
    fn path(&self) -> &str;
    /// The query without `?`.
    fn query(&self) -> Option<&str>;
    /// The client's address.
    fn client(&self) -> Option<IpAddr>;
    /// Whether it comes from one of our own instances, whose `baggage` is believed.
    fn inside(&self) -> bool;
    /// The method as sent; empty = not known, and then no rule that names methods holds.
    fn method(&self) -> &str {
        ""
    }
    /// `http` or `https`; empty = not known.
    fn scheme(&self) -> &str {
        ""
    }
    /// The host that the client asked for, as sent: `Host` or `:authority`.
    fn host(&self) -> Option<&[u8]> {
        self.header("host", 0)
    }
    /// The port on which it was accepted.
    fn port(&self) -> Option<u16> {
        None
    }
    /// A variable that this crate does not read by itself (see [`crate::vars::Name::is_of_request`]): `consumer_name`,
    /// `post_arg_x`, … May allocate; it is asked only where an expression or a balancer names it.
    fn variable(&self, _name: &str) -> Option<Value<'_>> {
        None
    }
}

/// Most header lines of one name that are looked at.
const LINES_MAX: usize = 64;

/// All values of a header.
pub(crate) fn lines<'a>(request: &'a impl RequestView, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    (0..LINES_MAX).map_while(move |nth| request.header(name, nth))
}

/// Without blanks at both ends.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    text.trim_ascii()
}

/// The values of a cookie in one `cookie` line, quotes taken off.
pub(crate) fn cookies<'a>(line: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    line.split(|byte| *byte == b';').filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (trim(pair.get(..at)?), trim(pair.get(at + 1..)?));
        let value = value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value);
        (key == name.as_bytes()).then_some(value)
    })
}

/// The values of a query parameter, still escaped.
pub(crate) fn parameters<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    query.as_bytes().split(|byte| *byte == b'&').filter_map(move |pair| {
        let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let value = pair.get(at + 1..).unwrap_or_default();
        let key = pair.get(..at)?;
        let same = key == name.as_bytes()
            || (key.contains(&b'%')
                && Unescaped::read(key).is_some_and(|key| key.as_bytes() == name.as_bytes()));
        same.then_some(value)
    })
}

/// The values of a member of one `baggage` line (W3C): `key=value;property, key=value`, still escaped.
pub(crate) fn baggage<'a>(line: &'a [u8], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    line.split(|byte| *byte == b',').filter_map(move |member| {
        let member = member.split(|byte| *byte == b';').next()?;
        let at = member.iter().position(|byte| *byte == b'=')?;
        let key = trim(member.get(..at)?);
        (key == name.as_bytes()).then_some(trim(member.get(at + 1..)?))
    })
}

/// A short text with its escapes decoded, on the stack.
pub(crate) struct Unescaped {
    bytes: [u8; 64],
    len: usize,
}

impl Unescaped {
    /// Decodes `%XX`; nothing if the result is longer than 64 bytes or an escape is broken.
    pub(crate) fn read(text: &[u8]) -> Option<Self> {
        let mut out = Self { bytes: [0; 64], len: 0 };
        let mut rest = text;
        while let Some((byte, after)) = rest.split_first() {
            let (byte, after) = match (byte, after) {
                (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    (hex(*high) << 4 | hex(*low), tail)
                }
                (b'%', _) => return None,
                _ => (*byte, after),
            };
            *out.bytes.get_mut(out.len)? = byte;
            out.len += 1;
            rest = after;
        }
        Some(out)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(values: impl Iterator<Item = &'a [u8]>) -> Vec<&'a str> {
        values.map(|value| std::str::from_utf8(value).unwrap()).collect()
    }

    #[test]
    fn cookies_are_found_whatever_stands_around_them() {
        let line = b"a=1; lane=x ;lane=\"y\"; xlane=z;lane; =;lane=";
        assert_eq!(text(cookies(line, "lane")), ["x", "y", ""]);
        assert_eq!(text(cookies(b"", "lane")), Vec::<&str>::new());
    }

    #[test]
    fn query_parameters_are_found_even_when_escaped() {
        assert_eq!(text(parameters("a=1&lane=x&lane&l%61ne=y&=z&&lane=%78", "lane")), ["x", "", "y", "%78"]);
        assert_eq!(Unescaped::read(b"%78%2dy").unwrap().as_bytes(), b"x-y");
        assert!(Unescaped::read(b"%7").is_none() && Unescaped::read(&[b'a'; 65]).is_none());
    }

    #[test]
    fn baggage_members_are_found_between_others_and_without_properties() {
        let line = b"user=1;p=2 , towpath.lane = new ;ttl=3,towpath.lane=old, towpath.lane";
        assert_eq!(text(baggage(line, "towpath.lane")), ["new", "old"]);
    }
}
