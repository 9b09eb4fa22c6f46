//! Request ids and trace context.

use crate::access_log::put_hex;
use crate::worker::Worker;
use http::header::HeaderValue;

/// The id of a request: the client's own if it is a plain one, else ours.
pub(crate) enum RequestId {
    /// From the client.
    Given(HeaderValue),
    /// 32 hex digits.
    Made([u8; 32]),
}

/// Longest id that is taken over.
const GIVEN_MAX: usize = 128;

impl RequestId {
    /// Takes over a client's id, or makes one.
    pub(crate) fn new(given: Option<&HeaderValue>, worker: &Worker) -> Self {
        match given {
            Some(value) if is_plain(value.as_bytes()) => Self::Given(value.clone()),
            _ => Self::Made(two_words(worker.random(), worker.random())),
        }
    }

    /// As text.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Given(value) => value.as_bytes(),
            Self::Made(digits) => digits,
        }
    }

    /// As a header.
    pub(crate) fn to_header(&self) -> Option<HeaderValue> {
        match self {
            Self::Given(value) => Some(value.clone()),
            Self::Made(digits) => HeaderValue::from_bytes(digits).ok(),
        }
    }
}

fn is_plain(id: &[u8]) -> bool {
    let plain = |b: &u8| {
        b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=' | b'@')
    };
    !id.is_empty() && id.len() <= GIVEN_MAX && id.iter().all(plain)
}

fn two_words(high: u64, low: u64) -> [u8; 32] {
    let mut digits = [0; 32];
    let mut word = [0; 16];
    let (first, second) = digits.split_at_mut(16);
    put_hex(&mut word, high);
    first.copy_from_slice(&word);
    put_hex(&mut word, low);
    second.copy_from_slice(&word);
    digits
}

/// Length of a `traceparent` of version 00.
const TRACEPARENT_LEN: usize = 55;

/// A new W3C `traceparent`, sampled.
pub(crate) fn new_traceparent(worker: &Worker) -> [u8; TRACEPARENT_LEN] {
    let mut text = *b"00-00000000000000000000000000000000-0000000000000000-01";
    // All zero would not be valid.
    let trace = two_words(worker.random(), worker.random() | 1);
    let mut span = [0; 16];
    put_hex(&mut span, worker.random() | 1);
    if let Some(slot) = text.get_mut(3..35) {
        slot.copy_from_slice(&trace);
    }
    if let Some(slot) = text.get_mut(36..52) {
        slot.copy_from_slice(&span);
    }
    text
}

/// A `Sec-WebSocket-Key`: 16 random bytes (RFC 6455, 4.1). It keeps caches honest and is no secret.
pub(crate) fn new_websocket_key(worker: &Worker) -> HeaderValue {
    use base64::Engine;
    let bytes = [worker.random().to_be_bytes(), worker.random().to_be_bytes()].concat();
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("AAAAAAAAAAAAAAAAAAAAAA=="))
}

/// Whether a client's `traceparent` is well-formed (W3C Trace Context, 3.2.2), so that it is passed on.
pub(crate) fn is_traceparent(value: &[u8]) -> bool {
    let hex = |part: Option<&[u8]>| {
        part.is_some_and(|part| part.iter().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(b)))
    };
    let zero = |part: Option<&[u8]>| part.is_some_and(|part| part.iter().all(|&b| b == b'0'));
    let (version, trace, span, flags) =
        (value.get(..2), value.get(3..35), value.get(36..52), value.get(53..55));
    let dashes = [2, 35, 52].iter().all(|&at| value.get(at) == Some(&b'-'));
    let ends = value.len() == TRACEPARENT_LEN
        || (version != Some(b"00") && value.get(TRACEPARENT_LEN) == Some(&b'-'));
    dashes
        && ends
        && version != Some(b"ff")
        && [version, trace, span, flags].into_iter().all(hex)
        && !zero(trace)
        && !zero(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_trace_contexts_are_passed_on() {
        assert!(is_traceparent(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        assert!(is_traceparent(b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"));
        for bad in [
            "",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
        ] {
            assert!(!is_traceparent(bad.as_bytes()), "{bad}");
        }
    }

    #[test]
    fn only_plain_ids_are_taken_over() {
        assert!(is_plain(b"req-1/2:a.b+c=@_"));
        for bad in [b"".as_slice(), b"a b", b"a\"b", b"\xff", &[b'a'; 129]] {
            assert!(!is_plain(bad));
        }
    }
}
