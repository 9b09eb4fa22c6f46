//! The head scanner: request line and header lines, each judged once, as soon as it is complete.

use super::{FramingLimits, Refusal};

/// How a request body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is none.
    None,
    /// After so many bytes (at least one).
    Length(u64),
    /// After the last chunk and its trailers.
    Chunked,
}

/// A complete head that is in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeadInfo {
    /// Its length in bytes, leading and closing blank lines included.
    pub len: usize,
    /// How its body ends.
    pub body: BodyFraming,
    /// Whether it asks for another protocol.
    pub upgrade: bool,
}

/// Blank lines that may stand before a request line (RFC 9112, 2.2 asks for at least one).
const LEADING_BLANK_LINES: u8 = 2;
/// Longest method.
const METHOD_BYTES: usize = 32;

/// Scans one head. Shown the head's bytes from its start each time, it looks at each line once.
#[derive(Debug, Clone, Copy, Default)]
pub struct HeadScanner {
    /// Start of the first line that is not judged yet.
    line_at: usize,
    /// Where the search for the end of that line goes on.
    seek_at: usize,
    blank_lines: u8,
    lines: usize,
    http11: bool,
    upgrade: bool,
    chunked: bool,
    length: Option<u64>,
    host: Option<Span>,
    authority: Option<Span>,
}

/// A part of the head by offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    from: usize,
    to: usize,
}

impl Span {
    fn of(self, head: &[u8]) -> &[u8] {
        head.get(self.from..self.to).unwrap_or_default()
    }
}

impl HeadScanner {
    /// A scanner at the start of a head.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether any byte of the head (blank lines before it aside) was seen.
    pub fn has_begun(&self) -> bool {
        self.seek_at > 2 * usize::from(self.blank_lines)
    }

    /// Goes on in `head`, which begins with the first byte of the head. `Ok(None)` = more bytes are needed.
    pub fn advance(&mut self, head: &[u8], limits: FramingLimits) -> Result<Option<HeadInfo>, Refusal> {
        loop {
            let unseen = head.get(self.seek_at..).unwrap_or_default();
            let Some(at) = memchr::memchr(b'\n', unseen) else {
                self.seek_at = head.len();
                return if head.len() >= limits.head_bytes {
                    Err(Refusal::HeadBytes)
                } else {
                    self.judge_partial(head).map(|()| None)
                };
            };
            let end = self.seek_at + at;
            if end >= limits.head_bytes {
                return Err(Refusal::HeadBytes);
            }
            let line = head.get(self.line_at..end).unwrap_or_default();
            let Some((b'\r', line)) = line.split_last() else { return Err(Refusal::BareLf) };
            let from = self.line_at;
            self.line_at = end + 1;
            self.seek_at = end + 1;
            if line.is_empty() {
                if self.lines > 0 {
                    return self.finish(head).map(Some);
                }
                self.blank_lines += 1;
                if self.blank_lines > LEADING_BLANK_LINES {
                    return Err(Refusal::RequestLine);
                }
                continue;
            }
            if self.lines == 0 {
                self.request_line(line, from)?;
            } else {
                if self.lines > limits.headers {
                    return Err(Refusal::HeadCount);
                }
                self.header_line(line, from)?;
            }
            self.lines += 1;
        }
    }

    /// Refuses early what cannot become a request: foreign protocols need not wait for the head timeout.
    fn judge_partial(&self, head: &[u8]) -> Result<(), Refusal> {
        let line = head.get(self.line_at..).unwrap_or_default();
        if self.lines == 0 {
            let method = line.split(|&b| b == b' ').next().unwrap_or_default();
            let whole = method.len() < line.len();
            let shown = if whole { method } else { line.strip_suffix(b"\r").unwrap_or(line) };
            if shown.len() > METHOD_BYTES || !shown.iter().copied().all(is_method_byte) {
                return Err(Refusal::Method);
            }
        }
        Ok(())
    }

