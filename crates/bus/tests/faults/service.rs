//! A service that answers in a queue group, and clients that ask it.

use crate::SOON;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use towpath_bus::{Bus, BusError, NatsBus, NatsConfig};
use towpath_testkit::poll_until_async;

/// The queue that all managers share.
pub(crate) const SUBJECT: &str = "towpath.api";

/// What members of the service have done, by request.
#[derive(Clone, Default)]
pub(crate) struct Done(Arc<Mutex<HashMap<String, u32>>>);

impl Done {
    /// Notes that a request was carried out.
    pub(crate) fn note(&self, request: &str) {
        *self.0.lock().unwrap().entry(request.to_owned()).or_default() += 1;
    }

    /// How often a request was carried out.
    pub(crate) fn times(&self, request: &str) -> u32 {
        self.0.lock().unwrap().get(request).copied().unwrap_or(0)
    }
}

/// Connects with settings that find out about a frozen server soon.
pub(crate) async fn connect(urls: Vec<String>) -> Arc<NatsBus> {
    let config = NatsConfig {
        urls,
        ping_interval: Duration::from_millis(300),
        connect_timeout: Duration::from_secs(10),
        ..NatsConfig::new("")
    };
    Arc::new(NatsBus::connect(config).await.unwrap())
}

/// A member of the service; answers with what it was asked.
pub(crate) async fn serve(bus: Arc<NatsBus>, done: Done) {
    let mut requests = bus.subscribe_queue(SUBJECT, "managers").await.unwrap();
    tokio::spawn(async move {
        while let Some(request) = requests.next().await {
            done.note(std::str::from_utf8(&request.payload).unwrap());
            // If the bus is away just now, the answer is lost, and the one who asked sees its deadline.
            let _ = bus.publish(&request.reply.unwrap(), request.payload).await;
        }
    });
}

/// Asks once. Whatever happens, it ends by its deadline, and an answer is the answer to this very request.
pub(crate) async fn ask(bus: &NatsBus, request: &str) -> Result<(), BusError> {
    let payload = Bytes::from(request.to_owned());
    let asking = bus.request(SUBJECT, payload, Duration::from_millis(500));
    let answer = tokio::time::timeout(SOON, asking).await.expect("a request ends by its deadline")?;
    assert_eq!(answer, request, "an answer to something else");
    Ok(())
}

/// Asks new questions until `count` in a row were answered.
pub(crate) async fn answered_again(bus: &NatsBus, who: &str, count: u32) {
    let mut number = 0;
    let mut row = 0;
    poll_until_async(SOON, "requests are answered again", async || {
        number += 1;
        row = if ask(bus, &format!("{who}-again-{number}")).await.is_ok() { row + 1 } else { 0 };
        (row >= count).then_some(())
    })
    .await;
}
