//! What a request says of its signature, in the `Authorization` header or in the query.

use super::{ALGORITHM, Instant};
use crate::encode::{argument, pairs, read_hex32};
use crate::error::{ErrorCode, S3Error};

/// What a signing key is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// `YYYYMMDD`.
    pub day: String,
    /// The region.
    pub region: String,
    /// `s3`.
    pub service: String,
}

impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}/aws4_request", self.day, self.region, self.service)
    }
}

/// A signature and what it says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) access_key: String,
    pub(super) scope: Scope,
    /// Sorted, lower case.
    pub(super) signed_headers: Vec<String>,
    pub(super) signature: [u8; 32],
    /// Of a presigned URL: when it was signed, and for how many seconds it is good.
    pub(super) presigned: Option<(Instant, u64)>,
    /// Of a presigned URL: what the query says of the body.
    pub(super) content_sha256: Option<String>,
}

/// Longest life of a presigned URL: a week.
const LONGEST: u64 = 604_800;
/// Most headers that may be signed.
const MOST_HEADERS: usize = 128;

fn malformed(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::AuthorizationHeaderMalformed, message)
}

fn wrong_query(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::AuthorizationQueryParametersError, message)
}

/// `AKID/20130524/us-east-1/s3/aws4_request`; the key may have slashes.
fn credential(text: &str) -> Option<(String, Scope)> {
    let mut parts = text.rsplitn(5, '/');
    let (end, service, region, day, key) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_day = day.len() == 8 && day.bytes().all(|b| b.is_ascii_digit());
    let is_right =
        end == "aws4_request" && is_day && !key.is_empty() && !region.is_empty() && !service.is_empty();
    is_right.then(|| {
        (
            key.to_owned(),
            Scope { day: day.to_owned(), region: region.to_owned(), service: service.to_owned() },
        )
    })
}

/// `host;x-amz-date`: sorted, so that the canonical request can be made of them as they are.
fn signed_headers(text: &str) -> Option<Vec<String>> {
    let names: Vec<String> = text.split(';').map(str::to_owned).collect();
    let is_name = |name: &String| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic() && !b.is_ascii_uppercase() && b != b':')
    };
    let are_right = names.len() <= MOST_HEADERS
        && names.iter().all(is_name)
        && names.windows(2).all(|pair| pair.first() < pair.last())
        && names.iter().any(|name| name == "host");
    are_right.then_some(names)
}

impl Claim {
    /// Reads an `Authorization` header.
    pub(super) fn of_header(text: &str) -> Result<Self, S3Error> {
        let rest = text.strip_prefix(ALGORITHM).and_then(|rest| rest.strip_prefix([' ', ',']));
        let rest = rest.ok_or_else(|| {
            S3Error::new(ErrorCode::InvalidRequest, "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.")
        })?;
        let (mut credentials, mut headers, mut signature) = (None, None, None);
        for part in rest.split(',') {
            let (name, value) = part
                .trim()
                .split_once('=')
                .ok_or_else(|| malformed("The authorization header is malformed."))?;
            let field = match name {
                "Credential" => &mut credentials,
                "SignedHeaders" => &mut headers,
                "Signature" => &mut signature,
                _ => return Err(malformed("The authorization header has a field that is not known.")),
            };
            if field.replace(value).is_some() {
                return Err(malformed("The authorization header has a field twice."));
            }
        }
        let (access_key, scope) = credentials
            .and_then(credential)
            .ok_or_else(|| malformed("The Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\"."))?;
        let signed_headers = headers.and_then(signed_headers).ok_or_else(|| {
            malformed("SignedHeaders must name the signed headers, \"host\" among them, sorted.")
        })?;
        let signature = signature
            .and_then(|text| read_hex32(text.as_bytes()))
            .ok_or_else(|| malformed("The Signature is not 64 hexadecimal digits."))?;
        Ok(Self { access_key, scope, signed_headers, signature, presigned: None, content_sha256: None })
    }

    /// Reads the query of a presigned URL; `None` = it is none.
    pub(super) fn of_query(query: &str) -> Result<Option<Self>, S3Error> {
        let mut fields: [(&str, Option<String>); 7] = [
            ("X-Amz-Algorithm", None),
            ("X-Amz-Credential", None),
            ("X-Amz-Date", None),
            ("X-Amz-Expires", None),
            ("X-Amz-SignedHeaders", None),
            ("X-Amz-Signature", None),
            ("X-Amz-Content-Sha256", None),
        ];
        for (name, value) in pairs(query) {
            let name = argument(name);
            let Some((_, field)) = fields.iter_mut().find(|(known, _)| *known == name) else { continue };
            if field.replace(argument(value).into_owned()).is_some() {
                return Err(wrong_query("An X-Amz- query parameter stands there twice."));
            }
        }
        let [algorithm, credentials, date, expires, headers, signature, content] =
            fields.map(|(_, value)| value);
        let Some(algorithm) = algorithm else { return Ok(None) };
        if algorithm != ALGORITHM {
            return Err(wrong_query("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        let missing = || {
            wrong_query(
                "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, X-Amz-Signature, \
                 X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.",
            )
        };
        let (credentials, date, expires) =
            (credentials.ok_or_else(missing)?, date.ok_or_else(missing)?, expires.ok_or_else(missing)?);
        let (headers, signature) = (headers.ok_or_else(missing)?, signature.ok_or_else(missing)?);
        let (access_key, scope) = credential(&credentials).ok_or_else(|| {
            wrong_query("Error parsing the X-Amz-Credential parameter; the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".")
        })?;
        let date = Instant::read(&date).ok_or_else(|| {
            wrong_query("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")
        })?;
        let expires: u64 = expires.parse().map_err(|_| wrong_query("X-Amz-Expires should be a number"))?;
        if !(1..=LONGEST).contains(&expires) {
            return Err(wrong_query("X-Amz-Expires must be between 1 second and a week (604800 seconds)"));
        }
        let signed_headers = signed_headers(&headers).ok_or_else(|| {
            wrong_query("X-Amz-SignedHeaders must name the signed headers, \"host\" among them, sorted.")
        })?;
        let signature = read_hex32(signature.as_bytes())
            .ok_or_else(|| wrong_query("X-Amz-Signature is not 64 hexadecimal digits."))?;
        Ok(Some(Self {
            access_key,
            scope,
            signed_headers,
            signature,
            presigned: Some((date, expires)),
            content_sha256: content,
        }))
    }
}