    fn request_line(&mut self, line: &[u8], at: usize) -> Result<(), Refusal> {
        let mut parts = line.splitn(3, |&b| b == b' ');
        let method = parts.next().unwrap_or_default();
        judge_method(method)?;
        let (Some(target), Some(version)) = (parts.next(), parts.next()) else {
            return Err(Refusal::RequestLine);
        };
        self.http11 = match version {
            b"HTTP/1.1" => true,
            b"HTTP/1.0" => false,
            _ if version.contains(&b' ') => return Err(Refusal::RequestLine),
            _ => return Err(Refusal::Version),
        };
        judge_target(target)?;
        match target.first() {
            Some(b'/') => Ok(()),
            _ if target == b"*" && method == b"OPTIONS" => Ok(()),
            _ => self.absolute_form(target, at + method.len() + 1),
        }
    }

    /// `http://host[:port]/…`, which proxies are sent, and which RFC 9112 asks every server to accept.
    fn absolute_form(&mut self, target: &[u8], at: usize) -> Result<(), Refusal> {
        let scheme = [b"http://".as_slice(), b"https://"]
            .into_iter()
            .find(|scheme| target.get(..scheme.len()).is_some_and(|t| t.eq_ignore_ascii_case(scheme)))
            .ok_or(Refusal::Target)?;
        let rest = target.get(scheme.len()..).unwrap_or_default();
        let len = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
        let from = at + scheme.len();
        if !is_authority(rest.get(..len).unwrap_or_default()) {
            return Err(Refusal::Target);
        }
        self.authority = Some(Span { from, to: from + len });
        Ok(())
    }

    fn header_line(&mut self, line: &[u8], at: usize) -> Result<(), Refusal> {
        if matches!(line.first(), Some(b' ' | b'\t')) {
            return Err(Refusal::Fold);
        }
        let colon = line.iter().position(|&b| !is_token_byte(b)).ok_or(Refusal::HeaderName)?;
        let (name, rest) = line.split_at_checked(colon).ok_or(Refusal::HeaderName)?;
        let Some((b':', value)) = rest.split_first() else {
            return Err(if rest.contains(&b'\r') { Refusal::BareCr } else { Refusal::HeaderName });
        };
        if name.is_empty() {
            return Err(Refusal::HeaderName);
        }
        if has_control(value) {
            return Err(if value.contains(&b'\r') { Refusal::BareCr } else { Refusal::Control });
        }
        self.known_header(name, value, at + colon + 1)
    }

    fn known_header(&mut self, name: &[u8], value: &[u8], at: usize) -> Result<(), Refusal> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                let value_at = at + value.iter().take_while(|b| is_blank(**b)).count();
                let value = trim(value);
                if self.host.is_some() {
                    return Err(Refusal::HostTwice);
                }
                if !is_authority(value) {
                    return Err(Refusal::HostValue);
                }
                self.host = Some(Span { from: value_at, to: value_at + value.len() });
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if self.length.is_some() {
                    return Err(Refusal::LengthTwice);
                }
                self.length = Some(parse_length(trim(value)).ok_or(Refusal::LengthValue)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !trim(value).eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::Encoding);
                }
                self.chunked = true;
            }
            14 | 17 if imitates_framing(name) => return Err(Refusal::Underscore),
            _ => {}
        }
        Ok(())
    }

    fn finish(&self, head: &[u8]) -> Result<HeadInfo, Refusal> {
        match (self.host, self.authority) {
            (None, _) if self.http11 => return Err(Refusal::HostMissing),
            (Some(host), Some(authority)) if !host.of(head).eq_ignore_ascii_case(authority.of(head)) => {
                return Err(Refusal::HostMismatch);
            }
            _ => {}
        }
        let body = match (self.chunked, self.length) {
            (true, Some(_)) => return Err(Refusal::LengthAndEncoding),
            (true, None) if !self.http11 => return Err(Refusal::Encoding),
            (true, None) => BodyFraming::Chunked,
            (false, Some(1..)) => BodyFraming::Length(self.length.unwrap_or_default()),
            (false, _) => BodyFraming::None,
        };
        Ok(HeadInfo { len: self.line_at, body, upgrade: self.upgrade && self.http11 })
    }
}

