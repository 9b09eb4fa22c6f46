//! An instance's answer read from bytes at hand, as connections read it: for fuzz targets and tests.

#![cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "fuzz targets alone see it"))]

use super::Decoder;
use super::decoder::Piece;
use super::response_head::{find_end, parse};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method};

/// How reading ended: status and bytes of the body so far, and whether it came to its end.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// The head is not complete.
    Headless,
    /// The head cannot be used.
    BadHead,
    /// The body cannot be read.
    BadBody(u16, Vec<u8>),
    /// All bytes are used up, the body is not over.
    Unfinished(u16, Vec<u8>),
    /// A whole answer, and how many trailers it has.
    Whole(u16, Vec<u8>, usize),
}

/// Reads an answer that comes in pieces of `step` bytes; to a `HEAD` if `head_only`.
pub fn read_answer(head_only: bool, bytes: &[u8], step: usize) -> Answer {
    let method = if head_only { Method::HEAD } else { Method::GET };
    let (mut from, mut shown) = (0, 0);
    let end = loop {
        shown = (shown + step).min(bytes.len());
        match find_end(bytes.get(..shown).unwrap_or_default(), &mut from) {
            Some(end) => break end,
            None if shown == bytes.len() => return Answer::Headless,
            None => {}
        }
    };
    let head = Bytes::copy_from_slice(bytes.get(..end).unwrap_or_default());
    let Ok(head) = parse(&head, &method, HeaderMap::new()) else { return Answer::BadHead };
    body(head.status.as_u16(), head.decoder, bytes.get(end..).unwrap_or_default(), step)
}

fn body(status: u16, mut decoder: Decoder, bytes: &[u8], step: usize) -> Answer {
    let (mut read, mut input) = (Vec::new(), Bytes::new());
    let mut pieces = bytes.chunks(step);
    loop {
        match decoder.take(&mut input) {
            Err(_) => return Answer::BadBody(status, read),
            Ok(Piece::Data(data)) => read.extend_from_slice(&data),
            Ok(Piece::End(trailers)) => return Answer::Whole(status, read, trailers.map_or(0, |t| t.len())),
            Ok(Piece::More) => {
                let Some(piece) = pieces.next() else { return Answer::Unfinished(status, read) };
                let mut more = BytesMut::from(input.as_ref());
                more.extend_from_slice(piece);
                input = more.freeze();
            }
        }
    }
}
