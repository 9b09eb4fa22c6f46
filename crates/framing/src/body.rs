//! The body scanner: how far the body of the present request reaches.

use super::head::{has_control, is_token_byte};
use super::{BodyFraming, FramingLimits, Refusal};

/// Longest chunk-size line, extensions included.
const CHUNK_LINE_BYTES: usize = 1024;
/// Longest name that is compared with the forbidden ones.
const NAME_BYTES: usize = 20;

/// Scans one body.
#[derive(Debug, Clone)]
pub struct BodyScanner {
    state: State,
    /// Bytes of the present chunk-size line.
    line: usize,
    /// Bytes and lines of the trailers.
    trailer_bytes: usize,
    trailer_lines: usize,
    name: [u8; NAME_BYTES],
    name_len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes are left.
    Length(u64),
    /// Hex digits of a chunk size; how many so far, and their value.
    Size {
        digits: u8,
        size: u64,
    },
    /// In a chunk extension.
    Extension {
        size: u64,
    },
    /// The LF of a chunk-size line.
    SizeLf {
        size: u64,
    },
    /// So many bytes of chunk data are left.
    Data(u64),
    /// The CR, then the LF after chunk data.
    DataCr,
    DataLf,
    /// At the start of a trailer line, or of the blank one.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLf,
    /// The LF of the last, blank line.
    EndLf,
    Done,
}

impl BodyScanner {
    /// A scanner at the start of a body.
    pub fn new(framing: BodyFraming) -> Self {
        let state = match framing {
            BodyFraming::None => State::Done,
            BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(bytes) => State::Length(bytes),
            BodyFraming::Chunked => State::Size { digits: 0, size: 0 },
        };
        Self { state, line: 0, trailer_bytes: 0, trailer_lines: 0, name: [0; NAME_BYTES], name_len: 0 }
    }

    /// Whether the body has ended.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what belongs to the body: how many leading bytes that is. On a violation, how many were good, and why.
    pub fn advance(&mut self, bytes: &[u8], limits: FramingLimits) -> Result<usize, (usize, Refusal)> {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.state {
                State::Done => break,
                State::Length(left) | State::Data(left) => {
                    let take = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len() - at);
                    *left -= take as u64;
                    at += take;
                    if *left == 0 {
                        self.state =
                            if matches!(self.state, State::Data(_)) { State::DataCr } else { State::Done };
                    }
                }
                _ => {
                    let Some(&byte) = bytes.get(at) else { break };
                    self.state = self.step(byte, limits).map_err(|refusal| (at, refusal))?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8, limits: FramingLimits) -> Result<State, Refusal> {
        match self.state {
            State::Size { .. } | State::Extension { .. } | State::SizeLf { .. } => self.size_step(byte),
            State::DataCr if byte == b'\r' => Ok(State::DataLf),
            State::DataLf if byte == b'\n' => {
                self.line = 0;
                Ok(State::Size { digits: 0, size: 0 })
            }
            State::DataCr | State::DataLf => Err(Refusal::ChunkEnd),
            _ => self.trailer_step(byte, limits),
        }
    }

    fn size_step(&mut self, byte: u8) -> Result<State, Refusal> {
        self.line += 1;
        if self.line > CHUNK_LINE_BYTES {
            return Err(Refusal::ChunkExtension);
        }
        match (self.state, byte) {
            (State::Size { digits, size }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if digits < 15 => {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                Ok(State::Size { digits: digits + 1, size: size * 16 + u64::from(digit) })
            }
            (State::Size { digits: 1.., size }, b';') => Ok(State::Extension { size }),
            (State::Size { digits: 1.., size } | State::Extension { size }, b'\r') => {
                Ok(State::SizeLf { size })
            }
            (State::Extension { size }, _) if !has_control(&[byte]) => Ok(State::Extension { size }),
            (State::Extension { .. }, _) => Err(Refusal::ChunkExtension),
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeLf { size }, b'\n') => Ok(State::Data(size)),
            (State::SizeLf { .. }, _) => Err(Refusal::BareCr),
            _ => Err(Refusal::ChunkSize),
        }
    }

    fn trailer_step(&mut self, byte: u8, limits: FramingLimits) -> Result<State, Refusal> {
        self.trailer_bytes += 1;
        if self.trailer_bytes > limits.head_bytes || self.trailer_lines > limits.headers {
            return Err(Refusal::Trailer);
        }
        match (self.state, byte) {
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::EndLf, b'\n') => Ok(State::Done),
            (State::TrailerStart | State::TrailerName, _) if is_token_byte(byte) => {
                if self.state == State::TrailerStart {
                    self.name_len = 0;
                    self.trailer_lines += 1;
                }
                if let Some(slot) = self.name.get_mut(self.name_len) {
                    *slot = byte.to_ascii_lowercase();
                }
                self.name_len += 1;
                Ok(State::TrailerName)
            }
            (State::TrailerName, b':') if self.is_permitted_trailer() => Ok(State::TrailerValue),
            (State::TrailerValue, b'\r') => Ok(State::TrailerLf),
            (State::TrailerValue, _) if !has_control(&[byte]) => Ok(State::TrailerValue),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            _ => Err(Refusal::Trailer),
        }
    }

    /// Framing, routing and authentication may not come late (RFC 9110, 6.5.1).
    fn is_permitted_trailer(&self) -> bool {
        let name = self.name.get(..self.name_len).unwrap_or_default();
        !matches!(
            name,
            b"content-length"
                | b"transfer-encoding"
                | b"host"
                | b"connection"
                | b"upgrade"
                | b"te"
                | b"trailer"
                | b"authorization"
                | b"cookie"
                | b"set-cookie"
                | b"content-encoding"
                | b"content-type"
                | b"content-range"
        )
    }
}
