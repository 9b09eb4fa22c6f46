//! Object storage: the plugins that know S3. What they know stands in `towpath-s3`; here is what they do.

pub(in crate::plugins) mod admission;
pub(in crate::plugins) mod auth;
mod body;
mod onward;
mod slots;
pub(in crate::plugins) mod switch;

use crate::plugins::{Answer, Request};
use crate::request::record::Record;
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use towpath_s3::{S3Error, Seen, Unclear};

/// What S3 makes of a request as the client sent it.
fn recognise<'a>(
    record: &'a Record,
    headers: &HeaderMap,
    base_domains: &[String],
) -> Result<Seen<'a>, Unclear> {
    let host = std::str::from_utf8(record.host()).unwrap_or_default();
    let (path, query) = (record.uri.path(), record.uri.query());
    towpath_s3::recognise(record.method.as_str(), path, query, host, headers, base_domains)
}

/// A refusal in S3's words.
fn refusal(error: &S3Error, path: &str, id: &str) -> Answer {
    let answer = Answer {
        status: error.status(),
        headers: vec![(CONTENT_TYPE, HeaderValue::from_static("application/xml"))],
        body: Some(error.xml(path, id).into()),
    };
    answer.with_text(HeaderName::from_static("x-amz-request-id"), id)
}

/// The same of a request.
fn refused(error: &S3Error, request: &Request<'_>) -> Answer {
    refusal(error, request.record.uri.path(), &String::from_utf8_lossy(request.record.id.as_bytes()))
}
