//! Which operation a request is.
//!
//! Bucket and key come from the path, or the bucket from the host where that lies under a base domain. Of the query's arguments
//! those count that are sub-resources at this level; all others are parameters. A request that different servers could take for
//! different operations is none: it is [`Unclear`], so that nothing that is switched off is reached by a spelling.

use crate::encode::{argument, decoded, pairs};
use crate::error::{ErrorCode, S3Error};
use crate::operation::{Level, Mark, Operation, Row, TABLE};
use http::HeaderMap;
use std::borrow::Cow;

/// What a request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The operation. `None` = the preflight question of a browser, which is about another request.
    pub operation: Option<Operation>,
    /// The bucket, decoded.
    pub bucket: Option<Cow<'a, str>>,
    /// The key as it stands in the path.
    pub key: Option<&'a str>,
    /// Whether the bucket came from the host.
    pub virtual_host: bool,
}

/// Why a request is no operation of S3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unclear {
    /// The path has an empty bucket, segments `.` or `..`, or a slash that hides in the bucket's name; or the host, where base
    /// domains are known, has an empty label.
    Path,
    /// Two sub-resources.
    Conflict(&'static str, &'static str),
    /// The method does nothing to what it is asked of.
    Method,
}

impl Unclear {
    /// How S3 says it.
    pub fn error(self) -> S3Error {
        match self {
            Self::Path => S3Error::new(ErrorCode::InvalidURI, "Couldn't parse the specified URI."),
            Self::Conflict(one, other) => S3Error::new(
                ErrorCode::InvalidArgument,
                format!("Conflicting query string parameters: {one}, {other}"),
            ),
            Self::Method => S3Error::new(
                ErrorCode::MethodNotAllowed,
                "The specified method is not allowed against this resource.",
            ),
        }
    }
}

/// A host without its port.
fn bare(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => name,
        _ => host,
    }
}

/// The bucket in a host under one of the base domains, in lower case; of several the longest counts.
///
/// # Errors
/// The host has an empty label (a dot at its end makes one): servers that know the base domains could take it for another
/// bucket, or for none.
pub fn bucket_of_host<'a>(host: &'a str, base_domains: &[String]) -> Result<Option<Cow<'a, str>>, Unclear> {
    let host = bare(host);
    if !base_domains.is_empty() && !host.is_empty() && host.split('.').any(str::is_empty) {
        return Err(Unclear::Path);
    }
    let under = |base: &String| {
        let at = host.len().checked_sub(base.len())?;
        let (front, end) = (host.get(..at)?, host.get(at..)?);
        end.eq_ignore_ascii_case(base).then(|| front.strip_suffix('.')).flatten()
    };
    let found = base_domains.iter().filter_map(under).min_by_key(|bucket| bucket.len());
    Ok(found.map(|bucket| {
        if bucket.bytes().any(|byte| byte.is_ascii_uppercase()) {
            bucket.to_ascii_lowercase().into()
        } else {
            bucket.into()
        }
    }))
}

/// Whether a server that tidies paths would read another path out of this one.
fn is_untidy(path: &str) -> bool {
    let path = decoded(path.as_bytes());
    path.split(|&b| b == b'/').any(|segment| segment == b"." || segment == b"..")
}

struct Place<'a> {
    bucket: Option<Cow<'a, str>>,
    key: Option<&'a str>,
    virtual_host: bool,
}

fn place<'a>(path: &'a str, host: &'a str, base_domains: &[String]) -> Result<Place<'a>, Unclear> {
    let rest = path.strip_prefix('/').ok_or(Unclear::Path)?;
    if is_untidy(path) {
        return Err(Unclear::Path);
    }
    let key = |key: &'a str| (!key.is_empty()).then_some(key);
    if let Some(bucket) = bucket_of_host(host, base_domains)? {
        return Ok(Place { bucket: Some(bucket), key: key(rest), virtual_host: true });
    }
    if rest.is_empty() {
        return Ok(Place { bucket: None, key: None, virtual_host: false });
    }
    let (bucket, rest) = rest.split_once('/').unwrap_or((rest, ""));
    let bucket = argument(bucket);
    if bucket.is_empty() || bucket.contains(['/', '\\', '\u{fffd}', '\0']) {
        return Err(Unclear::Path);
    }
    Ok(Place { bucket: Some(bucket), key: key(rest), virtual_host: false })
}

