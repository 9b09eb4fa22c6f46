//! The variables that stand in every request.

use super::name::What;
use super::{Name, Value, Vars};
use crate::request::{RequestView, cookies, lines, parameters};
use std::borrow::Cow;

/// The value of a variable of a request: what it has itself, else what [`RequestView::variable`] knows.
pub fn request_var<'v>(request: &'v impl RequestView, name: &'v Name) -> Option<Value<'v>> {
    let text = |text: &'v str| (!text.is_empty()).then(|| Value::text(text));
    match &name.what {
        What::Header(header) => request.header(header, 0).map(Value::text),
        What::Cookie(cookie) => {
            lines(request, "cookie").find_map(|line| cookies(line, cookie).next()).map(Value::text)
        }
        What::Arg(arg) => {
            let raw = request.query().and_then(|query| parameters(query, arg).next())?;
            Some(Value::Text(decoded(raw)))
        }
        What::Method => text(request.method()),
        What::Scheme => text(request.scheme()),
        What::Host => request.host().map(bare).map(Value::Text),
        What::Uri => text(request.path()),
        What::RequestUri => Some(Value::Text(match request.query() {
            None => Cow::Borrowed(request.path().as_bytes()),
            Some(query) => Cow::Owned(format!("{}?{query}", request.path()).into_bytes()),
        })),
        What::Args => request.query().map(Value::text),
        What::IsArgs => Some(Value::text(if request.query().is_some() { "?" } else { "" })),
        What::RemoteAddr => request.client().map(Value::Address),
        What::ServerPort => request.port().map(|port| Value::Number(f64::from(port))),
        What::Param(_) | What::Other => request.variable(name.as_str()),
    }
}

/// A request as something with variables, before a route is chosen.
#[derive(Debug, Clone, Copy)]
pub struct RequestVars<'r, R>(pub &'r R);

impl<R: RequestView> Vars for RequestVars<'_, R> {
    fn var<'v>(&'v self, name: &'v Name) -> Option<Value<'v>> {
        request_var(self.0, name)
    }
}

/// The host without its port, in lower case.
fn bare(host: &[u8]) -> Cow<'_, [u8]> {
    let end = match host.first() {
        Some(b'[') => host.iter().position(|byte| *byte == b']').map_or(host.len(), |at| at + 1),
        _ => host.iter().position(|byte| *byte == b':').unwrap_or(host.len()),
    };
    let host = host.get(..end).unwrap_or_default();
    if host.iter().any(u8::is_ascii_uppercase) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

/// A query parameter with its escapes decoded, `+` being a blank.
fn decoded(raw: &[u8]) -> Cow<'_, [u8]> {
    if !raw.iter().any(|byte| matches!(byte, b'%' | b'+')) {
        return Cow::Borrowed(raw);
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'+', _) => out.push(b' '),
            (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                out.push(crate::path::hex(*high) << 4 | crate::path::hex(*low));
                rest = tail;
            }
            _ => out.push(*byte),
        }
    }
    Cow::Owned(out)
}
