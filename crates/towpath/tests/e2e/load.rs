//! A load generator: clients in a loop that count what fails. An answer that is not whole, not 200 or not what was sent
//! is a failure, and so is a connection that breaks.

use crate::client::{Connection, Request, Response};
use crate::streams::Streams;
use bytes::Bytes;
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
    /// All of these as streams of one HTTP/2 connection, several at a time.
    Streams,
}

pub const KINDS: [Kind; 5] = [Kind::Fresh, Kind::Kept, Kind::Slow, Kind::Echo, Kind::Streams];

/// Streams at a time.
const AT_ONCE: usize = 6;

/// Running clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    sent: [Arc<AtomicU64>; KINDS.len()],
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

/// What a client tells of each request.
#[derive(Clone)]
struct Book {
    begun: Instant,
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
}

impl Book {
    fn note(&self, kind: Kind, failure: Option<String>) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        let told = failure.map(|what| format!("{:.3?} {kind:?}: {what}", self.begun.elapsed()));
        self.failures.lock().unwrap().extend(told);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

fn random_bytes() -> Vec<u8> {
    let size = fastrand::usize(1..100_000);
    std::iter::repeat_with(|| fastrand::u8(..)).take(size).collect()
}

/// What went wrong with one stream.
async fn stream(streams: &Streams, number: usize) -> Option<String> {
    let body = Bytes::from(random_bytes());
    let request = match number % 3 {
        0 => streams.get("/slow/200"),
        1 => streams.get("/"),
        _ => streams.post("/echo", body.clone()),
    };
    match streams.send(request).await {
        Ok((status, text)) if status != 200 => Some(format!("{status} {}", String::from_utf8_lossy(&text))),
        Ok((_, text)) if number % 3 == 2 && text != body => {
            Some(format!("{} bytes came back as {} others", body.len(), text.len()))
        }
        Ok(_) => None,
        Err(error) => Some(error),
    }
}

/// One client with one connection.
fn run_streams(address: SocketAddr, host: &str, book: &Book) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let streams = Streams::new(address, host);
    runtime.block_on(async {
        let all: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let (streams, book) = (streams.clone(), book.clone());
                tokio::spawn(async move {
                    while book.goes_on() {
                        book.note(Kind::Streams, stream(&streams, number).await);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                })
            })
            .collect();
        for one in all {
            one.await.unwrap();
        }
    });
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
            Kind::Kept | Kind::Streams => Request::get(&self.host, "/"),
            Kind::Slow => Request::get(&self.host, "/slow/200"),
            Kind::Echo => Request::post(&self.host, "/echo", &random_bytes()).chunked(fastrand::bool()),
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
                let book = Book { begun, stop: stop.clone(), sent: sent.clone(), failures: failures.clone() };
                let mut client = Client { kind, address, host: host.to_owned(), kept: None };
                clients.push(std::thread::spawn(move || {
                    if kind == Kind::Streams {
                        return run_streams(address, &client.host, &book);
                    }
                    while book.goes_on() {
                        book.note(kind, client.failure());
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
