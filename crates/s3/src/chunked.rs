//! Bodies in `aws-chunked`, and plain ones with a hash: read, verified, and handed on piece by piece.
//!
//! **The last piece of a body is held back until all of it is verified**: a server behind never has a whole body that was not.

use crate::checksum::Checksum;
use crate::encode::{hex, read_hex32};
use crate::error::{ErrorCode, S3Error};
use crate::sigv4::{Chunks, EMPTY_SHA256, sha256, to_32};
use bytes::{Buf, Bytes};
use ring::digest;
use std::collections::VecDeque;
use subtle::ConstantTimeEq;

/// Longest head of a chunk.
const LINE: usize = 1024;
/// Longest trailers, all together.
const TRAILERS: usize = 8 * 1024;

/// What goes on to the server behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// The body as it came.
    AsItCame,
    /// What is in its chunks.
    Decoded,
}

/// A body that is verified while it streams.
pub struct Verifier {
    inner: Inner,
    output: Output,
    held: Option<Bytes>,
}

enum Inner {
    Hash { context: Box<digest::Context>, wanted: [u8; 32] },
    Chunks(Box<Decoder>),
}

impl Verifier {
    /// A plain body with this SHA-256.
    pub fn of_hash(wanted: [u8; 32]) -> Self {
        let inner = Inner::Hash { context: Box::new(digest::Context::new(&digest::SHA256)), wanted };
        Self { inner, output: Output::AsItCame, held: None }
    }

    /// A body in chunks.
    pub fn of_chunks(decoder: Decoder, output: Output) -> Self {
        Self { inner: Inner::Chunks(Box::new(decoder)), output, held: None }
    }

    /// A piece came. What may go on now is put into `out`.
    ///
    /// # Errors
    /// What is wrong with the body; nothing more of it may go on.
    pub fn push(&mut self, piece: Bytes, out: &mut VecDeque<Bytes>) -> Result<(), S3Error> {
        match &mut self.inner {
            Inner::Hash { context, .. } => {
                context.update(&piece);
                hold(&mut self.held, piece, out);
            }
            Inner::Chunks(decoder) => {
                let held = &mut self.held;
                match self.output {
                    Output::Decoded => decoder.push(piece, |data| hold(held, data, out))?,
                    Output::AsItCame => {
                        decoder.push(piece.clone(), drop)?;
                        hold(held, piece, out);
                    }
                }
            }
        }
        Ok(())
    }

    /// The body has ended. What was held back goes on if all is well.
    ///
    /// # Errors
    /// What is wrong with the body.
    pub fn end(&mut self) -> Result<Option<Bytes>, S3Error> {
        match &mut self.inner {
            Inner::Hash { context, wanted } => {
                let made = to_32((**context).clone().finish().as_ref());
                if !bool::from(made.ct_eq(wanted)) {
                    let message =
                        "The provided 'x-amz-content-sha256' header does not match what was computed.";
                    let error = S3Error::new(ErrorCode::XAmzContentSHA256Mismatch, message);
                    return Err(error
                        .with("ClientComputedContentSHA256", hex(wanted))
                        .with("S3ComputedContentSHA256", hex(&made)));
                }
            }
            Inner::Chunks(decoder) => decoder.end()?,
        }
        Ok(self.held.take())
    }
}

fn hold(held: &mut Option<Bytes>, piece: Bytes, out: &mut VecDeque<Bytes>) {
    if !piece.is_empty() {
        out.extend(held.replace(piece));
    }
}

/// Reads `aws-chunked`.
pub struct Decoder {
    state: State,
    /// What of a head or trailer has come.
    line: Vec<u8>,
    chunks: Option<Chunks>,
    wanted: [u8; 32],
    context: digest::Context,
    has_trailer: bool,
    checksum: Option<(String, Checksum)>,
    trailers: Vec<(String, String)>,
    trailer_bytes: usize,
    /// Bytes of data still to come, as the head says.
    left: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Data(u64),
    /// So many bytes of the line end after the data have come.
    AfterData(u8),
    Trailers,
    /// Behind the last chunk of a body without trailers only a line end may come.
    Last(u8),
    Done,
}

