//! One line of the access log.

use crate::clock;
use std::net::IpAddr;
use towpath_types::{AppRef, ErrorCode, InstanceId, LaneName};

/// What is said of one finished request. Borrowed: nothing is copied but into the line.
pub(crate) struct AccessLine<'a> {
    /// Up to the second, as in RFC 3339.
    pub(crate) second: &'a [u8],
    pub(crate) millisecond: u64,
    pub(crate) id: &'a [u8],
    pub(crate) client: IpAddr,
    pub(crate) method: &'a str,
    pub(crate) scheme: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) path: &'a str,
    pub(crate) protocol: &'static str,
    pub(crate) status: u16,
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) duration_us: u64,
    pub(crate) upstream_us: Option<u64>,
    pub(crate) app: Option<&'a AppRef>,
    pub(crate) lane: Option<&'a LaneName>,
    pub(crate) instance: Option<InstanceId>,
    pub(crate) attempts: u32,
    /// Of a route that is a resource.
    pub(crate) route: Option<&'a str>,
    pub(crate) service: Option<&'a str>,
    pub(crate) consumer: Option<&'a str>,
    /// The plugin that answered.
    pub(crate) plugin: Option<&'static str>,
    pub(crate) error: Option<ErrorCode>,
    pub(crate) complete: bool,
}

/// Longest host and path that are logged, bytes.
const TEXT_MAX: usize = 2048;

impl AccessLine<'_> {
    /// Appends the line.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(self.second);
        clock::put_fraction(out, self.millisecond);
        out.extend_from_slice(b"\",\"id\":\"");
        put_escaped(out, self.id);
        out.extend_from_slice(b"\",\"client\":\"");
        put_address(out, self.client);
        out.extend_from_slice(b"\",\"method\":\"");
        put_escaped(out, self.method.as_bytes());
        out.extend_from_slice(b"\",\"scheme\":\"");
        out.extend_from_slice(self.scheme.as_bytes());
        out.extend_from_slice(b"\",\"host\":\"");
        put_escaped(out, self.host);
        out.extend_from_slice(b"\",\"path\":\"");
        put_escaped(out, self.path.as_bytes());
        out.extend_from_slice(b"\",\"protocol\":\"");
        out.extend_from_slice(self.protocol.as_bytes());
        out.extend_from_slice(b"\",\"status\":");
        put_number(out, u64::from(self.status));
        out.extend_from_slice(b",\"in\":");
        put_number(out, self.bytes_in);
        out.extend_from_slice(b",\"out\":");
        put_number(out, self.bytes_out);
        out.extend_from_slice(b",\"us\":");
        put_number(out, self.duration_us);
        if let Some(us) = self.upstream_us {
            out.extend_from_slice(b",\"upstream_us\":");
            put_number(out, us);
        }
        self.write_choice(out);
        out.extend_from_slice(b"}\n");
    }

    fn write_choice(&self, out: &mut Vec<u8>) {
        if let Some(app) = self.app {
            out.extend_from_slice(b",\"app\":\"");
            for (n, part) in [app.org.as_str(), app.space.as_str(), app.app.as_str()].into_iter().enumerate()
            {
                out.extend_from_slice(if n == 0 { b"" } else { b"/" });
                out.extend_from_slice(part.as_bytes());
            }
            out.push(b'"');
        }
        if let Some(lane) = self.lane {
            out.extend_from_slice(b",\"lane\":\"");
            out.extend_from_slice(lane.as_str().as_bytes());
            out.push(b'"');
        }
        if let Some(instance) = self.instance {
            out.extend_from_slice(b",\"instance\":\"");
            let mut text = [0; 36];
            out.extend_from_slice(instance.0.hyphenated().encode_lower(&mut text).as_bytes());
            out.push(b'"');
        }
        for (name, value) in [
            (&b",\"route\":\""[..], self.route),
            (b",\"service\":\"", self.service),
            (b",\"consumer\":\"", self.consumer),
            (b",\"plugin\":\"", self.plugin),
        ] {
            if let Some(value) = value {
                out.extend_from_slice(name);
                put_escaped(out, value.as_bytes());
                out.push(b'"');
            }
        }
        if self.attempts > 1 {
            out.extend_from_slice(b",\"attempts\":");
            put_number(out, u64::from(self.attempts));
        }
        if let Some(error) = self.error {
            out.extend_from_slice(b",\"error\":\"");
            out.extend_from_slice(error.as_str().as_bytes());
            out.push(b'"');
        }
        if !self.complete {
            out.extend_from_slice(b",\"complete\":false");
        }
    }
}

