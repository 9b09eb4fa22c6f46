//! The request head that an instance gets: what passes, what is dropped, what is added.

use super::choice::Chosen;
use super::ids;
use super::present::Of;
use super::record::Record;
use crate::access_log::{put_address, put_number};
use crate::worker::Worker;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};
use std::io::Write;
use towpath_route::header_passes;

/// What the head says about the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyLength {
    /// There is none.
    None,
    /// So many bytes.
    Known(u64),
    /// Not known.
    Unknown,
}

/// Headers by which instances are told who asks.
const IDENTITY: [&str; 3] = ["x-consumer-username", "x-consumer-custom-id", "x-credential-identifier"];

/// Takes out what a client says of who it is, where plugins tell instances that.
pub(crate) fn remove_identity(headers: &mut HeaderMap) {
    IDENTITY.iter().for_each(|name| drop(headers.remove(*name)));
}

/// Takes out the spellings with `_` of these names.
pub(crate) fn remove_imitations(headers: &mut HeaderMap, of: &[HeaderName]) {
    let imitates = |name: &HeaderName| {
        name.as_str().contains('_') && of.iter().any(|ours| ours != name && reads_as(name, ours))
    };
    let bad: Vec<_> = headers.keys().filter(|name| imitates(name)).cloned().collect();
    for name in bad {
        headers.remove(name);
    }
}

/// Whether CGI-like servers, which read `_` in a name as `-`, take one for the other.
fn reads_as(name: &HeaderName, ours: &HeaderName) -> bool {
    let (name, ours) = (name.as_str().as_bytes(), ours.as_str().as_bytes());
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte };
    name.len() == ours.len() && name.iter().zip(ours).all(|(a, b)| dashed(*a) == dashed(*b))
}

/// A request head on its way to an instance.
pub(crate) struct Outgoing<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) record: &'a Record,
    pub(crate) chosen: &'a Chosen,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: BodyLength,
    /// Ask for the protocol that the client asked for.
    pub(crate) upgrade: bool,
}

/// Takes out of a request's trailers what has a meaning for framing, routing, identity or trust: it was looked for in the
/// head, and an instance that merges trailers into headers would believe it.
/// `ours` are further names that a gateway or its plugins write.
pub(crate) fn filter_trailers(trailers: &mut HeaderMap, ours: &[HeaderName]) {
    let bad = |name: &HeaderName| {
        !header_passes(name.as_str())
            || IDENTITY.contains(&name.as_str())
            || ours.iter().any(|ours| reads_as(name, ours))
            || name.as_str().starts_with("proxy-")
            || matches!(
                name.as_str(),
                "authorization"
                    | "cookie"
                    | "set-cookie"
                    | "expect"
                    | "trailer"
                    | "baggage"
                    | "tracestate"
                    | "max-forwards"
                    | "content-type"
                    | "content-encoding"
                    | "content-range"
            )
    };
    let bad: Vec<_> = trailers.keys().filter(|name| bad(name)).cloned().collect();
    for name in bad {
        trailers.remove(name);
    }
}

/// Takes out what `Connection` declares to belong to this hop. Once, before anyone sets headers: the client's list says nothing of
/// those. What never passes stays, since the gateway itself reads it.
pub(crate) fn remove_listed(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        for name in listed_names(headers).into_iter().filter(|name| header_passes(name.as_str())) {
            headers.remove(name);
        }
    }
}

/// Headers that `Connection` declares to belong to this hop.
fn listed_names(headers: &HeaderMap) -> Vec<HeaderName> {
    let tokens =
        headers.get_all(header::CONNECTION).iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
    tokens
        .map(<[u8]>::trim_ascii)
        .filter(|token| {
            !["close", "keep-alive", "upgrade", "te"].iter().any(|t| token.eq_ignore_ascii_case(t.as_bytes()))
        })
        .filter_map(|token| HeaderName::from_bytes(token).ok())
        .collect()
}

/// Whether the request asks for a protocol that can be tunnelled.
pub(crate) fn asks_upgrade(record: &Record, headers: &HeaderMap) -> bool {
    record.asks_upgrade
        && record.may_upgrade()
        && (record.version == Version::HTTP_11 || record.connect.is_some())
        && offered(headers).next().is_some()
        && headers.get_all(header::CONNECTION).iter().any(|value| has_token(value, b"upgrade"))
}

