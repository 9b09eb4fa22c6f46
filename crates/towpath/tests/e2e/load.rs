//! A load generator: clients in a loop that count what fails. An answer that is not whole, not 200 or not what was sent
//! is a failure, and so is a connection that breaks.

use crate::client::{Connection, Request, Response};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// GET, each over a connection of its own.
    Fresh,
    /// GET, one after the other over the same connection.
    Kept,
    /// GET that an instance takes its time for, so that there is always something in flight.
    Slow,
    /// POST over a kept connection: the body comes back.
    Echo,
}

pub const KINDS: [Kind; 4] = [Kind::Fresh, Kind::Kept, Kind::Slow, Kind::Echo];

/// Running clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    sent: [Arc<AtomicU64>; KINDS.len()],
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

/// One client.
struct Client {
    kind: Kind,
    address: SocketAddr,
    host: String,
    kept: Option<Connection>,
}

impl Client {
    fn request(&self) -> Request {
        match self.kind {
            Kind::Fresh => Request::get(&self.host, "/").header("connection", "close"),
            Kind::Kept => Request::get(&self.host, "/"),
            Kind::Slow => Request::get(&self.host, "/slow/200"),
            Kind::Echo => {
                let size = fastrand::usize(1..100_000);
                let body: Vec<u8> = std::iter::repeat_with(|| fastrand::u8(..)).take(size).collect();
                Request::post(&self.host, "/echo", &body).chunked(fastrand::bool())
            }
        }
    }

    fn send(&mut self, request: &Request) -> std::io::Result<Response> {
        let mut connection = match self.kept.take() {
            Some(connection) => connection,
            None => Connection::open(self.address)?,
        };
        let response = connection.send(request)?;
        // Who is told that a connection ends may not use it again.
        if self.kind != Kind::Fresh && response.header("connection") != Some("close") {
            self.kept = Some(connection);
        }
        Ok(response)
    }

    /// What went wrong with one request.
    fn failure(&mut self) -> Option<String> {
        let request = self.request();
        match self.send(&request) {
            Ok(response) if response.status != 200 => Some(format!("{} {}", response.status, response.body)),
            Ok(response) if self.kind == Kind::Echo && request.body() != response.bytes => {
                Some(format!("{} bytes came back as {} others", request.body().len(), response.bytes.len()))
            }
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        }
    }
}

impl Load {
    /// Starts some clients of each kind against a host.
    pub fn start(address: SocketAddr, host: &str, of_each: usize) -> Self {
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let sent: [Arc<AtomicU64>; KINDS.len()] = Default::default();
        let failures = Arc::new(Mutex::new(Vec::new()));
        let mut clients = Vec::new();
        for (kind, sent) in KINDS.into_iter().zip(&sent) {
            for _ in 0..of_each {
                let (stop, sent, failures) = (stop.clone(), sent.clone(), failures.clone());
                let mut client = Client { kind, address, host: host.to_owned(), kept: None };
                clients.push(std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let failure = client.failure();
                        sent.fetch_add(1, Ordering::Relaxed);
                        let told = failure.map(|what| format!("{:.3?} {kind:?}: {what}", begun.elapsed()));
                        failures.lock().unwrap().extend(told);
                        // Load, not overload: what is measured is what gets lost, and the machine may be small.
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }));
            }
        }
        Self { stop, sent, failures, clients }
    }

    /// Returns when every kind of client has sent so many more requests from now on.
    pub fn goes_on(&self, requests: u64) {
        let goal = self.sent.each_ref().map(|sent| sent.load(Ordering::Relaxed) + requests);
        towpath_testkit::wait::block_until(Duration::from_secs(120), "load of every kind", || {
            self.sent.iter().zip(goal).all(|(sent, goal)| sent.load(Ordering::Relaxed) >= goal).then_some(())
        });
    }

    /// Ends the clients; gives the number of requests and what failed.
    pub fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        let sent = self.sent.iter().map(|sent| sent.load(Ordering::Relaxed)).sum();
        (sent, std::mem::take(&mut self.failures.lock().unwrap()))
    }

    /// Ends the clients, none of which may have lost anything.
    pub fn lost_nothing(self) {
        let (sent, failures) = self.end();
        let shown: Vec<&String> = failures.iter().take(3).chain(failures.iter().rev().take(3)).collect();
        assert!(failures.is_empty(), "{} of {sent} failed: {shown:#?}", failures.len());
    }
}
