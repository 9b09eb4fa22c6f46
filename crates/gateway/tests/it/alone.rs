//! A gateway that runs alone, with resources that a test writes.

use crate::support::{Answer, Client, PATIENCE};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use towpath_gateway::{Gateway, GatewaySettings, Loaded, ResourceSource, Resources};
use towpath_resources::{Document, Id, Kind, Set, read};
use towpath_testkit::TempDir;

/// The resources of a test: lists of documents by kind, as in the declarative file.
pub struct Written(Mutex<(u64, Value)>);

impl ResourceSource for Written {
    fn load(&self, seen: Option<u64>) -> Loaded {
        let (mark, text) = self.0.lock().unwrap().clone();
        if seen == Some(mark) {
            return Loaded::Same;
        }
        Loaded::Documents { mark, documents: documents(&text) }
    }
}

fn documents(all: &Value) -> Vec<Document> {
    let mut documents = Vec::new();
    for (kind, list) in all.as_object().unwrap() {
        let kind: Kind = kind.parse().unwrap();
        for (n, item) in list.as_array().unwrap().iter().enumerate() {
            let own = if kind == Kind::Consumer { &item["username"] } else { &item["id"] };
            let id = own.as_str().map_or_else(|| (n + 1).to_string(), str::to_owned);
            let id = Id::new(kind, &id).unwrap();
            documents.push(read(kind, &id, item).unwrap_or_else(|faults| panic!("{faults:?}")));
        }
    }
    let refused = Set::new().change(documents.clone(), &[]).refused;
    assert!(refused.is_empty(), "{refused:?}");
    documents
}

/// These resources, which do not change.
pub fn source(resources: Value) -> Resources {
    Resources(Arc::new(Written(Mutex::new((1, resources)))))
}

/// A gateway with these resources.
pub struct Alone {
    pub address: SocketAddr,
    pub gateway: Gateway,
    written: Arc<Written>,
    dir: TempDir,
}

impl Alone {
    pub async fn start(resources: Value) -> Self {
        Self::start_with(resources, |_| {}).await
    }

    pub async fn start_with(resources: Value, change: impl FnOnce(&mut GatewaySettings)) -> Self {
        let dir = towpath_testkit::temp_dir();
        let written = Arc::new(Written(Mutex::new((1, resources))));
        let mut settings = GatewaySettings::in_dir(dir.path());
        settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
        settings.admin = Some("127.0.0.1:0".parse().unwrap());
        settings.workers = 1;
        settings.timeouts.linger = Duration::from_millis(300);
        settings.resources = Some(Resources(written.clone()));
        change(&mut settings);
        let gateway = Gateway::start(settings, None).await.unwrap();
        Self { address: gateway.addresses()[0], gateway, written, dir }
    }

    /// Other resources. They are there a moment later.
    pub fn write(&self, resources: Value) {
        let mut written = self.written.0.lock().unwrap();
        *written = (written.0 + 1, resources);
    }

    /// Where it listens: clear text, then TLS.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gateway.addresses()
    }

    /// The gateway's files.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n\r\n"))
    }

    /// Where it tells of itself.
    pub fn admin(&self) -> SocketAddr {
        self.gateway.admin_address().unwrap()
    }

    /// The value of a metric, by the whole name with labels.
    pub fn metric(&self, name: &str) -> f64 {
        let admin = self.gateway.admin_address().unwrap();
        let text = Client::connect(admin).request("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").text();
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().unwrap()
    }

    pub fn send(&self, request: &str) -> Answer {
        self.client().request(request)
    }

    /// A GET with header lines.
    pub fn get_with(&self, path: &str, lines: &str) -> Answer {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n\r\n"))
    }
}

/// A route for everything under `/`, with these plugins, to this address.
pub fn route(address: SocketAddr, plugins: Value) -> Value {
    json!({"id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream(&[address])})
}

pub fn upstream(addresses: &[SocketAddr]) -> Value {
    let nodes = addresses
        .iter()
        .map(|address| json!({"host": address.ip().to_string(), "port": address.port(), "weight": 1}));
    json!({"type": "roundrobin", "nodes": nodes.collect::<Vec<_>>()})
}

/// Asks until the condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
