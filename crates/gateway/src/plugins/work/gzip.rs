//! `gzip`: responses are compressed.

use crate::plugins::filter::{BodyFilter, Pieces};
use crate::plugins::{Phase, Phases, Plugin, Reply};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderValue, VARY,
};
use http::{Method, Version};
use std::io::Write;
use std::sync::Arc;
use towpath_resources::plugins::gzip::{Config, Types};

/// What is held back before it goes out, bytes.
const PIECE: usize = 8 * 1024;

/// See the module.
pub(in crate::plugins) struct Gzip(Arc<Config>);

/// Kept from the head to the body: it is compressed.
struct Chosen;

impl Gzip {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }

    fn wants(&self, reply: &Reply<'_>) -> bool {
        let headers = &reply.headers;
        let status = matches!(reply.status.as_u16(), 200 | 403 | 404);
        let version = reply.record.version != Version::HTTP_10 || self.0.http_version < 1.1;
        let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        status
            && version
            && reply.record.method != Method::HEAD
            && !headers.contains_key(CONTENT_ENCODING)
            && length.is_none_or(|length| length >= self.0.min_length)
            && self.is_of_type(headers)
    }

    fn is_of_type(&self, headers: &HeaderMap) -> bool {
        let Some(kind) = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()) else {
            return false;
        };
        let kind = kind.split(';').next().unwrap_or_default().trim();
        match &self.0.types {
            Types::All(_) => true,
            Types::List(types) => types.iter().any(|one| one.eq_ignore_ascii_case(kind)),
        }
    }
}

/// Whether the client takes gzip (RFC 9110, 12.5.3).
fn takes_gzip(headers: &HeaderMap) -> bool {
    let codings =
        headers.get_all(ACCEPT_ENCODING).iter().flat_map(|line| line.as_bytes().split(|&b| b == b','));
    let mut any = None;
    for coding in codings {
        let mut parts = coding.split(|&b| b == b';').map(<[u8]>::trim_ascii);
        let name = parts.next().unwrap_or_default();
        let quality = parts.find_map(|part| part.strip_prefix(b"q=").or(part.strip_prefix(b"Q=")));
        let quality =
            quality.and_then(|text| std::str::from_utf8(text).ok()?.parse::<f32>().ok()).unwrap_or(1.0);
        if name.eq_ignore_ascii_case(b"gzip") || name.eq_ignore_ascii_case(b"x-gzip") {
            return quality > 0.0;
        }
        if name == b"*" {
            any = Some(quality > 0.0);
        }
    }
    any.unwrap_or(false)
}

impl Plugin for Gzip {
    fn phases(&self) -> Phases {
        Phases::of([Phase::ResponseHead, Phase::ResponseBody])
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        if !self.wants(reply) {
            return;
        }
        if self.0.vary {
            reply.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
        }
        if !takes_gzip(reply.request_headers) {
            return;
        }
        reply.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        reply.headers.remove(ACCEPT_RANGES);
        // The bytes are not those that a strong tag stands for.
        let tag = reply.headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
        if let Some(weak) =
            tag.and_then(|tag| HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).ok())
        {
            reply.headers.insert(ETAG, weak);
        }
        reply.record.running.get_or_insert_default().note(self, Chosen);
    }

    fn response_body(&self, reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        reply.record.running.get_or_insert_default().noted::<Self, Chosen>(self)?;
        let encoder = GzEncoder::new(Vec::new(), Compression::new(self.0.comp_level));
        Some(Box::new(Compress { encoder, held: false }))
    }
}

struct Compress {
    encoder: GzEncoder<Vec<u8>>,
    /// Something was written since the last flush.
    held: bool,
}

impl Compress {
    fn take(&mut self, out: &mut Pieces) {
        let made = std::mem::take(self.encoder.get_mut());
        out.extend((!made.is_empty()).then(|| Bytes::from(made)));
    }
}

impl BodyFilter for Compress {
    fn push(&mut self, piece: Bytes, out: &mut Pieces) {
        // Writing to memory does not fail.
        let _ = self.encoder.write_all(&piece);
        self.held = true;
        if self.encoder.get_ref().len() >= PIECE {
            self.take(out);
        }
    }

    fn end(&mut self, out: &mut Pieces) {
        let _ = self.encoder.try_finish();
        self.take(out);
    }

    fn flush(&mut self, out: &mut Pieces) {
        if std::mem::take(&mut self.held) {
            let _ = self.encoder.flush();
            self.take(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_gzip_says_so() {
        let takes = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_str(text).unwrap());
            takes_gzip(&headers)
        };
        for yes in ["gzip", "br, GZIP;q=0.5", "*", "x-gzip", "deflate, *;q=0.1"] {
            assert!(takes(yes), "{yes}");
        }
        for no in ["", "br", "gzip;q=0", "*;q=0", "gzip;q=0, *"] {
            assert!(!takes(no), "{no}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
