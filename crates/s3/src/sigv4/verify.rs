//! Whether a request was signed by who it says.

use super::parse::{Claim, Scope};
use super::{ALGORITHM, Instant, Message, Payload, SigningKey};
use crate::encode::hex;
use crate::error::{ErrorCode, S3Error};
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq;

/// What is asked of signatures beyond being right.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The region that signatures must be for; `None` = any.
    pub region: Option<String>,
    /// Seconds by which a client's clock may differ.
    pub skew: u64,
    /// Whether a header's signature may leave the body out.
    pub unsigned_payload: bool,
}

/// What a request's signature shows.
#[derive(Debug, Clone)]
pub struct Verified {
    /// Whose it is.
    pub access_key: String,
    /// What the head says of the body.
    pub payload: Payload,
    /// With what the body's chunks are signed.
    pub chunks: Chunks,
    /// It stood in the query.
    pub presigned: bool,
}

/// What the signatures of chunks go on from.
#[derive(Debug, Clone)]
pub struct Chunks {
    /// The key.
    pub key: SigningKey,
    /// `20130524T000000Z\n20130524/us-east-1/s3/aws4_request\n`.
    pub stamp: String,
    /// The signature before.
    pub last: [u8; 32],
}

/// Verifies a request. `secret` finds the secret key of an access key.
///
/// # Errors
/// What S3 answers to it. Without any signature that is `AccessDenied`.
pub fn verify(
    message: &Message<'_>,
    now: Instant,
    policy: &Policy,
    secret: impl FnOnce(&str) -> Option<String>,
) -> Result<Verified, S3Error> {
    let claim = claim_of(message)?;
    let date = judge_time(message, &claim, now, policy)?;
    judge_scope(&claim, date, policy)?;
    if let Some(name) = unsigned_header(message, &claim) {
        let error = S3Error::new(
            ErrorCode::AccessDenied,
            "There were headers present in the request which were not signed",
        );
        return Err(error.with("HeadersNotSigned", name));
    }
    let (statement, payload) = payload_of(message, &claim, policy)?;
    let secret = secret(&claim.access_key).ok_or_else(|| {
        S3Error::new(
            ErrorCode::InvalidAccessKeyId,
            "The AWS Access Key Id you provided does not exist in our records.",
        )
        .with("AWSAccessKeyId", claim.access_key.clone())
    })?;
    if message.headers.contains_key("x-amz-security-token") {
        return Err(S3Error::new(
            ErrorCode::InvalidToken,
            "The provided token is malformed or otherwise invalid.",
        ));
    }
    let key = SigningKey::derive(&secret, &claim.scope);
    let names: Vec<&str> = claim.signed_headers.iter().map(String::as_str).collect();
    let stamp = format!("{date}\n{}\n", claim.scope);
    let text = format!("{ALGORITHM}\n{stamp}{}", message.canonical_hash(&names, statement.as_bytes()));
    let made = key.sign(text.as_bytes());
    if !bool::from(made.ct_eq(&claim.signature)) {
        return Err(mismatch(&claim));
    }
    let chunks = Chunks { key, stamp, last: made };
    Ok(Verified { access_key: claim.access_key, payload, chunks, presigned: claim.presigned.is_some() })
}

fn mismatch(claim: &Claim) -> S3Error {
    let message = "The request signature we calculated does not match the signature you provided. Check your key and signing method.";
    S3Error::new(ErrorCode::SignatureDoesNotMatch, message)
        .with("AWSAccessKeyId", claim.access_key.clone())
        .with("SignatureProvided", hex(&claim.signature))
}

fn claim_of(message: &Message<'_>) -> Result<Claim, S3Error> {
    let of_query = Claim::of_query(message.query.unwrap_or_default())?;
    let mut headers = message.headers.get_all(AUTHORIZATION).iter();
    match (headers.next(), headers.next(), of_query) {
        (None, _, Some(claim)) => Ok(claim),
        (Some(_), _, Some(_)) | (Some(_), Some(_), None) => {
            let message = "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
                           parameter or the Authorization header should be specified";
            Err(S3Error::new(ErrorCode::InvalidArgument, message))
        }
        (Some(header), None, None) => {
            let text = header.to_str().map_err(|_| {
                S3Error::new(
                    ErrorCode::AuthorizationHeaderMalformed,
                    "The authorization header is malformed.",
                )
            })?;
            Claim::of_header(text.trim())
        }
        (None, _, None) => Err(S3Error::new(ErrorCode::AccessDenied, "Access Denied")),
    }
}

