//! The canonical form of a request, which is what is signed.

use super::sha256;
use crate::encode::{decoded, hex, pairs, put_encoded};
use http::HeaderMap;

/// A request as it is on the wire.
#[derive(Debug, Clone, Copy)]
pub struct Message<'a> {
    /// Its method.
    pub method: &'a str,
    /// Its path, still encoded.
    pub path: &'a str,
    /// Its query, still encoded.
    pub query: Option<&'a str>,
    /// Its host, with a port if one is written.
    pub host: &'a [u8],
    /// Its headers; the host among them is passed over.
    pub headers: &'a HeaderMap,
}

impl Message<'_> {
    /// The canonical request with these signed headers (sorted, lower case) and this statement about the body.
    pub(super) fn canonical(&self, signed_headers: &[&str], payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        out.extend_from_slice(self.method.as_bytes());
        out.push(b'\n');
        put_encoded(&mut out, &decoded(self.path.as_bytes()), true);
        if self.path.is_empty() {
            out.push(b'/');
        }
        out.push(b'\n');
        self.put_query(&mut out);
        out.push(b'\n');
        for name in signed_headers {
            out.extend_from_slice(name.as_bytes());
            out.push(b':');
            self.put_values(&mut out, name);
            out.push(b'\n');
        }
        out.push(b'\n');
        out.extend_from_slice(signed_headers.join(";").as_bytes());
        out.push(b'\n');
        out.extend_from_slice(payload);
        out
    }

    /// Its hash.
    pub(super) fn canonical_hash(&self, signed_headers: &[&str], payload: &[u8]) -> String {
        hex(&sha256(&self.canonical(signed_headers, payload)))
    }

    fn put_query(&self, out: &mut Vec<u8>) {
        let encoded = |text: &str| {
            let mut out = Vec::with_capacity(text.len());
            put_encoded(&mut out, &decoded(text.as_bytes()), false);
            out
        };
        let query = self.query.unwrap_or_default();
        let mut all: Vec<(Vec<u8>, Vec<u8>)> = pairs(query)
            .map(|(name, value)| (encoded(name), encoded(value)))
            .filter(|(name, _)| name != b"X-Amz-Signature")
            .collect();
        all.sort_unstable();
        for (n, (name, value)) in all.iter().enumerate() {
            if n > 0 {
                out.push(b'&');
            }
            out.extend_from_slice(name);
            out.push(b'=');
            out.extend_from_slice(value);
        }
    }

    fn put_values(&self, out: &mut Vec<u8>, name: &str) {
        if name == "host" {
            return put_trimmed(out, self.host);
        }
        for (n, value) in self.headers.get_all(name).iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            put_trimmed(out, value.as_bytes());
        }
    }

    /// Whether there is such a header.
    pub(super) fn has(&self, name: &str) -> bool {
        name == "host" || self.headers.contains_key(name)
    }
}

/// Without spaces around it, and those in a row as one.
fn put_trimmed(out: &mut Vec<u8>, value: &[u8]) {
    let mut was_space = false;
    for &byte in value.trim_ascii() {
        let is_space = byte == b' ';
        if !(is_space && was_space) {
            out.push(byte);
        }
        was_space = is_space;
    }
}
