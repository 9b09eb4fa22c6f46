//! Body framing of responses: takes the body's bytes out of what was read.

use bytes::{Buf, Bytes};
use http::header::{HeaderMap, HeaderName, HeaderValue};

/// How the rest of a body is framed.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// It has ended.
    Done,
    /// So many bytes are left.
    Length(u64),
    /// Chunks.
    Chunked(Box<Chunks>),
    /// Everything up to the end of the connection.
    UntilClose,
}

/// Where in a chunked body the reader is.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    state: ChunkState,
    line: Vec<u8>,
    trailers: Option<HeaderMap>,
    trailer_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum ChunkState {
    #[default]
    Size,
    Data(u64),
    DataEnd(u8),
    Trailers,
}

/// What was taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Body bytes.
    Data(Bytes),
    /// The body has ended; trailers if there were any.
    End(Option<HeaderMap>),
    /// More bytes are needed.
    More,
}

/// Longest chunk-size line.
const LINE_MAX: usize = 1024;
/// Most bytes of trailers.
const TRAILERS_MAX: usize = 16 * 1024;

impl Decoder {
    /// A body of so many bytes.
    pub(crate) fn length(bytes: u64) -> Self {
        if bytes == 0 { Self::Done } else { Self::Length(bytes) }
    }

    /// A body in chunks.
    pub(crate) fn chunked() -> Self {
        Self::Chunked(Box::default())
    }

    /// Bytes that are still to come, if known.
    pub(crate) fn left(&self) -> Option<u64> {
        match self {
            Self::Done => Some(0),
            Self::Length(left) => Some(*left),
            _ => None,
        }
    }

    /// Takes the next piece from the front of `input`.
    pub(crate) fn take(&mut self, input: &mut Bytes) -> Result<Piece, &'static str> {
        let piece = match self {
            Self::Done => Piece::End(None),
            _ if input.is_empty() => Piece::More,
            Self::UntilClose => Piece::Data(std::mem::take(input)),
            Self::Length(left) => {
                let most = usize::try_from(*left).unwrap_or(usize::MAX);
                let data = if input.len() <= most { std::mem::take(input) } else { input.split_to(most) };
                *left -= data.len() as u64;
                Piece::Data(data)
            }
            Self::Chunked(chunks) => chunks.take(input)?,
        };
        if matches!(piece, Piece::End(_)) || matches!(self, Self::Length(0)) {
            *self = Self::Done;
        }
        Ok(piece)
    }
}

impl Chunks {
    fn take(&mut self, input: &mut Bytes) -> Result<Piece, &'static str> {
        loop {
            match &mut self.state {
                ChunkState::Data(left) => {
                    if input.is_empty() {
                        return Ok(Piece::More);
                    }
                    let most = usize::try_from(*left).unwrap_or(usize::MAX);
                    let data = if input.len() <= most { std::mem::take(input) } else { input.split_to(most) };
                    *left -= data.len() as u64;
                    if *left == 0 {
                        self.state = ChunkState::DataEnd(b'\r');
                    }
                    return Ok(Piece::Data(data));
                }
                ChunkState::DataEnd(wanted) => match input.first() {
                    None => return Ok(Piece::More),
                    Some(byte) if byte == wanted => {
                        self.state =
                            if *wanted == b'\r' { ChunkState::DataEnd(b'\n') } else { ChunkState::Size };
                        input.advance(1);
                    }
                    Some(_) => return Err("chunk data does not end with CR LF"),
                },
                ChunkState::Size => {
                    if !self.line(input, LINE_MAX, "a chunk-size line is too long")? {
                        return Ok(Piece::More);
                    }
                    let size = chunk_size(&self.line)?;
                    self.line.clear();
                    self.state = if size == 0 { ChunkState::Trailers } else { ChunkState::Data(size) };
                }
                ChunkState::Trailers => {
                    if !self.line(input, TRAILERS_MAX, "the trailers are too long")? {
                        return Ok(Piece::More);
                    }
                    if self.line.is_empty() {
                        return Ok(Piece::End(self.trailers.take()));
                    }
                    self.trailer()?;
                }
            }
        }
    }

    /// Collects a line without its CR LF; `false` = its end has not come yet.
    fn line(&mut self, input: &mut Bytes, max: usize, error: &'static str) -> Result<bool, &'static str> {
        let end = memchr::memchr(b'\n', input);
        let part = input.split_to(end.map_or(input.len(), |at| at + 1));
        if self.line.len() + part.len() > max {
            return Err(error);
        }
        self.line.extend_from_slice(&part);
        if end.is_none() {
            return Ok(false);
        }
        if self.line.ends_with(b"\r\n") {
            self.line.truncate(self.line.len() - 2);
            Ok(true)
        } else {
            Err("a line of the body's framing ends with LF alone")
        }
    }

    fn trailer(&mut self) -> Result<(), &'static str> {
        self.trailer_bytes += self.line.len();
        if self.trailer_bytes > TRAILERS_MAX {
            return Err("the trailers are too long");
        }
        let colon = memchr::memchr(b':', &self.line).ok_or("a trailer has no colon")?;
        let (name, value) = self.line.split_at(colon);
        let name = HeaderName::from_bytes(name).map_err(|_| "a trailer name is not valid")?;
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        let value = HeaderValue::from_bytes(value).map_err(|_| "a trailer value is not valid")?;
        if !is_framing(&name) {
            self.trailers.get_or_insert_default().append(name, value);
        }
        self.line.clear();
        Ok(())
    }
}

/// What may never come in trailers.
fn is_framing(name: &HeaderName) -> bool {
    use http::header::{CONNECTION, CONTENT_LENGTH, HOST, SET_COOKIE, TRANSFER_ENCODING, UPGRADE};
    matches!(*name, CONNECTION | CONTENT_LENGTH | HOST | SET_COOKIE | TRANSFER_ENCODING | UPGRADE)
}

fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let digits = line.split(|&b| matches!(b, b';' | b' ' | b'\t')).next().unwrap_or_default();
    if digits.is_empty() || digits.len() > 15 {
        return Err("a chunk size is not plain hex digits");
    }
    digits.iter().try_fold(0, |size, &byte| {
        let digit = char::from(byte).to_digit(16).ok_or("a chunk size is not plain hex digits")?;
        Ok(size * 16 + u64::from(digit))
    })
}
