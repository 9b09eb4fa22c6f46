//! The context of a trace in headers: W3C's `traceparent`, and B3 in one header or in several.

use crate::request::ids;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use std::fmt::Write;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const B3: HeaderName = HeaderName::from_static("b3");
const B3_TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
const B3_SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
const B3_PARENT: HeaderName = HeaderName::from_static("x-b3-parentspanid");
const B3_SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
const B3_FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

/// What who asks says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    /// `None` = who asks has not decided.
    pub(super) sampled: Option<bool>,
}

/// The headers in which it was said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    W3c,
    B3,
    B3Many,
}

/// What the upstream is told.
pub(super) struct Context {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) parent: Option<[u8; 8]>,
    pub(super) sampled: bool,
}

/// Bytes of so many hex digits; none of only zeros.
pub(super) fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    for (to, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *to = digit(*high)? << 4 | digit(*low)?;
    }
    (out != [0; N]).then_some(out)
}

/// Hex digits.
pub(super) fn text(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// B3's ids of traces may have 16 digits.
fn b3_trace(digits: &[u8]) -> Option<[u8; 16]> {
    if digits.len() == 16 {
        let low: [u8; 8] = hex(digits)?;
        return Some(u128::from(u64::from_be_bytes(low)).to_be_bytes());
    }
    hex(digits)
}

fn b3_sampled(text: &[u8]) -> Option<bool> {
    match text {
        b"1" | b"d" | b"true" => Some(true),
        b"0" | b"false" => Some(false),
        _ => None,
    }
}

/// What who asks says, and how.
pub(super) fn read(headers: &HeaderMap) -> (Option<Parent>, Form) {
    let get = |name: &HeaderName| headers.get(name).map(|value| value.as_bytes().trim_ascii());
    if let Some(value) = get(&TRACEPARENT).filter(|value| ids::is_traceparent(value)) {
        let mut parts = value.split(|&b| b == b'-').skip(1);
        let mut next = || parts.next().unwrap_or_default();
        if let (Some(trace), Some(span)) = (hex(next()), hex(next())) {
            let flags = hex::<1>(next()).map_or(0, |[flags]| flags);
            return (Some(Parent { trace, span, sampled: Some(flags & 1 == 1) }), Form::W3c);
        }
    }
    if let Some(value) = get(&B3) {
        let mut parts = value.split(|&b| b == b'-');
        let mut next = || parts.next().unwrap_or_default();
        if let (Some(trace), Some(span)) = (b3_trace(next()), hex(next())) {
            return (Some(Parent { trace, span, sampled: b3_sampled(next()) }), Form::B3);
        }
    }
    let many = (get(&B3_TRACE).and_then(b3_trace), get(&B3_SPAN).and_then(hex));
    if let (Some(trace), Some(span)) = many {
        let debug = (get(&B3_FLAGS) == Some(b"1")).then_some(true);
        let sampled = debug.or_else(|| get(&B3_SAMPLED).and_then(b3_sampled));
        return (Some(Parent { trace, span, sampled }), Form::B3Many);
    }
    (None, Form::W3c)
}

impl Context {
    /// W3C's form.
    pub(super) fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", text(&self.trace), text(&self.span), u8::from(self.sampled))
    }

    /// Tells the upstream: in W3C's form, and in the one in which it was said.
    pub(super) fn write(&self, headers: &mut HeaderMap, form: Form) {
        let mut put = |name: HeaderName, text: String| {
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.insert(name, value);
            }
        };
        put(TRACEPARENT, self.traceparent());
        let sampled = u8::from(self.sampled).to_string();
        match form {
            Form::W3c => {}
            Form::B3 => put(B3, format!("{}-{}-{sampled}", text(&self.trace), text(&self.span))),
            Form::B3Many => {
                put(B3_TRACE, text(&self.trace));
                put(B3_SPAN, text(&self.span));
                put(B3_SAMPLED, sampled);
                if let Some(parent) = &self.parent {
                    put(B3_PARENT, text(parent));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn contexts_are_read_in_every_form_and_nonsense_is_none() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let sampled =
            |pairs: &[(&'static str, &'static str)]| read(&map(pairs)).0.map(|parent| parent.sampled);
        let w3c = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(sampled(&[("traceparent", w3c), ("b3", "x")]), Some(Some(false)));
        let b3 = "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-d-0000000000000001";
        assert_eq!(sampled(&[("b3", b3)]), Some(Some(true)));
        assert_eq!(sampled(&[("b3", "b7ad6b7169203331-b7ad6b7169203331")]), Some(None));
        let many = [
            ("x-b3-traceid", "0af7651916cd43dd8448eb211c80319c"),
            ("x-b3-spanid", "b7ad6b7169203331"),
            ("x-b3-flags", "1"),
        ];
        let (parent, form) = read(&map(&many));
        assert_eq!((text(&parent.unwrap().trace).as_str(), form), (trace, Form::B3Many));
        for bad in [
            "0",
            "",
            "-",
            "00000000000000000000000000000000-b7ad6b7169203331-1",
            "0af7651916cd43dd8448eb211c80319c",
        ] {
            assert_eq!(read(&map(&[("b3", bad)])).0, None, "{bad}");
        }
    }
}