impl Decoder {
    /// A body of `length` bytes. `chunks` = chunks are signed; `trailer` = names of the trailers that the head announces, if the
    /// body has any.
    ///
    /// # Errors
    /// A trailer that nobody knows.
    pub fn new(length: u64, chunks: Option<Chunks>, trailer: Option<&str>) -> Result<Self, S3Error> {
        let mut checksum = None;
        for name in trailer.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
            let name = name.to_ascii_lowercase();
            let made = Checksum::of_header(&name).filter(|_| checksum.is_none()).ok_or_else(|| {
                S3Error::new(
                    ErrorCode::InvalidRequest,
                    "The value specified in the x-amz-trailer header is not supported",
                )
            })?;
            checksum = Some((name, made));
        }
        Ok(Self {
            state: State::Head,
            line: Vec::new(),
            chunks,
            wanted: [0; 32],
            context: digest::Context::new(&digest::SHA256),
            has_trailer: trailer.is_some(),
            checksum,
            trailers: Vec::new(),
            trailer_bytes: 0,
            left: length,
        })
    }

    /// Reads a piece; `each` gets what is in the chunks.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn push(&mut self, mut piece: Bytes, mut each: impl FnMut(Bytes)) -> Result<(), S3Error> {
        while !piece.is_empty() {
            match self.state {
                State::Head => {
                    if let Some(line) = self.line(&mut piece, LINE)? {
                        self.head(&line)?;
                    }
                }
                State::Data(left) => {
                    let data = piece.split_to(piece.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                    self.data(&data);
                    let left = left - data.len() as u64;
                    self.state = State::Data(left);
                    if left == 0 {
                        self.chunk_ends()?;
                    }
                    each(data);
                }
                State::AfterData(n) => {
                    self.state =
                        if take_line_end(&mut piece, n)? { State::Head } else { State::AfterData(1) };
                }
                State::Last(n) => {
                    self.state = if take_line_end(&mut piece, n)? { State::Done } else { State::Last(1) };
                }
                State::Trailers => {
                    if let Some(line) = self.line(&mut piece, TRAILERS)? {
                        self.trailer(&line)?;
                    }
                }
                State::Done => return Err(malformed()),
            }
        }
        Ok(())
    }

    /// The body has ended.
    ///
    /// # Errors
    /// It ended too early, or its signature or checksum is wrong.
    pub fn end(&mut self) -> Result<(), S3Error> {
        match self.state {
            State::Done | State::Last(0) => {}
            // The empty line after the trailers is left out by some.
            State::Trailers if self.line.is_empty() => self.trailers_end()?,
            State::Trailers if self.line == b"\r" => self.trailers_end()?,
            _ => return Err(incomplete()),
        }
        if self.left > 0 { Err(incomplete()) } else { Ok(()) }
    }

    /// A line without its end, once that is there.
    fn line(&mut self, piece: &mut Bytes, most: usize) -> Result<Option<Vec<u8>>, S3Error> {
        let end = piece.iter().position(|&b| b == b'\n');
        let taken = piece.split_to(end.map_or(piece.len(), |end| end + 1));
        if self.line.len() + taken.len() > most {
            return Err(malformed());
        }
        self.line.extend_from_slice(&taken);
        if end.is_none() {
            return Ok(None);
        }
        let mut line = std::mem::take(&mut self.line);
        line.pop();
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        Ok(Some(line))
    }

    /// `400;chunk-signature=0055…`.
    fn head(&mut self, line: &[u8]) -> Result<(), S3Error> {
        let line = std::str::from_utf8(line).map_err(|_| malformed())?;
        let (size, extension) = line.split_once(';').unwrap_or((line, ""));
        let is_size = (1..=16).contains(&size.len()) && size.bytes().all(|b| b.is_ascii_hexdigit());
        let size = u64::from_str_radix(size, 16).ok().filter(|_| is_size).ok_or_else(malformed)?;
        if self.chunks.is_some() {
            let signature =
                extension.strip_prefix("chunk-signature=").and_then(|text| read_hex32(text.as_bytes()));
            self.wanted = signature.ok_or_else(malformed)?;
        }
        self.left = self.left.checked_sub(size).ok_or_else(incomplete)?;
        if size > 0 {
            self.state = State::Data(size);
            return Ok(());
        }
        self.chunk_ends()?;
        self.state = if self.has_trailer { State::Trailers } else { State::Last(0) };
        Ok(())
    }

    fn data(&mut self, data: &[u8]) {
        if self.chunks.is_some() {
            self.context.update(data);
        }
        if let Some((_, checksum)) = &mut self.checksum {
            checksum.add(data);
        }
    }

    fn chunk_ends(&mut self) -> Result<(), S3Error> {
        self.state = State::AfterData(0);
        let Some(chunks) = &mut self.chunks else { return Ok(()) };
        let context = std::mem::replace(&mut self.context, digest::Context::new(&digest::SHA256));
        let hash = to_32(context.finish().as_ref());
        let (last, stamp) = (hex(&chunks.last), &chunks.stamp);
        let text = format!("AWS4-HMAC-SHA256-PAYLOAD\n{stamp}{last}\n{}\n{}", hex(&EMPTY_SHA256), hex(&hash));
        goes_on(chunks, text.as_bytes(), &self.wanted)
    }

    fn trailer(&mut self, line: &[u8]) -> Result<(), S3Error> {
        if line.is_empty() {
            return self.trailers_end();
        }
        self.trailer_bytes += line.len() + 2;
        let text = std::str::from_utf8(line).map_err(|_| bad_trailer())?;
        let (name, value) =
            text.split_once(':').filter(|_| self.trailer_bytes <= TRAILERS).ok_or_else(bad_trailer)?;
        self.trailers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        Ok(())
    }

    fn trailers_end(&mut self) -> Result<(), S3Error> {
        self.state = State::Done;
        let mut trailers = std::mem::take(&mut self.trailers);
        if let Some(chunks) = &mut self.chunks {
            let at = trailers
                .iter()
                .position(|(name, _)| name == "x-amz-trailer-signature")
                .ok_or_else(bad_trailer)?;
            let (_, signature) = trailers.remove(at);
            let wanted = read_hex32(signature.as_bytes()).ok_or_else(bad_trailer)?;
            let text: String = trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            let (last, stamp) = (hex(&chunks.last), &chunks.stamp);
            let text = format!("AWS4-HMAC-SHA256-TRAILER\n{stamp}{last}\n{}", hex(&sha256(text.as_bytes())));
            goes_on(chunks, text.as_bytes(), &wanted)?;
        }
        let announced = self.checksum.take();
        match (announced, trailers.as_slice()) {
            (None, []) => Ok(()),
            (Some((name, checksum)), [(given, value)]) if name == *given => {
                if checksum.text() == *value {
                    return Ok(());
                }
                let algorithm = name.trim_start_matches("x-amz-checksum-").to_ascii_uppercase();
                Err(S3Error::new(
                    ErrorCode::BadDigest,
                    format!("The {algorithm} you specified did not match the calculated checksum."),
                ))
            }
            _ => Err(bad_trailer()),
        }
    }
}

