//! Percent signs and hexadecimal digits, as S3 wants them.

use std::borrow::Cow;

/// The value of a hexadecimal digit.
fn digit(byte: Option<&u8>) -> Option<u8> {
    char::from(*byte?).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// Bytes with `%xx` read; a `%` that begins nothing stays itself.
pub fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match (byte, digit(tail.first()), digit(tail.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push(high << 4 | low);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => out.push(byte),
        }
    }
    Cow::Owned(out)
}

const UPPER: &[u8; 16] = b"0123456789ABCDEF";
const LOWER: &[u8; 16] = b"0123456789abcdef";

fn put_hex(out: &mut Vec<u8>, byte: u8, digits: &[u8; 16]) {
    out.extend(digits.get(usize::from(byte >> 4)));
    out.extend(digits.get(usize::from(byte & 15)));
}

/// Puts bytes so that only unreserved characters (and `/` where `slash` says so) stand for themselves: SigV4's encoding.
pub fn put_encoded(out: &mut Vec<u8>, bytes: &[u8], slash: bool) {
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || slash && byte == b'/' {
            out.push(byte);
        } else {
            out.push(b'%');
            put_hex(out, byte, UPPER);
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len() * 2);
    bytes.iter().for_each(|&byte| put_hex(&mut out, byte, LOWER));
    String::from_utf8(out).unwrap_or_default()
}

/// 32 bytes of 64 hexadecimal digits in lower case, as signatures and hashes are written.
pub fn read_hex32(text: &[u8]) -> Option<[u8; 32]> {
    if text.len() != 64 || text.iter().any(u8::is_ascii_uppercase) {
        return None;
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair.first())? << 4 | digit(pair.get(1))?;
    }
    Some(out)
}

/// The arguments of a query in order, as they are written.
pub fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// A name or value of a query, with `%xx` read.
pub fn argument(text: &str) -> Cow<'_, str> {
    match decoded(text.as_bytes()) {
        Cow::Borrowed(_) => Cow::Borrowed(text),
        Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_again() {
        let all: Vec<u8> = (0..=255).collect();
        let mut out = Vec::new();
        put_encoded(&mut out, &all, false);
        assert_eq!(decoded(&out).as_ref(), all);
        assert_eq!(decoded(b"a%2fb%zz%").as_ref(), b"a/b%zz%");
        let digits = hex(&all[..32]);
        assert_eq!(read_hex32(digits.as_bytes()).unwrap().as_slice(), &all[..32]);
        assert_eq!(read_hex32(digits.to_uppercase().as_bytes()), None);
        assert_eq!(read_hex32(b"00"), None);
    }
}
