//! A gateway with a table made by hand, raw clients and raw instances.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use towpath_bus::Bus;
use towpath_gateway::{Gateway, GatewaySettings};
use towpath_testkit::TempDir;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A routing table: apps, their routes, one cell with instances.
#[derive(Clone)]
pub struct World {
    pub items: Vec<Value>,
    pub instances: Vec<Value>,
}

pub fn app_ref(name: &str) -> Value {
    json!({"org": "default", "space": "default", "app": name})
}

pub fn instance_id(n: u64) -> String {
    format!("0190a5e0-0000-7000-8000-{n:012}")
}

impl World {
    pub fn new() -> Self {
        let space = json!({
            "kind": "space", "space": {"org": "default", "space": "default"}, "lanes": {}, "names": ["base", "blue", "red"],
        });
        Self { items: vec![space], instances: Vec::new() }
    }

    /// An app at `<name>.localhost`, with fields of its upstream's spec.
    pub fn app(mut self, name: &str, upstream: Value) -> Self {
        self.items.push(json!({
            "kind": "app", "app": app_ref(name), "upstream": upstream, "stopped": false, "lanes": ["base", "blue"],
        }));
        self.items.push(
            json!({"kind": "route", "host": format!("{name}.localhost"), "path": "/", "app": app_ref(name)}),
        );
        self
    }

    pub fn item(mut self, item: Value) -> Self {
        self.items.push(item);
        self
    }

    /// An instance in base, ready for long.
    pub fn instance(self, app: &str, address: SocketAddr) -> Self {
        self.instance_with(app, address, json!({}))
    }

    /// An instance with other fields.
    pub fn instance_with(mut self, app: &str, address: SocketAddr, more: Value) -> Self {
        let mut instance = json!({
            "instance": instance_id(self.instances.len() as u64 + 1), "app": app_ref(app), "lane": "base",
            "release": format!("sha256:{}", "0".repeat(64)), "port": address.port(), "protocol": "http1", "weight": 100,
            "state": "ready", "state_ms": 1_000_000, "restarts": 0, "reason": "",
            "load": {"cpu": 0.1, "mem": 0.1, "io": 0.0}, "memory_bytes": 0, "pid": 0,
        });
        for (key, value) in more.as_object().unwrap() {
            instance[key] = value.clone();
        }
        self.instances.push(instance);
        self
    }

    pub fn announce(&self, seq: u64) -> Value {
        json!({
            "cell": "0190a5e0-0000-7000-8000-0000000000ff", "incarnation": 1, "seq": seq, "place": {},
            "address": "127.0.0.1", "version": "", "driver": "process", "memory_bytes": 0, "cores": 1,
            "host": {"cpu": 0.1, "mem": 0.1, "io": 0.0}, "cordoned": false, "leaving": false, "desired": 1,
            "builders": [], "instances": self.instances,
        })
    }

    pub fn write(&self, dir: &Path) {
        let snapshot = json!({"version": 1, "revision": 1, "items": self.items, "cells": [self.announce(1)]});
        std::fs::write(dir.join("snapshot.json"), snapshot.to_string()).unwrap();
    }
}

/// A gateway under test.
pub struct Rig {
    pub gateway: Option<Gateway>,
    pub address: SocketAddr,
    pub dir: TempDir,
}

impl Rig {
    /// Serves this world, with no bus.
    pub async fn start(world: World) -> Self {
        Self::start_with(world, |_| {}, None).await
    }

    pub async fn start_with(
        world: World,
        change: impl FnOnce(&mut GatewaySettings),
        bus: Option<Arc<dyn Bus>>,
    ) -> Self {
        let dir = towpath_testkit::temp_dir();
        world.write(dir.path());
        Self::start_in(dir, change, bus).await
    }

    pub async fn start_in(
        dir: TempDir,
        change: impl FnOnce(&mut GatewaySettings),
        bus: Option<Arc<dyn Bus>>,
    ) -> Self {
        let mut settings = GatewaySettings::in_dir(dir.path());
        settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.workers = 1;
        settings.timeouts.linger = Duration::from_millis(300);
        change(&mut settings);
        let gateway = Gateway::start(settings, bus).await.unwrap();
        Self { address: gateway.addresses()[0], gateway: Some(gateway), dir }
    }