/// When it was signed, if that is near enough.
fn judge_time(
    message: &Message<'_>,
    claim: &Claim,
    now: Instant,
    policy: &Policy,
) -> Result<Instant, S3Error> {
    if let Some((date, expires)) = claim.presigned {
        if now.0 > date.0.saturating_add(expires) {
            let end = Instant(date.0.saturating_add(expires));
            let error = S3Error::new(ErrorCode::AccessDenied, "Request has expired");
            return Err(error
                .with("X-Amz-Expires", expires.to_string())
                .with("Expires", end.to_string())
                .with("ServerTime", now.to_string()));
        }
        if date.0 > now.0.saturating_add(policy.skew) {
            return Err(S3Error::new(ErrorCode::AccessDenied, "Request is not yet valid"));
        }
        return Ok(date);
    }
    let text = message.headers.get("x-amz-date").and_then(|value| value.to_str().ok());
    let date = text.and_then(|text| Instant::read(text.trim())).ok_or_else(|| {
        S3Error::new(ErrorCode::AccessDenied, "AWS authentication requires a valid x-amz-date header")
    })?;
    if now.0.abs_diff(date.0) > policy.skew {
        let message = "The difference between the request time and the current time is too large.";
        let error =
            S3Error::new(ErrorCode::RequestTimeTooSkewed, message).with("RequestTime", date.to_string());
        let most = (policy.skew * 1000).to_string();
        return Err(error.with("ServerTime", now.to_string()).with("MaxAllowedSkewMilliseconds", most));
    }
    Ok(date)
}

fn judge_scope(claim: &Claim, date: Instant, policy: &Policy) -> Result<(), S3Error> {
    let code = match claim.presigned {
        Some(_) => ErrorCode::AuthorizationQueryParametersError,
        None => ErrorCode::AuthorizationHeaderMalformed,
    };
    let Scope { day, region, service } = &claim.scope;
    if *day != date.day() {
        return Err(S3Error::new(code, "Invalid credential date. This date is not the same as X-Amz-Date."));
    }
    if service != "s3" {
        return Err(S3Error::new(
            code,
            "Incorrect service in the credential scope; this endpoint belongs to \"s3\".",
        ));
    }
    match &policy.region {
        Some(wanted) if wanted != region => {
            let message = format!(
                "The authorization header is malformed; the region '{region}' is wrong; expecting '{wanted}'"
            );
            Err(S3Error::new(code, message).with("Region", wanted.clone()))
        }
        _ => Ok(()),
    }
}

/// A header that has to be signed and is not. A server behind would believe it.
fn unsigned_header(message: &Message<'_>, claim: &Claim) -> Option<String> {
    let is_signed = |name: &str| claim.signed_headers.iter().any(|signed| signed == name);
    let missing = claim.signed_headers.iter().find(|name| !message.has(name));
    let unsigned = message.headers.keys().map(http::HeaderName::as_str).find(|name| {
        let reads_as_amz =
            name.starts_with("x-amz-") || name.contains('_') && name.replace('_', "-").starts_with("x-amz-");
        // What a presigned URL says of the body may be repeated in a header.
        let is_statement = claim.presigned.is_some() && *name == "x-amz-content-sha256";
        reads_as_amz && !is_statement && !is_signed(name)
    });
    missing.map(String::as_str).or(unsigned).map(str::to_owned)
}

/// The statement about the body that is signed, and what it means.
fn payload_of<'a>(
    message: &Message<'a>,
    claim: &'a Claim,
    policy: &Policy,
) -> Result<(&'a str, Payload), S3Error> {
    let header = message.headers.get("x-amz-content-sha256").map(|value| value.to_str().unwrap_or_default());
    let signed = header.filter(|_| claim.signed_headers.iter().any(|name| name == "x-amz-content-sha256"));
    let statement = match (&claim.presigned, signed.or(claim.content_sha256.as_deref())) {
        (_, Some(statement)) => statement,
        (Some(_), None) => "UNSIGNED-PAYLOAD",
        (None, None) => {
            return Err(S3Error::new(
                ErrorCode::InvalidRequest,
                "Missing required header for this request: x-amz-content-sha256",
            ));
        }
    };
    let payload = Payload::read(statement.as_bytes()).ok_or_else(|| {
        let message = "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, STREAMING-AWS4-HMAC-SHA256-PAYLOAD, \
                       STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER, or a valid sha256 value.";
        S3Error::new(ErrorCode::InvalidArgument, message)
    })?;
    let has_body_signed = !matches!(payload, Payload::Unsigned | Payload::Chunked { signed: false, .. });
    if claim.presigned.is_none() && !has_body_signed && !policy.unsigned_payload {
        return Err(S3Error::new(ErrorCode::AccessDenied, "Bodies have to be signed here."));
    }
    Ok((statement, payload))
}
