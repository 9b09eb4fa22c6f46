//! `udp-logger`: what is known of requests goes to a UDP server: a datagram is a list of entries, or one where they are many or
//! long.

use super::delivery::{Delivery, Queue};
use super::logger::{self, Teller};
use super::sinks::{self, Sink};
use crate::plugins::Plugin;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::udp_logger::Config;

/// Longest list that is one datagram.
const DATAGRAM: usize = 60_000;

/// See the module.
pub(in crate::plugins) struct UdpLogger {
    teller: Teller,
    queue: Queue<String>,
}

struct Server {
    name: String,
    host: String,
    port: u16,
    single: bool,
}

impl Sink for Server {
    type Entry = String;

    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&mut self, batch: &[&String]) -> io::Result<()> {
        let bytes: usize = batch.iter().map(|entry| entry.len() + 1).sum();
        if self.single || bytes > DATAGRAM {
            let texts = batch.iter().map(|entry| entry.as_str());
            return sinks::datagrams(&self.host, self.port, texts).await;
        }
        let texts: Vec<&str> = batch.iter().map(|entry| entry.as_str()).collect();
        let list = format!("[{}]", texts.join(","));
        sinks::datagrams(&self.host, self.port, std::iter::once(list.as_str())).await
    }
}

impl UdpLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "udp-logger", UdpLogger);
        let told = metadata.as_deref();
        let timeout = Duration::from_secs(config.timeout);
        let batching =
            logger::batching(&config.batch, timeout, told.and_then(|told| told.max_pending_entries));
        let server = Server {
            name: format!("udp-logger of {}, {}:{}", scope.from, config.host, config.port),
            host: config.host.clone(),
            port: config.port,
            single: config.batch.batch_max_size == 1,
        };
        let format = told.and_then(|told| told.log_format.as_ref());
        let extra = told.and_then(|told| told.log_format_extra.as_ref());
        Self {
            teller: Teller::new(&config.told, format, extra),
            queue: Delivery::of(&scope.plugins.states).queue(server, batching),
        }
    }
}

impl Plugin for UdpLogger {
    logger::watches!();

    fn log(&self, vars: &Vars<'_>) {
        let text = self.teller.entry(vars).to_string();
        let bytes = text.len();
        if !self.queue.put(text, bytes) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}
