//! What the plugins that compress have in common: whether a response is to be compressed, with which coding, and how it streams.

use crate::cache::control::Control;
use crate::plugins::Reply;
use crate::plugins::filter::{BodyFilter, Pieces};
use crate::request::record::Record;
use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderValue, VARY,
};
use http::{Method, Version};
use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use towpath_resources::plugins::gzip::Types;

/// What is held back before it goes out, bytes.
const PIECE: usize = 8 * 1024;

/// A coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Brotli,
    Zstd,
}

impl Coding {
    fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Brotli => "br",
            Self::Zstd => "zstd",
        }
    }
}

/// Which responses.
pub(super) struct Which<'a> {
    pub(super) coding: Coding,
    pub(super) types: &'a Types,
    pub(super) min_length: u64,
    pub(super) http_version: f64,
    pub(super) vary: bool,
}

/// How well the client likes a coding, in thousandths; 0 = it does not take it (RFC 9110, 12.5.3).
fn quality(headers: &HeaderMap, coding: Coding) -> u16 {
    let lines =
        headers.get_all(ACCEPT_ENCODING).iter().flat_map(|line| line.as_bytes().split(|&b| b == b','));
    let mut any = 0;
    for part in lines {
        let mut parts = part.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let text = parts.find_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q=")));
        let quality =
            text.map_or(Some(1.0), |text| std::str::from_utf8(text).ok()?.trim().parse::<f32>().ok());
        let quality = (quality.unwrap_or_default().clamp(0.0, 1.0) * 1000.0) as u16;
        let known = name.strip_prefix(b"x-").filter(|_| coding == Coding::Gzip).unwrap_or(name);
        if known.eq_ignore_ascii_case(coding.name().as_bytes()) {
            return quality;
        }
        if name == b"*" {
            any = quality;
        }
    }
    any
}

/// Which coding it is, and how well the client likes it. A plugin that comes later may know a better one.
pub(crate) type Chosen = Rc<Cell<(Coding, u16)>>;

impl Which<'_> {
    fn is_for(&self, reply: &Reply<'_>) -> bool {
        let headers = &reply.headers;
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        matches!(reply.status.as_u16(), 200 | 403 | 404)
            && (reply.record.version != Version::HTTP_10 || self.http_version < 1.1)
            && reply.record.method != Method::HEAD
            && (!headers.contains_key(CONTENT_ENCODING) || is_ours(reply.record))
            && length.is_none_or(|length| length >= self.min_length)
            && self.is_of_type(headers)
            && !Control::of(headers.get_all(CACHE_CONTROL).iter()).no_transform
    }

    fn is_of_type(&self, headers: &HeaderMap) -> bool {
        let Some(kind) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let kind = kind.split(';').next().unwrap_or_default().trim();
        match self.types {
            Types::All(_) => true,
            Types::List(types) => types.iter().any(|one| one.eq_ignore_ascii_case(kind)),
        }
    }

    /// Marks the head of a response that is to be compressed with this coding, and says which one it is.
    pub(super) fn mark(&self, reply: &mut Reply<'_>) -> Option<Chosen> {
        if !self.is_for(reply) {
            return None;
        }
        if self.vary && !names(reply.headers, "accept-encoding") {
            reply.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        let mine = quality(reply.request_headers, self.coding);
        let before = reply.record.running.as_ref().and_then(|running| running.coding.clone());
        if mine == 0 || before.as_ref().is_some_and(|before| before.get().1 >= mine) {
            return None;
        }
        reply.headers.insert(CONTENT_ENCODING, HeaderValue::from_static(self.coding.name()));
        if let Some(before) = before {
            before.set((self.coding, mine));
            return Some(before);
        }
        let chosen = Rc::new(Cell::new((self.coding, mine)));
        reply.record.running.get_or_insert_default().coding = Some(chosen.clone());
        reply.headers.remove(ACCEPT_RANGES);
        // The bytes are not those that a strong tag stands for.
        let tag = reply.headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
        if let Some(weak) =
            tag.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok())
        {
            reply.headers.insert(ETAG, weak);
        }
        Some(chosen)
    }
}

/// Whether the response gets its coding from a plugin, so that other plugins still see it without.
pub(super) fn is_ours(record: &Record) -> bool {
    record.running.as_ref().is_some_and(|running| running.coding.is_some())
}

fn names(headers: &HeaderMap, wanted: &str) -> bool {
    headers.get_all(VARY).iter().any(|line| {
        let mut names = line.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii);
        names.any(|name| name == b"*" || name.eq_ignore_ascii_case(wanted.as_bytes()))
    })
}

/// A compressor that writes to memory.
pub(super) trait Compressor: Write {
    /// What it has made so far.
    fn made(&mut self) -> &mut Vec<u8>;
    /// Makes the end.
    fn finish(&mut self) -> io::Result<()>;
}

/// A body that is compressed while it streams.
pub(super) struct Compress<C> {
    compressor: C,
    mine: Coding,
    chosen: Chosen,
    /// Something was written since the last flush.
    held: bool,
}

impl<C: Compressor> Compress<C> {
    pub(super) fn new(compressor: C, mine: Coding, chosen: Chosen) -> Self {
        Self { compressor, mine, chosen, held: false }
    }

    fn is_chosen(&self) -> bool {
        self.chosen.get().0 == self.mine
    }

    fn take(&mut self, out: &mut Pieces) {
        let made = std::mem::take(self.compressor.made());
        out.extend((!made.is_empty()).then(|| Bytes::from(made)));
    }
}

impl<C: Compressor> BodyFilter for Compress<C> {
    fn push(&mut self, piece: Bytes, out: &mut Pieces) {
        if !self.is_chosen() {
            out.push_back(piece);
            return;
        }
        // Writing to memory does not fail.
        let _ = self.compressor.write_all(&piece);
        self.held = true;
        if self.compressor.made().len() >= PIECE {
            self.take(out);
        }
    }

    fn end(&mut self, out: &mut Pieces) {
        if self.is_chosen() {
            let _ = self.compressor.finish();
            self.take(out);
        }
    }

    fn flush(&mut self, out: &mut Pieces) {
        if std::mem::take(&mut self.held) {
            let _ = self.compressor.flush();
            self.take(out);
        }
    }

    fn comes_last(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_say_what_they_take_and_how_well() {
        let likes = |text: &str, coding| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(text).unwrap());
            quality(&headers, coding)
        };
        for (text, gzip) in [
            ("gzip", 1000),
            ("br, GZIP;q=0.5", 500),
            ("*", 1000),
            ("x-gzip", 1000),
            ("deflate, *;q=0.1", 100),
            ("", 0),
            ("br", 0),
            ("gzip;q=0", 0),
            ("*;q=0", 0),
            ("gzip;q=0, *", 0),
            ("gzip;q=x", 0),
        ] {
            assert_eq!(likes(text, Coding::Gzip), gzip, "{text}");
        }
        assert_eq!((likes("br;q=0.9, gzip", Coding::Brotli), likes("zstd", Coding::Zstd)), (900, 1000));
        assert_eq!(likes("x-br", Coding::Brotli), 0);
        assert_eq!(quality(&HeaderMap::new(), Coding::Gzip), 0);
    }
}
