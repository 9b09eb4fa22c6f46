//! The variables of requests, under the names that APISIX and nginx give them.

use crate::client::conn::Conn;
use crate::clock;
use crate::request::record::Record;
use http::header::{HeaderMap, HeaderName};
use std::borrow::Cow;
use std::net::IpAddr;
use towpath_route::RequestView;
use towpath_route::vars::{Name, Template, Value, request_var};

/// A request, with its response once that is there, as expressions and templates look at it.
#[derive(Clone, Copy)]
pub(crate) struct Vars<'a> {
    pub(crate) record: &'a Record,
    /// Headers as plugins have left them.
    pub(crate) headers: &'a HeaderMap,
    /// Headers of the response.
    pub(crate) reply: Option<&'a HeaderMap>,
}

impl<'a> Vars<'a> {
    /// The value of a variable as text; `None` = it has none.
    pub(crate) fn text(&self, name: &Name) -> Option<String> {
        let read = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        towpath_route::vars::Vars::var(self, name).and_then(|value| value.with_text(read))
    }

    /// A template filled in, and how many of its variables have a value.
    pub(crate) fn fill(&self, template: &Template) -> (String, usize) {
        let mut text = Vec::new();
        let found = template.fill(self, |piece| text.extend_from_slice(piece));
        (
            String::from_utf8(text).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
            found,
        )
    }

    /// The same with each value (or each that `which` wants) passed through `escape`; what the template itself says stays.
    pub(crate) fn fill_escaped(
        &self,
        template: &Template,
        which: fn(&Name) -> bool,
        escape: fn(&[u8]) -> Vec<u8>,
    ) -> String {
        let mut text = Vec::new();
        template.fill(&Escaped { vars: *self, which, escape }, |piece| text.extend_from_slice(piece));
        String::from_utf8_lossy(&text).into_owned()
    }

    /// A variable that does not stand in the request itself.
    pub(crate) fn other(&self, name: &str) -> Option<Cow<'a, str>> {
        if let Some(set) = self.record.running.as_ref().and_then(|running| {
            running.vars.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
        }) {
            return Some(set.into());
        }
        for kind in ["sent_http_", "upstream_http_", "resp_header_"] {
            if let Some(rest) = name.strip_prefix(kind) {
                return self.reply.and_then(|reply| header_of(reply, rest));
            }
        }
        self.of_request(name).or_else(|| self.of_route(name)).or_else(|| self.of_answer(name))
    }

    /// The first value of an argument of the query, decoded. One without `=` is empty.
    pub(crate) fn argument(&self, name: &str) -> Option<Cow<'a, str>> {
        let query = self.record.uri.query()?;
        query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(key) == name).then(|| decoded(value))
        })
    }

    /// The value of a cookie.
    pub(crate) fn cookie(&self, name: &str) -> Option<Cow<'a, str>> {
        self.headers.get_all(http::header::COOKIE).iter().find_map(|line| {
            let line = std::str::from_utf8(line.as_bytes()).ok()?;
            line.split(';').find_map(|pair| {
                let (key, value) = pair.split_once('=')?;
                (key.trim() == name).then(|| value.trim().into())
            })
        })
    }

    fn of_request(&self, name: &str) -> Option<Cow<'a, str>> {
        let record = self.record;
        let conn: &Conn = &record.conn;
        Some(match name {
            "realip_remote_addr" => conn.client().to_string().into(),
            "remote_port" => record.client_port().to_string().into(),
            "realip_remote_port" => conn.peer.port().to_string().into(),
            "server_addr" => conn.local?.ip().to_canonical().to_string().into(),
            "server_protocol" if record.version == http::Version::HTTP_2 => "HTTP/2.0".into(),
            "server_protocol" => "HTTP/1.1".into(),
            "request_id" | "apisix_request_id" => String::from_utf8_lossy(record.id.as_bytes()),
            "content_length" | "content_type" => header_of(self.headers, name)?,
            "remote_user" => remote_user(self.headers)?.into(),
            "hostname" => nix::sys::utsname::uname().ok()?.nodename().to_string_lossy().into_owned().into(),
            "pid" => std::process::id().to_string().into(),
            "ssl_server_name" => conn.tls.get()?.name.as_deref()?.into(),
            "ssl_protocol" => match conn.tls.get()?.version? {
                rustls::ProtocolVersion::TLSv1_2 => "TLSv1.2".into(),
                _ => "TLSv1.3".into(),
            },
            "ssl_cipher" => conn.tls.get()?.cipher?.as_str()?.replacen("TLS13_", "TLS_", 1).into(),
            "ssl_client_verify" if conn.tls.get()?.verified => "SUCCESS".into(),
            "ssl_client_verify" => "NONE".into(),
            "msec" => format!("{:.3}", clock::unix_ms() as f64 / 1000.0).into(),
            "request_length" => record.bytes_in().to_string().into(),
            _ => return None,
        })
    }

    fn of_route(&self, name: &str) -> Option<Cow<'a, str>> {
        let running = self.record.running.as_ref()?;
        let consumer = running.consumer.as_ref();
        match name {
            "consumer_name" => return consumer.map(|consumer| consumer.name.as_str().into()),
            "consumer_group_id" => return consumer?.group.as_deref().map(Cow::from),
            "credential_id" => return running.credential.as_deref().map(Cow::from),
            _ => {}
        }
        let about = &running.program.as_ref()?.about;
        Some(match name {
            "route_id" => about.route.as_str().into(),
            "route_name" => about.name.as_deref()?.into(),
            "service_id" => about.service.as_deref()?.into(),
            "service_name" => about.service_name.as_deref()?.into(),
            "matched_uri" => about.matched.as_deref()?.into(),
            _ => return None,
        })
    }

    fn of_answer(&self, name: &str) -> Option<Cow<'a, str>> {
        let record = self.record;
        let chosen = record.chosen.as_ref();
        let seconds = |ns: u64| format!("{:.3}", ns as f64 / 1e9);
        Some(match name {
            "status" => (record.status > 0).then(|| record.status.to_string())?.into(),
            "upstream_status" => record.upstream_status.filter(|_| chosen.is_some())?.to_string().into(),
            "upstream_addr" => chosen?.endpoint.address().to_string().into(),
            "balancer_ip" => ip_of(&chosen?.endpoint.address().to_string()).to_owned().into(),
            "balancer_port" => chosen?.endpoint.address().to_string().rsplit(':').next()?.to_owned().into(),
            "upstream_host" => String::from_utf8_lossy(record.upstream_host()),
            "upstream_uri" => record.upstream_target().into(),
            "upstream_scheme" => record.upstream_scheme().into(),
            "upstream_response_time" | "upstream_header_time" => seconds(record.upstream_ns()?).into(),
            "upstream_latency" => (record.upstream_ns()? / 1_000_000).to_string().into(),
            "request_time" => seconds(clock::now_ns().saturating_sub(record.started_ns())).into(),
            "apisix_latency" => {
                let all = clock::now_ns().saturating_sub(record.started_ns());
                (all.saturating_sub(record.upstream_ns().unwrap_or_default()) / 1_000_000).to_string().into()
            }
            "bytes_sent" | "body_bytes_sent" => record.bytes_out.to_string().into(),
            "time_iso8601" => record.conn.worker.at_wall_clock(record.started_ns(), |second, _| {
                format!("{}+00:00", String::from_utf8_lossy(second)).into()
            }),
            _ => return None,
        })
    }
}