/// Whether a method is one that is passed on, in any version of HTTP.
pub fn judge_method(method: &[u8]) -> Result<(), Refusal> {
    let fits = !method.is_empty()
        && method.len() <= METHOD_BYTES
        && method.iter().copied().all(is_method_byte)
        && !matches!(method, b"CONNECT" | b"PRI");
    if fits { Ok(()) } else { Err(Refusal::Method) }
}

/// Whether a target has only characters that may stand in one, in any version of HTTP. Those that URLs must escape are
/// refused here, with a reason, and not by the parser behind; only `"`, `{`, `|` and `}`, which many clients send as they
/// are, are let pass.
pub fn judge_target(target: &[u8]) -> Result<(), Refusal> {
    let path_len = memchr::memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at_checked(path_len).unwrap_or((target, &[]));
    // Written without early exit, so that it becomes vector code.
    let bad = |part: &[u8], more: fn(u8) -> bool| {
        part.iter().fold(false, |bad, &b| {
            bad | !(0x21..=0x7e).contains(&b) | matches!(b, b'#' | b'<' | b'>') | more(b)
        })
    };
    let fits = !target.is_empty() && !bad(path, |b| b == b'`') && !bad(query, |b| b == b'"');
    if fits { Ok(()) } else { Err(Refusal::Target) }
}

/// Plain digits that fit in 63 bits.
fn parse_length(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 18 || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(value.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

/// Gateways of older kinds (CGI, WSGI) read `_` in a name as `-`.
pub fn imitates_framing(name: &[u8]) -> bool {
    let same = |real: &[u8]| {
        name.len() == real.len()
            && name.iter().zip(real).all(|(a, b)| a.eq_ignore_ascii_case(b) || (*a == b'_' && *b == b'-'))
    };
    same(b"content-length") || same(b"transfer-encoding")
}

/// A host name, IPv4 address or bracketed IPv6 address, with an optional port. Not empty.
pub fn is_authority(value: &[u8]) -> bool {
    let (host, port) = match value.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|&b| b == b']') else { return false };
            let (address, port) = (rest.get(..end), rest.get(end + 1..));
            if !address.is_some_and(|a| {
                !a.is_empty() && a.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.'))
            }) {
                return false;
            }
            (b"v6".as_slice(), port.unwrap_or_default())
        }
        None => value.split_at(value.iter().position(|&b| b == b':').unwrap_or(value.len())),
    };
    let port_fits = match port.split_first() {
        None => true,
        Some((b':', digits)) => digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit),
        Some(_) => false,
    };
    let host_fits = !host.is_empty()
        && host.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~'));
    port_fits && host_fits
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn trim(value: &[u8]) -> &[u8] {
    let from = value.iter().take_while(|b| is_blank(**b)).count();
    let value = value.get(from..).unwrap_or_default();
    let len = value.len() - value.iter().rev().take_while(|b| is_blank(**b)).count();
    value.get(..len).unwrap_or_default()
}

/// Whether a value has a control character other than tab. Written without early exit, so that it becomes vector code.
pub(super) fn has_control(value: &[u8]) -> bool {
    value.iter().fold(false, |bad, &b| bad | ((b < 0x20) & (b != b'\t')) | (b == 0x7f))
}

/// Bytes of an RFC 9110 token.
pub(super) fn is_token_byte(byte: u8) -> bool {
    TOKEN.get(usize::from(byte)).copied().unwrap_or(false)
}

/// Methods are case-sensitive and all real ones are upper-case; what differs only in case invites two readings.
fn is_method_byte(byte: u8) -> bool {
    byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        let special = matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        );
        #[expect(clippy::indexing_slicing, reason = "constant evaluation; the index is below 128")]
        {
            table[byte as usize] = byte.is_ascii_alphanumeric() || special;
        }
        byte += 1;
    }
    table
};