/// Decimal digits.
pub(crate) fn put_number(out: &mut Vec<u8>, mut n: u64) {
    if n < 10 {
        out.push(b'0' + (n & 15) as u8);
        return;
    }
    let mut digits = [0; 20];
    let mut len = 0;
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + (n % 10) as u8;
        n /= 10;
        len += 1;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(20 - len..).unwrap_or_default());
}

/// Lower-case hex digits of 8 bytes, written from the highest. No branches, so that it becomes vector code.
pub(crate) fn put_hex(out: &mut [u8; 16], n: u64) {
    for (at, slot) in out.iter_mut().enumerate() {
        let nibble = (n >> (60 - 4 * at)) as u8 & 15;
        *slot = b'0' + nibble + (b'a' - b'0' - 10) * u8::from(nibble > 9);
    }
}

/// An address as text.
pub(crate) fn put_address(out: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => {
            for (n, octet) in v4.octets().into_iter().enumerate() {
                if n > 0 {
                    out.push(b'.');
                }
                put_number(out, u64::from(octet));
            }
        }
        IpAddr::V6(v6) => {
            use std::io::Write;
            let _ = write!(out, "{v6}");
        }
    }
}

/// JSON text: ASCII as it is, what JSON does not permit and all other bytes as `\u00XX`.
fn put_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let text = text.get(..TEXT_MAX).unwrap_or(text);
    let plain = text.iter().fold(true, |ok, &b| ok & (0x20..0x7f).contains(&b) & (b != b'"') & (b != b'\\'));
    if plain {
        out.extend_from_slice(text);
        return;
    }
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
            0x20..0x7f => out.push(byte),
            _ => {
                let mut hex = [0; 16];
                put_hex(&mut hex, u64::from(byte));
                out.extend_from_slice(b"\\u");
                out.extend_from_slice(hex.get(12..).unwrap_or_default());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::{SpaceRef, name::AppName};

    #[test]
    fn a_line_is_json_whatever_the_client_sent() {
        let app = AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap());
        let lane = LaneName::base();
        let line = AccessLine {
            second: b"1970-01-01T00:00:00",
            millisecond: 7,
            id: b"a\"b\\c\x00\xff",
            client: "::1".parse().unwrap(),
            method: "GET",
            scheme: "http",
            host: b"shop.localhost",
            path: "/a\"/\u{e9}",
            protocol: "HTTP/1.1",
            status: 200,
            bytes_in: 0,
            bytes_out: 18_446_744_073_709_551_615,
            duration_us: 1234,
            upstream_us: Some(1000),
            app: Some(&app),
            lane: Some(&lane),
            instance: Some(InstanceId::mint(1, [7; 10])),
            attempts: 2,
            route: Some("r"),
            service: None,
            consumer: Some("a\"b"),
            plugin: Some("key-auth"),
            error: Some(ErrorCode::NoEndpoint),
            complete: false,
        };
        let mut out = Vec::new();
        line.write(&mut out);
        assert_eq!(out.pop(), Some(b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(value["id"], "a\"b\\c\u{0}\u{ff}");
        assert_eq!(value["time"], "1970-01-01T00:00:00.007Z");
        assert_eq!(value["client"], "::1");
        assert_eq!(value["out"], u64::MAX);
        assert_eq!(value["app"], "default/default/shop");
        assert_eq!(value["attempts"], 2);
        assert_eq!(
            (&value["route"], &value["consumer"], value.get("service")),
            (&"r".into(), &"a\"b".into(), None)
        );
        assert_eq!(value["complete"], false);
    }
}
