//! How a response stands in two files. Its head: a checksum and a JSON document. Its body: blocks, each with its length and its
//! checksum in front.

use super::entry::Times;
use super::{Digest, Head};
use flate2::Crc;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use std::io::{self, Read};
use uuid::Uuid;

/// Bytes of a whole block.
pub(crate) const BLOCK: usize = 64 * 1024;
/// Bytes in front of one.
pub(crate) const BEFORE: usize = 8;

/// The head's document.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Meta {
    key: Uuid,
    variant: Uuid,
    vary: Vec<String>,
    status: u16,
    /// Values may be of any bytes: each is a character up to U+00FF.
    headers: Vec<(String, String)>,
    /// Bytes of the body.
    pub(crate) length: u64,
    pub(crate) times: Times,
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = Crc::new();
    crc.update(bytes);
    crc.sum()
}

impl Meta {
    /// Of a response.
    pub(crate) fn of(
        (key, variant): (&Digest, &Digest),
        vary: &[HeaderName],
        head: &Head,
        length: u64,
        times: Times,
    ) -> Self {
        let text = |value: &HeaderValue| value.as_bytes().iter().map(|&byte| char::from(byte)).collect();
        Self {
            key: Uuid::from_bytes(*key),
            variant: Uuid::from_bytes(*variant),
            vary: vary.iter().map(ToString::to_string).collect(),
            status: head.status,
            headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
            length,
            times,
        }
    }

    /// As bytes.
    pub(crate) fn write(&self) -> Vec<u8> {
        let text = serde_json::to_vec(self).unwrap_or_default();
        [format!("{:08x}\n", crc(&text)).into_bytes(), text].concat()
    }

    /// From bytes.
    pub(crate) fn read(bytes: &[u8]) -> io::Result<Self> {
        let (sum, text) = bytes.split_at_checked(9).ok_or(wrong("the head is short"))?;
        if sum != format!("{:08x}\n", crc(text)).as_bytes() {
            return Err(wrong("the head's checksum is wrong"));
        }
        serde_json::from_slice(text).map_err(io::Error::other)
    }

    /// What it is the response to.
    pub(crate) fn of_what(&self) -> (Digest, Digest) {
        (*self.key.as_bytes(), *self.variant.as_bytes())
    }

    /// The headers that it varies by.
    pub(crate) fn vary(&self) -> Vec<HeaderName> {
        self.vary.iter().filter_map(|name| name.parse().ok()).collect()
    }

    /// Status and headers.
    pub(crate) fn head(&self) -> Head {
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let value: Vec<u8> = value.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect();
            if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), HeaderValue::from_bytes(&value)) {
                headers.append(name, value);
            }
        }
        Head { status: self.status, headers }
    }
}

/// What stands in front of a block.
pub(crate) fn before(block: &[u8]) -> [u8; BEFORE] {
    let mut out = [0; BEFORE];
    let length = u32::try_from(block.len()).unwrap_or(u32::MAX).to_le_bytes();
    out.iter_mut().zip(length.into_iter().chain(crc(block).to_le_bytes())).for_each(|(to, from)| *to = from);
    out
}

/// Bytes of the file of a body.
pub(crate) fn file_bytes(length: u64) -> u64 {
    length + length.div_ceil(BLOCK as u64) * BEFORE as u64
}

/// Reads the next block; `left` = bytes of the body that are to come.
pub(crate) fn read_block(file: &mut impl Read, left: u64) -> io::Result<Vec<u8>> {
    let mut before = [0; BEFORE];
    file.read_exact(&mut before)?;
    let number = |at: usize| {
        let four = before.get(at..at + 4).and_then(|four| <[u8; 4]>::try_from(four).ok());
        u32::from_le_bytes(four.unwrap_or_default())
    };
    let length = number(0) as usize;
    if length == 0 || length > BLOCK || length as u64 > left {
        return Err(wrong("a block's length is wrong"));
    }
    let mut block = vec![0; length];
    file.read_exact(&mut block)?;
    if crc(&block) != number(4) {
        return Err(wrong("a block's checksum is wrong"));
    }
    Ok(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        let mut headers = HeaderMap::new();
        headers.append("x", HeaderValue::from_bytes(b"\xff\xe9 a").unwrap());
        headers.append("x", HeaderValue::from_static("2"));
        let times = Times { stored: 1, age: 2, life: 3, while_fetched: 4, if_error: 5 };
        let vary = [HeaderName::from_static("accept")];
        Meta::of((&[1; 16], &[2; 16]), &vary, &Head { status: 404, headers }, 7, times)
    }

    #[test]
    fn a_head_comes_back_as_it_was_and_a_changed_one_does_not() {
        let bytes = meta().write();
        let back = Meta::read(&bytes).unwrap();
        let head = back.head();
        assert_eq!((back.of_what(), head.status, back.length), (([1; 16], [2; 16]), 404, 7));
        let values: Vec<&[u8]> = head.headers.get_all("x").iter().map(HeaderValue::as_bytes).collect();
        assert_eq!(
            (values, back.vary()),
            (vec![&b"\xff\xe9 a"[..], b"2"], vec![HeaderName::from_static("accept")])
        );
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert!(Meta::read(&other).is_err(), "{at}");
            assert!(Meta::read(&bytes[..at]).is_err(), "{at}");
        }
    }

    #[test]
    fn a_block_with_a_changed_byte_is_refused() {
        let block = [before(b"hello").as_slice(), b"hello"].concat();
        assert_eq!(read_block(&mut block.as_slice(), 5).unwrap(), b"hello");
        assert!(read_block(&mut block.as_slice(), 4).is_err(), "more than is to come");
        for at in 0..block.len() {
            let mut other = block.clone();
            other[at] ^= 1;
            assert!(read_block(&mut other.as_slice(), 5).is_err(), "{at}");
            assert!(read_block(&mut &block[..at], 5).is_err(), "{at}");
        }
        assert_eq!((file_bytes(0), file_bytes(5), file_bytes(65_537)), (0, 13, 65_553));
    }
}
