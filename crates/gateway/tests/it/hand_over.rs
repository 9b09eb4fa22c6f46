//! A gateway that another one takes over, in one process; the real binary does the same in the tests of the platform.

use crate::alone::until;
use crate::support::{Client, PATIENCE, World};
use serde_json::json;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use towpath_bus::{Bus, MemoryBus};
use towpath_gateway::{Gateway, GatewaySettings, Kept, TakeOver};
use towpath_testkit::HttpApp;

const GET: &str = "GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n";

fn settings(dir: &Path, listen: SocketAddr) -> GatewaySettings {
    let mut settings = GatewaySettings::in_dir(dir);
    settings.listen = vec![listen];
    settings.admin = Some("127.0.0.1:0".parse().unwrap());
    settings.workers = 2;
    settings.hand_over = Some(Kept::default());
    settings
}

async fn ask(dir: &Path) -> TakeOver {
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || TakeOver::ask(&dir)).await.unwrap().unwrap()
}

/// Clients that keep their connections, and ask on and on.
struct Load {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    threads: Vec<std::thread::JoinHandle<u64>>,
}

impl Load {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let (stop, asked) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let threads = (0..clients).map(|_| {
            let (stop, asked) = (stop.clone(), asked.clone());
            std::thread::spawn(move || {
                let (mut client, mut connections) = (Client::connect(address), 1);
                while !stop.load(SeqCst) {
                    let answer = client.request(GET);
                    assert_eq!(answer.status, 200);
                    asked.fetch_add(1, SeqCst);
                    if answer.header("connection") == Some("close") {
                        client = Client::connect(address);
                        connections += 1;
                    }
                }
                connections
            })
        });
        Self { threads: threads.collect(), stop, asked }
    }

    fn more(&self) {
        let goal = self.asked.load(SeqCst) + 200;
        until("requests go on", || self.asked.load(SeqCst) >= goal);
    }

    /// How often connections were made; fails if any request did.
    fn end(self) -> u64 {
        self.stop.store(true, SeqCst);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_go_on_while_one_takes_over_from_another_and_again() {
    let app = HttpApp::start("a");
    let dir = towpath_testkit::temp_dir();
    World::new().app("shop", json!({})).instance("shop", app.address()).write(dir.path());
    let mut gateway =
        Gateway::start(settings(dir.path(), "127.0.0.1:0".parse().unwrap()), None).await.unwrap();
    let address = gateway.addresses()[0];
    let load = Load::start(address, 4);
    let mut idle = Client::connect(address);
    assert_eq!(idle.request(GET).status, 200);
    for workers in [3, 1] {
        load.more();
        let mut next = settings(dir.path(), address);
        next.workers = workers;
        next.take_over = Some(ask(dir.path()).await);
        let successor = Gateway::start(next, None).await.unwrap();
        assert_eq!(gateway.handed_over().await, std::process::id());
        let old = std::mem::replace(&mut gateway, successor);
        let draining = tokio::spawn(old.drain(Duration::from_secs(30)));
        load.more();
        // Who was idle asks once more, and is told to come again.
        let answer = idle.request(GET);
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert!(idle.is_closed());
        idle = Client::connect(address);
        assert_eq!(idle.request(GET).status, 200);
        draining.await.unwrap();
        load.more();
    }
    let connections = load.end();
    assert!(connections >= 12, "each client was moved twice: {connections}");
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_fails_before_it_serves_changes_nothing() {
    let app = HttpApp::start("a");
    let dir = towpath_testkit::temp_dir();
    World::new().app("shop", json!({})).instance("shop", app.address()).write(dir.path());
    let gateway = Gateway::start(settings(dir.path(), "127.0.0.1:0".parse().unwrap()), None).await.unwrap();
    let address = gateway.addresses()[0];
    let load = Load::start(address, 2);
    // It asks, and ends.
    drop(ask(dir.path()).await);
    load.more();
    // It cannot start: an address of its own is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut next = settings(dir.path(), address);
    next.listen.push(taken.local_addr().unwrap());
    next.take_over = Some(ask(dir.path()).await);
    assert!(Gateway::start(next, None).await.is_err());
    load.more();
    assert!(TcpStream::connect(address).is_ok());
    let handed = tokio::time::timeout(Duration::from_millis(1), gateway.handed_over()).await;
    assert!(handed.is_err());
    assert_eq!(load.end(), 2, "nobody was sent away");
    // The next one does better.
    let mut next = settings(dir.path(), address);
    next.take_over = Some(ask(dir.path()).await);
    let next = Gateway::start(next, None).await.unwrap();
    gateway.handed_over().await;
    gateway.drain(Duration::from_secs(5)).await;
    assert_eq!(Client::connect(next.addresses()[0]).request(GET).status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn datagrams_are_read_on_by_the_one_that_takes_over() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    let upstream = server.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((length, peer)) = server.recv_from(&mut bytes) {
            let _ = server.send_to(&bytes[..length], peer);
        }
    });
    let resources = json!({"stream_routes": [{"id": "1", "upstream": {"nodes": {upstream.to_string(): 1}}}]});
    let with = |settings: &mut GatewaySettings, udp: SocketAddr| {
        settings.stream.udp = vec![udp];
        settings.resources = Some(crate::alone::source(resources.clone()));
    };
    let dir = towpath_testkit::temp_dir();
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let mut first = settings(dir.path(), any);
    with(&mut first, any);
    let first = Gateway::start(first, None).await.unwrap();
    let (http, udp) = (first.addresses()[0], first.stream_addresses()[0]);
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.connect(udp).unwrap();
    let ask = |text: &str| {
        client.send(text.as_bytes()).unwrap();
        let mut bytes = [0; 2048];
        let length = client.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..length], text.as_bytes());
    };
    (0..50).for_each(|n| ask(&n.to_string()));
    let mut second = settings(dir.path(), http);
    with(&mut second, udp);
    second.take_over = Some(self::ask(dir.path()).await);
    let second = Gateway::start(second, None).await.unwrap();
    (50..100).for_each(|n| ask(&n.to_string()));
    first.handed_over().await;
    let draining = tokio::spawn(first.drain(Duration::from_secs(10)));
    (100..200).for_each(|n| ask(&n.to_string()));
    draining.await.unwrap();
    (200..250).for_each(|n| ask(&n.to_string()));
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_hear_one_gateway_and_what_is_in_flight_in_both() {
    let app = HttpApp::start("a");
    let dir = towpath_testkit::temp_dir();
    let draining = json!({"state": "draining"});
    let world = World::new().app("shop", json!({})).instance_with("shop", app.address(), json!({}));
    world.write(dir.path());
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let first = Gateway::start(settings(dir.path(), "127.0.0.1:0".parse().unwrap()), Some(bus.clone()));
    let first = first.await.unwrap();
    let (id, address) = (first.id(), first.addresses()[0]);
    let mut reports = bus.subscribe(&towpath_wire::subject::gateway_report(id)).await.unwrap();
    let mut slow = Client::connect(address);
    slow.send("GET /delay/3000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    until("it is at the app", || app.in_flight() == 1);
    // From now on the instance drains.
    let mut leaves = World::new();
    leaves = leaves.instance_with("shop", app.address(), draining);
    let announce = bytes::Bytes::from(envelope(leaves.announce(2)));
    let cell: towpath_types::CellId = serde_json::from_value(leaves.announce(2)["cell"].clone()).unwrap();
    let subject = towpath_wire::subject::cell_announce(cell);
    bus.publish(&subject, announce.clone()).await.unwrap();
    let mut next = settings(dir.path(), address);
    next.take_over = Some(ask(dir.path()).await);
    let second = Gateway::start(next, Some(bus.clone())).await.unwrap();
    first.handed_over().await;
    let old = tokio::spawn(first.drain(Duration::from_secs(20)));
    let (mut incarnations, mut seen) = (std::collections::BTreeSet::new(), Vec::new());
    let end = tokio::time::Instant::now() + PATIENCE;
    loop {
        let message = tokio::time::timeout_at(end, reports.next()).await.unwrap().unwrap();
        let report: towpath_wire::gateway::GatewayReport = towpath_wire::decode(&message.payload).unwrap();
        assert!(!report.leaving, "the gateway is still there");
        incarnations.insert(report.incarnation);
        seen.push((report.incarnation, report.draining.values().sum::<u64>()));
        if incarnations.len() == 2 && report.incarnation == *incarnations.last().unwrap() {
            // What the old process has under way is in flight as long as it is.
            let in_flight = report.draining.values().sum::<u64>();
            if app.in_flight() == 0 && in_flight == 0 {
                break;
            }
        }
        bus.publish(&subject, announce.clone()).await.unwrap();
    }
    let newest = *incarnations.last().unwrap();
    let first_of_new = seen.iter().find(|(incarnation, _)| *incarnation == newest).unwrap();
    assert_eq!(first_of_new.1, 1, "the request of the old process: {seen:?}");
    let after = seen.iter().skip_while(|(incarnation, _)| *incarnation != newest);
    assert!(after.clone().all(|(incarnation, _)| *incarnation == newest), "the old one is silent: {seen:?}");
    assert_eq!(slow.answer().status, 200);
    old.await.unwrap();
    drop(second);
}

fn envelope(announce: serde_json::Value) -> Vec<u8> {
    let announce: towpath_wire::cell::CellAnnounce = serde_json::from_value(announce).unwrap();
    towpath_wire::encode(&announce)
}