/// Recognises a request by its method, path and query as they are on the wire, its host and its headers.
///
/// # Errors
/// What makes it unclear.
pub fn recognise<'a>(
    method: &str,
    path: &'a str,
    query: Option<&str>,
    host: &'a str,
    headers: &HeaderMap,
    base_domains: &[String],
) -> Result<Seen<'a>, Unclear> {
    let Place { bucket, key, virtual_host } = place(path, host, base_domains)?;
    if method == "OPTIONS" {
        return Ok(Seen { operation: None, bucket, key, virtual_host });
    }
    let level = match (&bucket, key) {
        (None, _) => Level::Service,
        (Some(_), None) => Level::Bucket,
        (Some(_), Some(_)) => Level::Object,
    };
    let query = query.unwrap_or_default();
    let sub = sub_resource(level, query)?;
    let fits = |row: &&Row| {
        row.level == level
            && row.method == method
            && row.sub == sub
            && row.marks.iter().all(|mark| has_mark(*mark, query, headers))
    };
    let found = TABLE.iter().find(fits).map(|row| row.operation);
    // Without the part's number it is no part of an upload.
    let found = found.or_else(|| {
        let is_put = method == "PUT" && sub == "uploadId";
        let copies = has_mark(Mark::Header("x-amz-copy-source"), query, headers);
        is_put.then_some(if copies { Operation::CopyObject } else { Operation::PutObject })
    });
    match found {
        Some(operation) => Ok(Seen { operation: Some(operation), bucket, key, virtual_host }),
        None => Err(Unclear::Method),
    }
}

/// The one sub-resource that the query names; empty = none.
fn sub_resource(level: Level, query: &str) -> Result<&'static str, Unclear> {
    let mut found = "";
    for (name, _) in pairs(query) {
        let name = argument(name);
        let known = TABLE.iter().find(|row| row.level == level && !row.sub.is_empty() && row.sub == name);
        let Some(row) = known else { continue };
        if !found.is_empty() && found != row.sub {
            return Err(Unclear::Conflict(found, row.sub));
        }
        found = row.sub;
    }
    Ok(found)
}

fn has_mark(mark: Mark, query: &str, headers: &HeaderMap) -> bool {
    match mark {
        Mark::Header(name) => headers.contains_key(name),
        Mark::Argument(wanted) => pairs(query).any(|(name, _)| argument(name) == wanted),
        Mark::Is(wanted, value) => {
            pairs(query).any(|(name, given)| argument(name) == wanted && argument(given) == value)
        }
    }
}

/// The value of an argument of the query, decoded.
pub fn argument_of<'a>(query: Option<&'a str>, wanted: &str) -> Option<Cow<'a, str>> {
    pairs(query.unwrap_or_default())
        .find(|(name, _)| argument(name) == wanted)
        .map(|(_, value)| argument(value))
}

/// The access key that a request says it is of; nobody has verified that.
pub fn claimed_access_key<'a>(query: Option<&'a str>, headers: &'a HeaderMap) -> Option<Cow<'a, str>> {
    let first = |credential: &str| credential.split('/').next().map(str::to_owned);
    if let Some(header) = headers.get(http::header::AUTHORIZATION) {
        let text = header.to_str().ok()?;
        if let Some(rest) = text.strip_prefix("AWS ") {
            return rest.split(':').next().map(|key| key.trim().into());
        }
        let (_, rest) = text.split_once("Credential=")?;
        return rest.split([',', '/', ' ']).next().map(Cow::from);
    }
    if let Some(credential) = argument_of(query, "X-Amz-Credential") {
        return first(&credential).map(Cow::from);
    }
    argument_of(query, "AWSAccessKeyId")
}

#[cfg(test)]
mod tests;