/// Compares a signature, which then is the one before.
fn goes_on(chunks: &mut Chunks, text: &[u8], wanted: &[u8; 32]) -> Result<(), S3Error> {
    chunks.last = chunks.key.sign(text);
    if bool::from(chunks.last.ct_eq(wanted)) {
        return Ok(());
    }
    let message = "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    Err(S3Error::new(ErrorCode::SignatureDoesNotMatch, message))
}

/// Takes `\r\n`, of which `n` bytes have come; `true` = all of it is there.
fn take_line_end(piece: &mut Bytes, n: u8) -> Result<bool, S3Error> {
    let wanted = if n == 0 { b'\r' } else { b'\n' };
    if piece.first() != Some(&wanted) {
        return Err(malformed());
    }
    piece.advance(1);
    Ok(n == 1)
}

fn malformed() -> S3Error {
    S3Error::new(ErrorCode::InvalidRequest, "The body is not well-formed aws-chunked.")
}

fn incomplete() -> S3Error {
    S3Error::new(
        ErrorCode::IncompleteBody,
        "You did not provide the number of bytes specified by the x-amz-decoded-content-length HTTP header.",
    )
}

fn bad_trailer() -> S3Error {
    S3Error::new(
        ErrorCode::MalformedTrailerError,
        "The request contained trailing data that was not well-formed or did not conform to our published schema.",
    )
}

#[cfg(test)]
mod tests;
