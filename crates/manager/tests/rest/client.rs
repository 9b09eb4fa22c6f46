//! A small HTTP client, and a platform to talk to.

use crate::fleet::{FakeCell, FakeGateway, FaultyStore, Fleet, SOON};
use crate::stager::Stager;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use towpath_archive::PackOptions;
use towpath_store::{SqliteStore, Store};
use towpath_types::Digest;

/// A manager with one cell that builds, and one gateway.
pub(crate) struct Platform {
    pub(crate) fleet: Fleet,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) cell: FakeCell,
    pub(crate) gateway: FakeGateway,
    pub(crate) stager: Stager,
    pub(crate) token: String,
    pub(crate) cell_token: String,
}

impl Platform {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut towpath_manager::ManagerSettings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sqlite = SqliteStore::open(&dir.path().join("store.db")).await.unwrap();
        let store = FaultyStore::new(Arc::new(sqlite) as Arc<dyn Store>);
        let (token_file, cell_file) = (dir.path().join("token"), dir.path().join("cell-token"));
        let (first, cell) = (token_file.clone(), cell_file.clone());
        let fleet = Fleet::start_with(dir, store.clone(), |settings| {
            settings.first_token_file = Some(first);
            settings.cell_token_file = Some(cell);
            change(settings);
        })
        .await;
        let read = |path: &PathBuf| std::fs::read_to_string(path).unwrap().trim().to_owned();
        let (token, cell_token) = (read(&token_file), read(&cell_file));
        let gateway = fleet.gateway().await;
        let cell = fleet.cell().await;
        let stager = Stager::start(&fleet, cell.id, cell_token.clone()).await;
        let platform = Self { fleet, store, cell, gateway, stager, token, cell_token };
        let core = platform.fleet.core();
        crate::fleet::until("cell and gateway are heard", || {
            core.soft.cells().len() == 1 && core.soft.gateways().len() == 1
        })
        .await;
        platform
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.fleet.manager.as_ref().unwrap().api_address()
    }

    /// A client with the first token.
    pub(crate) fn api(&self) -> Client {
        Client { address: self.address(), token: Some(self.token.clone()), headers: Vec::new() }
    }

    /// A client with another token.
    pub(crate) fn api_as(&self, token: &str) -> Client {
        Client { token: Some(token.to_owned()), ..self.api() }
    }

    /// Uploads a directory with one file of this content.
    pub(crate) async fn upload(&self, content: &str) -> Digest {
        let (digest, bytes) = source(content);
        let answer = self.api().send(Method::PUT, &format!("/v1/sources/{digest}"), bytes).await;
        assert!(answer.status.is_success(), "{answer:?}");
        digest
    }

    /// Pushes and waits for the end.
    pub(crate) async fn push(&self, app: &str, body: Value) -> Value {
        let accepted = self.api().post(&format!("/v1/apps/{app}/releases"), body).await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED, "{accepted:?}");
        self.end_of(&accepted).await
    }

    /// Waits for the end of an accepted operation.
    pub(crate) async fn end_of(&self, accepted: &Answer) -> Value {
        assert_eq!(accepted.status, StatusCode::ACCEPTED, "{accepted:?}");
        let id = accepted.json()["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/operations/{id}");
        assert_eq!(accepted.headers["location"], path);
        let deadline = tokio::time::Instant::now() + SOON;
        loop {
            let operation = self.api().get(&path).await.json();
            if matches!(operation["phase"].as_str(), Some("succeeded" | "failed")) {
                return operation;
            }
            assert!(tokio::time::Instant::now() < deadline, "not ended: {operation}");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }

    /// The events of an ended operation, as name and data.
    pub(crate) async fn events_of(&self, operation: &Value) -> Vec<(String, Value)> {
        let path = format!("/v1/operations/{}/events", operation["id"].as_str().unwrap());
        parse_events(&self.api().get(&path).await.text())
    }
}

/// Server-sent events as name and data.
pub(crate) fn parse_events(text: &str) -> Vec<(String, Value)> {
    text.split("\n\n")
        .filter_map(|frame| {
            let field =
                |name: &str| frame.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned));
            Some((field("event: ")?, serde_json::from_str(&field("data: ")?).unwrap()))
        })
        .collect()
}

/// A source with one file: digest and bytes.
pub(crate) fn source(content: &str) -> (Digest, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("index.html"), content).unwrap();
    let mut bytes = Vec::new();
    let summary =
        towpath_archive::pack(dir.path(), &PackOptions::default(), &mut bytes, &mut |_| {}).unwrap();
    (summary.digest, bytes)
}

/// Talks to one API.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) token: Option<String>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The code of a problem; checks its form.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{self:?}");
        let json = self.json();
        assert_eq!(json["status"], self.status.as_u16());
        assert_eq!(json["instance"], self.headers["x-request-id"].to_str().unwrap());
        json["code"].as_str().unwrap().to_owned()
    }

    /// The wrong fields of a problem, sorted.
    pub(crate) fn fields(&self) -> Vec<String> {
        let json = self.json();
        let errors = json["errors"].as_array().cloned().unwrap_or_default();
        let mut fields: Vec<_> =
            errors.iter().map(|error| error["field"].as_str().unwrap().to_owned()).collect();
        fields.sort();
        fields
    }

    pub(crate) fn etag(&self) -> String {
        self.headers["etag"].to_str().unwrap().to_owned()
    }
}

impl Client {
    /// With one more header.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) async fn send(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Answer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let task = tokio::spawn(connection);
        let body = body.into();
        let mut request = Request::builder().method(method).uri(path).header("host", "api");
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let response = sender.send_request(request.body(Full::new(body)).unwrap()).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        task.abort();
        Answer { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, "").await
    }

    pub(crate) async fn head(&self, path: &str) -> Answer {
        self.send(Method::HEAD, path, "").await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, "").await
    }

    pub(crate) async fn json(&self, method: Method, path: &str, body: Value) -> Answer {
        self.clone().with("content-type", "application/json").send(method, path, body.to_string()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.json(Method::POST, path, body).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        self.json(Method::PUT, path, body).await
    }

    pub(crate) async fn patch(&self, path: &str, body: Value) -> Answer {
        self.json(Method::PATCH, path, body).await
    }
}

/// The body of a push of this source.
pub(crate) fn push_of(source: Digest) -> Value {
    json!({"source": source.to_string()})
}
