//! Values of variables.

use std::borrow::Cow;
use std::fmt;
use std::io::Write;
use std::net::IpAddr;

/// The value of a variable. Most are texts that lie in the request.
#[derive(Debug, Clone, PartialEq)]
pub enum Value<'v> {
    /// A text, not necessarily UTF-8.
    Text(Cow<'v, [u8]>),
    /// A number, which is a text too for whoever wants one.
    Number(f64),
    /// Yes or no.
    Bool(bool),
    /// An address, which is a text too.
    Address(IpAddr),
    /// Several values, for `has`.
    List(Vec<Value<'v>>),
}

/// A number as text: without a point if it is whole.
#[derive(Debug, Clone, Copy)]
pub struct Number(pub f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.fract() == 0.0 && self.0.abs() < 1e15 { write!(f, "{:.0}", self.0) } else { self.0.fmt(f) }
    }
}

impl<'v> Value<'v> {
    /// A text that lies in the request.
    pub fn text(text: &'v (impl AsRef<[u8]> + ?Sized)) -> Self {
        Value::Text(Cow::Borrowed(text.as_ref()))
    }

    /// Gives the value as text to `read`; `None` for yes, no and lists, which are no texts.
    pub fn with_text<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let mut room = [0; 64];
        match self {
            Value::Text(text) => Some(read(text)),
            Value::Number(number) => written(&mut room, Number(*number)).map(read),
            Value::Address(address) => written(&mut room, address).map(read),
            Value::Bool(_) | Value::List(_) => None,
        }
    }

    /// The value as a number, if it is one or reads as one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Text(text) => number(text),
            _ => None,
        }
    }

    /// The value as an address, if it is one or reads as one.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Value::Address(address) => Some(*address),
            Value::Text(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }
}

fn written(room: &mut [u8; 64], what: impl fmt::Display) -> Option<&[u8]> {
    let mut rest = room.as_mut_slice();
    write!(rest, "{what}").ok()?;
    let left = rest.len();
    room.get(..64 - left)
}

/// Reads a number as Lua does: decimal or `0x…`, blanks around it permitted; no words such as `inf`.
pub fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text.trim_ascii()).ok()?;
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, text.get(1..)?),
        [b'+', ..] => (false, text.get(1..)?),
        _ => (false, text),
    };
    let size = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok()? as f64,
        Some(_) => return None,
        None => {
            let first = digits.bytes().next().is_some_and(|b| b.is_ascii_digit() || b == b'.');
            let all =
                digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'-' | b'+'));
            if !first || !all {
                return None;
            }
            digits.parse::<f64>().ok()?
        }
    };
    Some(if negative { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_lua_reads_them() {
        for (text, want) in [
            ("10", Some(10.0)),
            (" 10 ", Some(10.0)),
            ("-1.5", Some(-1.5)),
            ("+2", Some(2.0)),
            (".5", Some(0.5)),
            ("5.", Some(5.0)),
            ("1e3", Some(1000.0)),
            ("0x1F", Some(31.0)),
            ("-0x10", Some(-16.0)),
            ("", None),
            ("-", None),
            ("1 2", None),
            ("v1", None),
            ("inf", None),
            ("nan", None),
            ("--1", None),
            ("0x", None),
            ("0xg", None),
            ("e5", None),
        ] {
            assert_eq!(number(text.as_bytes()), want, "{text:?}");
        }
    }

    #[test]
    fn numbers_and_addresses_are_texts_too() {
        let text = |value: Value<'_>| value.with_text(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(text(Value::Number(8080.0)).as_deref(), Some("8080"));
        assert_eq!(text(Value::Number(0.25)).as_deref(), Some("0.25"));
        assert_eq!(text(Value::Number(1e300)), None);
        assert_eq!(text(Value::Address("::1".parse().unwrap())).as_deref(), Some("::1"));
        assert_eq!(text(Value::Bool(true)), None);
    }
}
