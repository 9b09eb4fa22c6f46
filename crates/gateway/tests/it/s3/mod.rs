//! Object storage through a real gateway: who signs, what is switched off, who waits.

mod admission;
mod auth;
mod bodies;
mod switch;

use crate::support::Answer;
use http::{HeaderMap, HeaderName};
use std::time::{SystemTime, UNIX_EPOCH};
use towpath_s3::encode::{hex, read_hex32};
use towpath_s3::sigv4::{Chunks, Credentials, Instant, Outgoing, Scope, SigningKey, sha256, sign};

const SECRET: &str = "secret/of+jack";

/// The text of an element of an S3 document.
fn element(answer: &Answer, name: &str) -> String {
    let text = answer.text();
    let inner =
        text.split_once(&format!("<{name}>")).and_then(|(_, rest)| rest.split_once(&format!("</{name}>")));
    inner.unwrap_or_else(|| panic!("no {name} in {text}")).0.to_owned()
}

/// Status and code of a refusal.
fn refusal(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/xml"), "{}", answer.text());
    assert_eq!(Some(element(answer, "RequestId").as_str()), answer.header("x-amz-request-id"));
    (answer.status, element(answer, "Code"))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn jack() -> Credentials {
    Credentials { access_key: "AKJACK".into(), secret_key: SECRET.into(), region: "us-east-1".into() }
}

/// A request's head, signed by jack.
struct Signed {
    method: &'static str,
    target: &'static str,
    lines: Vec<(&'static str, String)>,
    payload: String,
    at: u64,
    by: Credentials,
}

impl Signed {
    fn new(method: &'static str, target: &'static str) -> Self {
        Self { method, target, lines: Vec::new(), payload: "UNSIGNED-PAYLOAD".into(), at: now(), by: jack() }
    }

    fn line(mut self, name: &'static str, value: impl ToString) -> Self {
        self.lines.push((name, value.to_string()));
        self
    }

    fn payload(mut self, statement: impl Into<String>) -> Self {
        self.payload = statement.into();
        self
    }

    /// With the hash of this body.
    fn hash_of(self, body: &[u8]) -> Self {
        self.payload(hex(&sha256(body)))
    }

    fn headers(&self) -> HeaderMap {
        let (path, query) =
            self.target.split_once('?').map_or((self.target, None), |(path, query)| (path, Some(query)));
        let mut headers: HeaderMap = self
            .lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()))
            .collect();
        let outgoing =
            Outgoing { method: self.method, path, query, host: b"s3.test", payload: &self.payload };
        sign(&outgoing, &mut headers, &self.by, Instant(self.at));
        headers
    }

    /// The head as text, and what the signatures of chunks go on from.
    fn head(&self) -> (String, Chunks) {
        let headers = self.headers();
        let mut text = format!("{} {} HTTP/1.1\r\nhost: s3.test\r\n", self.method, self.target);
        for (name, value) in &headers {
            text.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
        }
        let authorization = headers["authorization"].to_str().unwrap();
        let signature = authorization.rsplit_once("Signature=").unwrap().1;
        let day = Instant(self.at).day();
        let scope = Scope { day, region: self.by.region.clone(), service: "s3".into() };
        let stamp = format!("{}\n{scope}\n", Instant(self.at));
        let key = SigningKey::derive(&self.by.secret_key, &scope);
        (text + "\r\n", Chunks { key, stamp, last: read_hex32(signature.as_bytes()).unwrap() })
    }

    fn text(&self) -> String {
        self.head().0
    }
}

/// The resources of most tests: jack, and one route with these plugins.
fn resources(address: std::net::SocketAddr, plugins: serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "consumers": [{"username": "jack", "plugins": {"s3-auth": {"access_key": "AKJACK", "secret_key": SECRET}}}],
        "routes": [crate::alone::route(address, plugins)],
    })
}
