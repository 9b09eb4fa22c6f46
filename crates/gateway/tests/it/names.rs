//! Names of nodes and services, resolved by a DNS server of the test's own.

use crate::alone::{Alone, until};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use towpath_testkit::HttpApp;

const A: u16 = 1;
const SRV: u16 = 33;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;

/// A server that answers over UDP what it is told to.
#[derive(Clone)]
struct Server {
    address: SocketAddr,
    told: Arc<Mutex<Told>>,
}

/// Time to live and data.
type Record = (u32, Vec<u8>);

#[derive(Default)]
struct Told {
    records: HashMap<(String, u16), Vec<Record>>,
    failing: bool,
    asked: Vec<(String, u16)>,
}

impl Server {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = Self { address: socket.local_addr().unwrap(), told: Arc::default() };
        let told = server.told.clone();
        // The thread ends with the test process.
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let _ = socket.send_to(&told.lock().unwrap().answer(&bytes[..len]), from);
            }
        });
        server
    }

    fn tell(&self, name: &str, kind: u16, records: Vec<Record>) {
        self.told.lock().unwrap().records.insert((name.to_owned(), kind), records);
    }

    fn fail(&self, failing: bool) {
        self.told.lock().unwrap().failing = failing;
    }

    fn asked(&self, name: &str, kind: u16) -> usize {
        let told = self.told.lock().unwrap();
        told.asked.iter().filter(|(asked, of)| asked == name && *of == kind).count()
    }
}

impl Told {
    fn answer(&mut self, question: &[u8]) -> Vec<u8> {
        let (mut at, mut labels) = (12, Vec::new());
        while question[at] != 0 {
            let end = at + 1 + question[at] as usize;
            labels.push(String::from_utf8_lossy(&question[at + 1..end]).to_lowercase());
            at = end;
        }
        let name = labels.join(".");
        let kind = u16::from_be_bytes([question[at + 1], question[at + 2]]);
        self.asked.push((name.clone(), kind));
        let known = self.records.keys().any(|(of, _)| *of == name);
        let none = Vec::new();
        let records = self.records.get(&(name, kind)).filter(|_| !self.failing).unwrap_or(&none);
        let code = if self.failing {
            SERVFAIL
        } else if known {
            0
        } else {
            NXDOMAIN
        };
        let mut answer = question[..2].to_vec();
        answer.extend([0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        answer.extend(&question[12..at + 5]);
        for (ttl, data) in records {
            answer.extend([0xc0, 12]);
            answer.extend(kind.to_be_bytes());
            answer.extend([0, 1]);
            answer.extend(ttl.to_be_bytes());
            answer.extend((data.len() as u16).to_be_bytes());
            answer.extend(data);
        }
        answer
    }
}

fn a(ttl: u32, last: u8) -> Record {
    (ttl, Ipv4Addr::new(127, 0, 0, last).octets().to_vec())
}

fn srv(ttl: u32, priority: u16, weight: u16, port: u16, host: &str) -> Record {
    let mut data = Vec::new();
    for number in [priority, weight, port] {
        data.extend(number.to_be_bytes());
    }
    for label in host.split('.') {
        data.push(label.len() as u8);
        data.extend(label.as_bytes());
    }
    data.push(0);
    (ttl, data)
}

async fn serve(server: &Server, upstream: Value) -> Alone {
    let (server, resources) =
        (server.address, json!({"routes": [{"id": "1", "uri": "/*", "upstream": upstream}]}));
    Alone::start_with(resources, move |settings| {
        settings.dns.servers = vec![server];
        settings.dns.search = vec!["cluster.test".into()];
        settings.dns.min_ttl = Duration::from_millis(50);
    })
    .await
}

/// Which of the apps answer to so many requests.
fn served(alone: &Alone, times: usize) -> Vec<String> {
    (0..times).map(|_| alone.get("/").json()["app"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn nodes_follow_their_names_as_long_as_answers_hold_and_failures_change_nothing() {
    let (first, server) = (HttpApp::start("first"), Server::start());
    let port = first.address().port();
    // A search domain makes the name whole.
    server.tell("shop.cluster.test", A, vec![a(0, 1)]);
    let alone = serve(&server, json!({"nodes": {format!("shop:{port}"): 1}, "retries": 0})).await;
    until("it is resolved", || alone.get("/").status == 200);
    server.fail(true);
    let before = server.asked("shop.cluster.test", A);
    until("it was asked again and failed", || server.asked("shop.cluster.test", A) > before);
    assert_eq!(alone.get("/").status, 200, "the last address stays");
    server.fail(false);
    // Nobody listens there.
    server.tell("shop.cluster.test", A, vec![a(3600, 77)]);
    until("the new address is used", || alone.get("/").status == 502);
    let before = server.asked("shop.cluster.test", A);
    server.tell("shop.cluster.test", A, vec![a(0, 1)]);
    assert_eq!(served_status(&alone, 20), [502; 20]);
    assert_eq!(server.asked("shop.cluster.test", A), before, "the answer holds for an hour");
}

fn served_status(alone: &Alone, times: usize) -> Vec<u16> {
    (0..times).map(|_| alone.get("/").status).collect()
}

#[tokio::test]
async fn services_are_found_by_records_with_port_weight_and_priority() {
    let apps = ["one", "two", "late"].map(HttpApp::start);
    let [one, two, late] = apps.each_ref().map(|app| app.address().port());
    let server = Server::start();
    server.tell("a.test", A, vec![a(60, 1)]);
    server.tell("b.test", A, vec![a(60, 1)]);
    let records =
        vec![srv(0, 10, 3, one, "a.test"), srv(0, 10, 1, two, "b.test"), srv(0, 20, 9, late, "b.test")];
    server.tell("_http._tcp.shop.test", SRV, records);
    let dns = |name: &str| json!({"discovery_type": "dns", "service_name": name, "type": "roundrobin"});
    let alone = serve(&server, dns("_http._tcp.shop.test")).await;
    until("it is resolved", || alone.get("/").status == 200);
    let mut names = served(&alone, 8);
    names.sort();
    assert_eq!(names, ["one", "one", "one", "one", "one", "one", "two", "two"]);
    server.tell("_http._tcp.shop.test", SRV, vec![srv(0, 20, 9, late, "b.test")]);
    until("the others are gone", || served(&alone, 1) == ["late"]);

    // A name without such records is a host; a port with it goes before that of a record.
    server.tell("plain.test", A, vec![a(60, 1)]);
    let alone = serve(&server, dns(&format!("plain.test:{one}"))).await;
    until("it is resolved", || alone.get("/").status == 200);
    assert_eq!(served(&alone, 2), ["one", "one"]);
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_asked_for_ever_more_rarely() {
    let server = Server::start();
    let alone = serve(&server, json!({"discovery_type": "dns", "service_name": "none.test"})).await;
    let begun = Instant::now();
    until("it was asked for", || server.asked("none.test", A) > 0);
    assert_eq!(alone.get("/").status, 503);
    let asked = server.asked("none.test", SRV);
    assert!(asked as u64 <= 2 + begun.elapsed().as_secs(), "{asked}");
}