/// The protocols that the client offers to switch to, without HTTP/2: behind the gateway that would carry requests that it
/// never sees.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let tokens =
        headers.get_all(header::UPGRADE).iter().flat_map(|value| value.as_bytes().split(|&b| b == b','));
    tokens.map(<[u8]>::trim_ascii).filter(|token| {
        !token.is_empty() && !token.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"h2"))
    })
}

/// Whether an instance may switch to this protocol: it is one of those that were offered.
pub(crate) fn may_switch_to(protocol: Option<&HeaderValue>, headers: &HeaderMap) -> bool {
    protocol.is_some_and(|protocol| {
        let protocol = protocol.as_bytes().trim_ascii();
        offered(headers).any(|token| token.eq_ignore_ascii_case(protocol))
    })
}

fn has_token(value: &HeaderValue, token: &[u8]) -> bool {
    value.as_bytes().split(|&b| b == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token))
}

fn wants_trailers(headers: &HeaderMap) -> bool {
    headers.get_all(header::TE).iter().any(|value| has_token(value, b"trailers"))
}

impl Outgoing<'_> {
    /// Every end-to-end header that goes out, in order.
    fn each(&self, mut put: impl FnMut(&str, &[u8])) {
        let trace = if self.has(Of::Traceparent) { self.headers.get("traceparent") } else { None };
        let trace = trace.filter(|value| ids::is_traceparent(value.as_bytes()));
        for (name, value) in self.headers {
            let mine = (!header_passes(name.as_str()) && !self.record.forces(name.as_str()))
                || (trace.is_none() && name == "tracestate")
                || (!self.lane_header().is_empty() && name.as_str() == self.lane_header());
            if mine {
                continue;
            }
            if self.has(Of::Baggage) && name == "baggage" && !self.chosen.baggage_is_word {
                put_without_lane(value.as_bytes(), &mut put);
                continue;
            }
            put(name.as_str(), value.as_bytes());
        }
        match trace {
            Some(value) => put("traceparent", value.as_bytes()),
            None => put("traceparent", &ids::new_traceparent(self.worker)),
        }
        put("x-request-id", self.record.id.as_bytes());
        self.each_forwarded(&mut put);
        if let Some(tag) = &self.chosen.tag {
            if !self.lane_header().is_empty() {
                put(self.lane_header(), tag.as_str().as_bytes());
            }
            if self.chosen.tag_baggage {
                let mut member = [0; 64];
                let mut rest = member.as_mut_slice();
                let _ = write!(rest, "towpath.lane={}", tag.as_str());
                let left = rest.len();
                put("baggage", member.get(..64 - left).unwrap_or_default());
            }
        }
    }

    fn has(&self, what: Of) -> bool {
        self.record.present.has(what)
    }

    fn lane_header(&self) -> &str {
        &self.chosen.lane_header
    }

    /// Who asked, for whom we ask. From clients that are not trusted nothing of it is taken over.
    fn each_forwarded(&self, put: &mut impl FnMut(&str, &[u8])) {
        let (client, scheme) = (self.record.conn.client(), self.record.conn.scheme.as_str());
        let trusted = self.record.trusted && self.has(Of::XForwarded);
        let given = |name: &str| {
            let value = if trusted { self.headers.get(name) } else { None };
            value.map(HeaderValue::as_bytes)
        };
        let mut put = |name: &str, value: &[u8]| {
            if !self.record.forces(name) {
                put(name, value);
            }
        };
        let mut text = self.worker.piece.borrow_mut();
        text.clear();
        list(&mut text, self.headers, "x-forwarded-for", trusted);
        put_address(&mut text, client);
        put("x-forwarded-for", &text);
        put("x-forwarded-proto", given("x-forwarded-proto").unwrap_or(scheme.as_bytes()));
        put("x-forwarded-host", given("x-forwarded-host").unwrap_or(self.record.host()));
        if let Some(port) = given("x-forwarded-port") {
            put("x-forwarded-port", port);
        }
        if self.chosen.path.is_some() {
            put("x-forwarded-prefix", self.chosen.route.spec.path.as_bytes());
        }
        text.clear();
        list(&mut text, self.headers, "forwarded", self.record.trusted && self.has(Of::Forwarded));
        let (before, after) =
            if client.is_ipv4() { ("for=", ";host=\"") } else { ("for=\"[", "]\";host=\"") };
        text.extend_from_slice(before.as_bytes());
        put_address(&mut text, client);
        text.extend_from_slice(after.as_bytes());
        text.extend_from_slice(self.record.host());
        text.extend_from_slice(b"\";proto=");
        text.extend_from_slice(scheme.as_bytes());
        put("forwarded", &text);
        text.clear();
        list(&mut text, self.headers, "via", self.has(Of::Via));
        text.extend_from_slice(if self.record.version == Version::HTTP_2 {
            b"2 towpath"
        } else {
            b"1.1 towpath"
        });
        put("via", &text);
    }

    fn path(&self) -> &str {
        let rewritten = self.record.rewritten().and_then(|rewritten| rewritten.path.as_deref());
        rewritten.or(self.chosen.path.as_deref()).unwrap_or(self.record.uri.path())
    }

    fn query(&self) -> Option<&str> {
        self.record.sent_query()
    }

    /// Writes an HTTP/1.1 head.
    pub(crate) fn write_h1(&self, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(self.record.sent_method().as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(self.path().as_bytes());
        if let Some(query) = self.query() {
            out.push(b'?');
            out.extend_from_slice(query.as_bytes());
        }
        out.extend_from_slice(b" HTTP/1.1\r\nhost: ");
        out.extend_from_slice(self.record.upstream_host());
        out.extend_from_slice(b"\r\n");
        let h2 = self.record.version == Version::HTTP_2;
        let mut cookies = 0;
        self.each(|name, value| {
            if h2 && name == "cookie" {
                cookies += 1;
                return;
            }
            put_line(out, name, value);
        });
        if cookies > 0 {
            let lines = self.headers.get_all(header::COOKIE);
            let joined = lines.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(b"; ".as_slice());
            put_line(out, "cookie", &joined);
        }
        match self.body {
            BodyLength::Known(length) => {
                out.extend_from_slice(b"content-length: ");
                put_number(out, length);
                out.extend_from_slice(b"\r\n");
            }
            BodyLength::Unknown => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
            BodyLength::None if self.says_empty() => out.extend_from_slice(b"content-length: 0\r\n"),
            BodyLength::None => {}
        }
        if self.upgrade {
            for protocol in offered(self.headers) {
                put_line(out, "upgrade", protocol);
            }
            out.extend_from_slice(b"connection: upgrade\r\n");
        } else if self.has(Of::Te) && wants_trailers(self.headers) {
            out.extend_from_slice(b"te: trailers\r\nconnection: te\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// A request without body says so where the method has a meaning for one.
    fn says_empty(&self) -> bool {
        matches!(*self.record.sent_method(), Method::POST | Method::PUT | Method::PATCH)
            || self.headers.contains_key(header::CONTENT_LENGTH)
    }

    /// Makes an HTTP/2 request.
    pub(crate) fn make_h2<B>(&self, body: B) -> Result<Request<B>, http::Error> {
        let path = self.path();
        let target = match self.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        let scheme = if self.chosen.tls.is_some() { "https" } else { "http" };
        let uri = Uri::builder()
            .scheme(scheme)
            .authority(self.record.upstream_host())
            .path_and_query(target)
            .build()?;
        let mut request = Request::new(body);
        *request.method_mut() = self.record.sent_method().clone();
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_2;
        let mut fault = None;
        let headers = request.headers_mut();
        self.each(|name, value| {
            let value = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(value));
            match (HeaderName::from_bytes(name.as_bytes()), value) {
                (Ok(name), Ok(value)) => {
                    headers.append(name, value);
                }
                (Err(error), _) => fault = Some(error.into()),
                (_, Err(error)) => fault = Some(error.into()),
            }
        });
        if let BodyLength::Known(length) = self.body {
            headers.insert(header::CONTENT_LENGTH, length.into());
        }
        if wants_trailers(self.headers) {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
        }
        fault.map_or(Ok(request), Err)
    }
}

/// Passes baggage on without what it says of a lane: it was not believed, so the instance must not believe it either.
fn put_without_lane(value: &[u8], put: &mut impl FnMut(&str, &[u8])) {
    let is_lane = |member: &[u8]| {
        let name = member.split(|&b| b == b'=').next().unwrap_or_default();
        name.trim_ascii() == b"towpath.lane"
    };
    let members = || value.split(|&b| b == b',');
    if !members().any(is_lane) {
        put("baggage", value);
        return;
    }
    let rest: Vec<_> = members().filter(|member| !is_lane(member)).collect();
    if !rest.is_empty() {
        put("baggage", rest.join(b",".as_slice()).trim_ascii());
    }
}

/// The values of a list header that came, followed by a comma.
fn list(text: &mut Vec<u8>, headers: &HeaderMap, name: &str, present: bool) {
    if present {
        for value in headers.get_all(name) {
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b", ");
        }
    }
}

fn put_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}
