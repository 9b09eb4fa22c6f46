//! Bodies that are compared with what their heads say of them while they stream.

use super::refused;
use crate::plugins::work::outbound;
use crate::plugins::{Answer, Request, Resume, Step};
use crate::upstream::checked_body::{BodyCheck, CheckedBody};
use crate::upstream::request_body::ClientBody;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_ENCODING};
use http::{HeaderMap, HeaderValue};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use towpath_s3::chunked::{Decoder, Output, Verifier};
use towpath_s3::sigv4::{EMPTY_SHA256, Payload, Verified};
use towpath_s3::{ErrorCode, S3Error};

/// Longest body in chunks that has nothing in them.
const NOTHING: u64 = 64 * 1024;
/// Longest wait for such a one.
const NOTHING_TIME: Duration = Duration::from_secs(30);

/// A verifier whose refusal is put where the answer is made.
struct Check {
    verifier: Verifier,
    refusal: Rc<RefCell<Option<Box<Answer>>>>,
    /// Makes the answer; taken by the first refusal.
    answer: Box<dyn Fn(&S3Error) -> Answer>,
}

impl Check {
    fn passes<T>(&self, result: Result<T, S3Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.refusal.replace(Some(Box::new((self.answer)(&error))));
                None
            }
        }
    }
}

impl BodyCheck for Check {
    fn push(&mut self, piece: Bytes, out: &mut VecDeque<Bytes>) -> bool {
        let result = self.verifier.push(piece, out);
        self.passes(result).is_some()
    }

    fn end(&mut self, out: &mut VecDeque<Bytes>) -> bool {
        let result = self.verifier.end();
        self.passes(result).map(|last| out.extend(last)).is_some()
    }
}

/// Puts what compares the body in front of it. `decode` = what is in its chunks goes on.
pub(super) fn check(request: &mut Request<'_>, verified: Verified, decode: bool) -> Step {
    let made = match verified.payload {
        Payload::Unsigned => return Step::Next,
        Payload::Hash(hash) if request.body.is_none() => Err(hash),
        Payload::Hash(hash) => Ok((Verifier::of_hash(hash), None)),
        Payload::Chunked { .. } => match of_chunks(request, verified, decode) {
            Ok(made) => Ok(made),
            Err(error) => return Step::answer(refused(&error, request)),
        },
    };
    let (verifier, length) = match made {
        Ok(made) => made,
        Err(EMPTY_SHA256) => return Step::Next,
        Err(hash) => return end_now(Verifier::of_hash(hash), request),
    };
    if decode && length.is_some() {
        unwrap_head(request.headers);
    }
    let Some(body) = request.body.take() else { return end_now(verifier, request) };
    if length == Some(0) {
        return read_now(verifier, body, decode);
    }
    let record = &*request.record;
    let (uri, id) = (record.uri.clone(), record.id.as_bytes().to_vec());
    let closes = record.version != http::Version::HTTP_2;
    let answer = Box::new(move |error: &S3Error| {
        let answer = super::refusal(error, uri.path(), &String::from_utf8_lossy(&id));
        // The client is still sending.
        if closes { answer.with(CONNECTION, HeaderValue::from_static("close")) } else { answer }
    });
    let refusal = request.running().body_refusal.clone();
    let check = Box::new(Check { verifier, refusal, answer });
    let length = length.filter(|_| decode);
    *request.body = Some(ClientBody::Checked(Box::new(CheckedBody::new(body, check, length))));
    Step::Next
}

/// There is no body.
fn end_now(mut verifier: Verifier, request: &Request<'_>) -> Step {
    match verifier.end() {
        Ok(_) => Step::Next,
        Err(error) => Step::answer(refused(&error, request)),
    }
}

/// A body with nothing in its chunks is read before its head goes on: with that the upstream would have all of it.
fn read_now(mut verifier: Verifier, body: ClientBody, decode: bool) -> Step {
    Step::Wait(Box::pin(async move {
        let reading = outbound::read_up_to(body, NOTHING);
        let read = match tokio::time::timeout(NOTHING_TIME, reading).await {
            Ok(Ok(Some(read))) => Ok(read),
            _ => Err(S3Error::new(
                ErrorCode::IncompleteBody,
                "The body did not arrive, or is larger than it says.",
            )),
        };
        let verified = read.and_then(|read| {
            verifier.push(read.clone(), &mut VecDeque::new())?;
            verifier.end()?;
            Ok(read)
        });
        Box::new(move |request: &mut Request<'_>| match verified {
            Ok(read) => {
                *request.body = (!decode).then_some(ClientBody::Held(read));
                Step::Next
            }
            Err(error) => Step::answer(refused(&error, request)),
        }) as Resume
    }))
}

/// What reads the chunks, and how many bytes are in them.
fn of_chunks(
    request: &Request<'_>,
    verified: Verified,
    decode: bool,
) -> Result<(Verifier, Option<u64>), S3Error> {
    let Payload::Chunked { signed, trailer } = verified.payload else {
        return Err(S3Error::new(ErrorCode::InvalidRequest, "The body is not in chunks."));
    };
    let text = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
    let length =
        text("x-amz-decoded-content-length").and_then(|text| text.trim().parse().ok()).ok_or_else(|| {
            S3Error::new(
                ErrorCode::MissingContentLength,
                "You must provide the x-amz-decoded-content-length HTTP header.",
            )
        })?;
    let trailer = trailer.then(|| text("x-amz-trailer").unwrap_or_default());
    let decoder = Decoder::new(length, signed.then_some(verified.chunks), trailer)?;
    let output = if decode { Output::Decoded } else { Output::AsItCame };
    Ok((Verifier::of_chunks(decoder, output), Some(length)))
}

/// Takes out of the head what is said of chunks.
fn unwrap_head(headers: &mut HeaderMap) {
    for name in ["x-amz-decoded-content-length", "x-amz-trailer", "x-amz-sdk-checksum-algorithm", "trailer"] {
        headers.remove(name);
    }
    let lines = headers.get_all(CONTENT_ENCODING);
    let codings = lines.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    let kept: Vec<&str> = codings
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    match HeaderValue::from_str(&kept.join(",")) {
        Ok(value) if !kept.is_empty() => drop(headers.insert(CONTENT_ENCODING, value)),
        _ => drop(headers.remove(CONTENT_ENCODING)),
    }
}
