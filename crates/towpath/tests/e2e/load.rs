//! A load generator: a few clients in a loop that count what fails.

use crate::client::try_get;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

/// Running clients.
pub struct Load {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts clients against a host; every answer but 200 is a failure.
    pub fn start(address: SocketAddr, host: &str, clients: usize) -> Self {
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let failures = Arc::new(Mutex::new(Vec::new()));
        let clients = (0..clients)
            .map(|n| {
                let (stop, sent, failures) = (stop.clone(), sent.clone(), failures.clone());
                let host = host.to_owned();
                std::thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let target = if n == 0 { "/slow/50" } else { "/" };
                        let failure = match try_get(address, &host, target, &[]) {
                            Ok(response) if response.status == 200 => None,
                            Ok(response) => Some(format!("{} {}", response.status, response.body)),
                            Err(error) => Some(error.to_string()),
                        };
                        sent.fetch_add(1, Ordering::Relaxed);
                        let at = begun.elapsed();
                        failures
                            .lock()
                            .unwrap()
                            .extend(failure.map(|what| format!("{at:.3?} client {n}: {what}")));
                    }
                })
            })
            .collect();
        Self { stop, sent, failures, clients }
    }

    /// Ends the clients; gives the number of requests and what failed.
    pub fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        (self.sent.load(Ordering::Relaxed), std::mem::take(&mut self.failures.lock().unwrap()))
    }
}
