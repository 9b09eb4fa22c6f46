//! Response heads of instances: foreign bytes, read strictly where framing is concerned.

use super::Decoder;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use std::mem::MaybeUninit;

/// A response head without its hop-by-hop headers.
pub(crate) struct ResponseHead {
    /// Status.
    pub(crate) status: StatusCode,
    /// End-to-end headers.
    pub(crate) headers: HeaderMap,
    /// How the body is framed.
    pub(crate) decoder: Decoder,
    /// Whether the connection may carry another request.
    pub(crate) keep: bool,
    /// Seconds for which the instance keeps idle connections, if it said so.
    pub(crate) keep_seconds: Option<u64>,
    /// The protocol that a 101 switches to.
    pub(crate) upgrade: Option<HeaderValue>,
}

/// Most header lines of a response.
const HEADERS_MAX: usize = 200;

/// Where the head ends in `bytes` (behind its blank line), searching from line start `*from`, which is moved on.
pub(crate) fn find_end(bytes: &[u8], from: &mut usize) -> Option<usize> {
    loop {
        let line = bytes.get(*from..)?;
        let end = memchr::memchr(b'\n', line)?;
        *from += end + 1;
        if matches!(line.get(..end), Some(b"" | b"\r")) {
            return Some(*from);
        }
    }
}

/// Reads a complete head. `headers` is an empty map that is filled, so that its memory is used again.
pub(crate) fn parse(
    head: &Bytes,
    method: &Method,
    mut headers: HeaderMap,
) -> Result<ResponseHead, &'static str> {
    let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let parsed =
        httparse::ParserConfig::default().parse_response_with_uninit_headers(&mut response, head, &mut lines);
    match parsed {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) => return Err("the head ends early"),
        Err(httparse::Error::TooManyHeaders) => return Err("it has too many headers"),
        Err(_) => return Err("the head cannot be read"),
    }
    let status =
        response.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or("the status is not valid")?;
    let mut hop = HopByHop { http11: response.version == Some(1), ..HopByHop::default() };
    headers.reserve(response.headers.len());
    for line in response.headers.iter() {
        let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| "a header name is not valid")?;
        let value = HeaderValue::from_maybe_shared(head.slice_ref(line.value))
            .map_err(|_| "a header value is not valid")?;
        if hop.keeps(&name, &value)? {
            headers.append(name, value);
        }
    }
    for name in &hop.listed {
        headers.remove(name);
    }
    let decoder = hop.decoder(status, method)?;
    let lasts = !hop.close && (hop.http11 || hop.keep_alive);
    let keep = lasts && !matches!(decoder, Decoder::UntilClose);
    Ok(ResponseHead { status, headers, decoder, keep, keep_seconds: hop.keep_seconds, upgrade: hop.upgrade })
}

/// What the headers say about this connection alone.
#[derive(Default)]
struct HopByHop {
    http11: bool,
    close: bool,
    keep_alive: bool,
    chunked: bool,
    length: Option<u64>,
    keep_seconds: Option<u64>,
    upgrade: Option<HeaderValue>,
    listed: Vec<HeaderName>,
}

impl HopByHop {
    /// Takes note of a header; `true` = it is passed on.
    fn keeps(&mut self, name: &HeaderName, value: &HeaderValue) -> Result<bool, &'static str> {
        match *name {
            header::CONTENT_LENGTH => {
                let length = parse_length(value.as_bytes()).ok_or("Content-Length is not plain digits")?;
                if self.length.replace(length).is_some_and(|before| before != length) {
                    return Err("there are two different Content-Lengths");
                }
                Ok(true)
            }
            header::TRANSFER_ENCODING => {
                if self.chunked || !value.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err("Transfer-Encoding is not: chunked, once");
                }
                self.chunked = true;
                Ok(false)
            }
            header::CONNECTION => {
                self.connection(value);
                Ok(false)
            }
            header::UPGRADE => {
                self.upgrade = Some(value.clone());
                Ok(false)
            }
            header::PROXY_AUTHENTICATE | header::TE => Ok(false),
            _ if name == "keep-alive" => {
                self.keep_seconds = keep_alive_seconds(value.as_bytes());
                Ok(false)
            }
            _ => Ok(name != "proxy-connection"),
        }
    }

    fn connection(&mut self, value: &HeaderValue) {
        for token in value.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if token.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if let Ok(name) = HeaderName::from_bytes(token)
                && !matches!(name, header::CONTENT_LENGTH | header::UPGRADE | header::SET_COOKIE)
            {
                self.listed.push(name);
            }
        }
    }

    fn decoder(&self, status: StatusCode, method: &Method) -> Result<Decoder, &'static str> {
        if self.chunked && self.length.is_some() {
            return Err("there are both Content-Length and Transfer-Encoding");
        }
        if self.chunked && !self.http11 {
            return Err("HTTP/1.0 knows no Transfer-Encoding");
        }
        let bodiless =
            status.is_informational() || matches!(status.as_u16(), 204 | 304) || method == Method::HEAD;
        Ok(match (bodiless, self.chunked, self.length) {
            (true, _, _) => Decoder::Done,
            (_, true, _) => Decoder::chunked(),
            (_, _, Some(length)) => Decoder::length(length),
            (_, _, None) => Decoder::UntilClose,
        })
    }
}

fn parse_length(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    digits.then(|| value.iter().fold(0, |n, digit| n * 10 + u64::from(digit - b'0')))
}

/// `timeout=5, max=100` → 5.
fn keep_alive_seconds(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    text.split(',').find_map(|part| part.trim().strip_prefix("timeout=")?.trim().parse().ok())
}