    /// A client of this gateway.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// One request over a connection of its own.
    pub fn get(&self, host: &str, path: &str) -> Answer {
        self.client().request(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    /// The value of a metric, by the whole name with labels.
    pub fn metric(&self, name: &str) -> f64 {
        let admin = self.gateway.as_ref().unwrap().admin_address().unwrap();
        let text = Client::connect(admin).request("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.parse().unwrap())
    }

    pub async fn stop(mut self) -> TempDir {
        self.gateway.take().unwrap().drain(Duration::from_secs(5)).await;
        self.dir
    }
}

/// A response as it came over the wire.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    /// A header that the app saw, from its own description of the request.
    pub fn seen(&self, name: &str) -> Option<String> {
        self.seen_all(name).into_iter().next()
    }

    pub fn seen_all(&self, name: &str) -> Vec<String> {
        let json = self.json();
        let headers = json["headers"].as_array().unwrap();
        headers
            .iter()
            .filter(|pair| pair[0] == name)
            .map(|pair| pair[1].as_str().unwrap().to_owned())
            .collect()
    }
}

/// A raw HTTP/1 client.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    /// A client on a connected socket.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    pub fn request(&mut self, text: &str) -> Answer {
        self.send(text);
        self.answer_to(text.split(' ').next().unwrap_or("GET") == "HEAD")
    }

    pub fn answer(&mut self) -> Answer {
        self.answer_to(false)
    }

    fn fill(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(read) => {
                self.buffer.extend_from_slice(&bytes[..read]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("no answer: {error}; so far: {}", String::from_utf8_lossy(&self.buffer)),
        }
    }

    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len {
            assert!(self.fill(), "the connection ended early");
        }
        self.buffer.drain(..len).collect()
    }

    pub fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return String::from_utf8_lossy(&line).trim_end().to_owned();
            }
            assert!(self.fill(), "the connection ended early");
        }
    }

    /// A head: status and headers.
    pub fn head(&mut self) -> Answer {
        let first = self.line();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("not a status line: {first:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            if line.is_empty() {
                return Answer { status, headers, body: Vec::new() };
            }
            let (name, value) = line.split_once(':').unwrap();
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
    }

    fn answer_to(&mut self, head: bool) -> Answer {
        let mut answer = self.head();
        if head || answer.status < 200 || answer.status == 204 || answer.status == 304 {
            return answer;
        }
        if answer.header("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(self.line().split(';').next().unwrap(), 16).unwrap();
                if size == 0 {
                    break;
                }
                let data = self.take(size);
                answer.body.extend(data);
                assert_eq!(self.line(), "");
            }
            loop {
                let line = self.line();
                if line.is_empty() {
                    return answer;
                }
                let (name, value) = line.split_once(':').unwrap();
                answer
                    .headers
                    .push((format!("trailer:{}", name.to_ascii_lowercase()), value.trim().to_owned()));
            }
        }
        answer.body = match answer.header("content-length") {
            Some(length) => self.take(length.parse().unwrap()),
            None => self.rest(),
        };
        answer
    }

    /// Everything up to the end of the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.buffer)
    }

    /// Exactly so many bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.take(len)
    }

    /// So many bytes, or as many as come before the end of the connection.
    pub fn up_to(&mut self, len: usize) -> Vec<u8> {
        while self.buffer.len() < len && self.fill() {}
        let there = self.buffer.len().min(len);
        self.buffer.drain(..there).collect()
    }

    /// Whether the other side closes without sending anything more.
    pub fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }
}

/// An instance that does what a closure does with each connection (its number from 0).
pub struct Raw {
    pub address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Raw {
    pub fn start(serve: impl Fn(usize, Client) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let (count, serve) = (connections.clone(), Arc::new(serve));
        // The thread ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let (number, serve) = (count.fetch_add(1, Ordering::SeqCst), serve.clone());
                std::thread::spawn(move || serve(number, Client { stream, buffer: Vec::new() }));
            }
        });
        Self { address, connections }
    }

    /// One that sends the same bytes for each request and closes.
    pub fn saying(answer: &'static str) -> Self {
        Self::start(move |_, mut client| {
            client.read_request();
            client.send(answer);
        })
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Client {
    /// On an instance's side: a request's head lines; `None` = the connection ended.
    pub fn try_read_request(&mut self) -> Option<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            while !self.buffer.contains(&b'\n') {
                if !self.fill() {
                    return None;
                }
            }
            let line = self.line();
            if line.is_empty() {
                return Some(lines);
            }
            lines.push(line);
        }
    }

    pub fn read_request(&mut self) -> Vec<String> {
        self.try_read_request().unwrap_or_default()
    }
}

/// An address that nobody listens on.
pub fn dead_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