/// Variables whose values cannot be taken for syntax.
struct Escaped<'a> {
    vars: Vars<'a>,
    which: fn(&Name) -> bool,
    escape: fn(&[u8]) -> Vec<u8>,
}

impl towpath_route::vars::Vars for Escaped<'_> {
    fn var<'v>(&'v self, name: &'v Name) -> Option<Value<'v>> {
        let value = self.vars.var(name)?;
        if !(self.which)(name) {
            return Some(value);
        }
        value.with_text(self.escape).map(|text| Value::Text(Cow::Owned(text)))
    }
}

/// A text as a value.
pub(crate) fn value(text: Cow<'_, str>) -> Value<'_> {
    match text {
        Cow::Borrowed(text) => Value::text(text),
        Cow::Owned(text) => Value::Text(Cow::Owned(text.into_bytes())),
    }
}

/// A header whose name is written with underscores.
pub(crate) fn header_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let direct = HeaderName::from_bytes(name.replace('_', "-").as_bytes()).ok()?;
    let mut values = headers.get_all(direct).iter();
    let first = String::from_utf8_lossy(values.next()?.as_bytes());
    let mut rest = values.peekable();
    if rest.peek().is_none() {
        return Some(first);
    }
    let rest = rest.map(|value| String::from_utf8_lossy(value.as_bytes()));
    Some(rest.fold(first.into_owned(), |all, value| format!("{all}, {value}")).into())
}

/// A text of a query with `%xx` and `+` decoded.
pub(crate) fn decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) {
        return text.into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        let hex = |b: Option<&u8>| b.and_then(|&b| char::from(b).to_digit(16));
        match (byte, hex(tail.first()), hex(tail.get(1))) {
            (b'+', _, _) => out.push(b' '),
            (b'%', Some(high), Some(low)) => {
                out.push((high << 4 | low) as u8);
                rest = tail.get(2..).unwrap_or_default();
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned().into()
}

impl towpath_route::vars::Vars for Vars<'_> {
    fn var<'v>(&'v self, name: &'v Name) -> Option<Value<'v>> {
        if name.is_path() {
            return Some(Value::Text(self.record.matched_path()));
        }
        request_var(self, name)
    }
}

impl RequestView for Vars<'_> {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        self.headers.get_all(name).iter().nth(nth).map(http::HeaderValue::as_bytes)
    }

    fn path(&self) -> &str {
        self.record.uri.path()
    }

    fn query(&self) -> Option<&str> {
        self.record.client_query()
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.record.client())
    }

    fn inside(&self) -> bool {
        false
    }

    fn method(&self) -> &str {
        self.record.method.as_str()
    }

    fn scheme(&self) -> &str {
        self.record.scheme()
    }

    fn host(&self) -> Option<&[u8]> {
        Some(self.record.host())
    }

    fn port(&self) -> Option<u16> {
        self.record.conn.local.map(|local| local.port())
    }

    fn variable(&self, name: &str) -> Option<Value<'_>> {
        self.other(name).map(value)
    }
}

fn ip_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

fn remote_user(headers: &HeaderMap) -> Option<String> {
    use base64::Engine;
    let value = headers.get(http::header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, code) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(base64::engine::general_purpose::STANDARD.decode(code.trim()).ok()?).ok()?;
    text.split_once(':').map(|(user, _)| user.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_they_are_meant() {
        assert_eq!(decoded("a+b%20c%2"), "a b c%2");
        assert_eq!(decoded("%E4%BD%A0"), "你");
    }

    #[test]
    fn a_header_is_found_by_its_name_with_underscores() {
        let mut headers = HeaderMap::new();
        headers.append("x-one", "1".parse().unwrap());
        headers.append("x-one", "2".parse().unwrap());
        assert_eq!(header_of(&headers, "x_one").unwrap(), "1, 2");
        assert_eq!(header_of(&headers, "x_two"), None);
    }
}
