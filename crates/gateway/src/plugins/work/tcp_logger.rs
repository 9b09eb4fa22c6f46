//! `tcp-logger`: what is known of requests goes to a TCP server. A message is a line: an object, or a list of them.

use super::delivery::{Delivery, Queue};
use super::logger::{self, Teller};
use super::sinks::{Sink, Tcp};
use crate::plugins::Plugin;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::tcp_logger::Config;

/// See the module.
pub(in crate::plugins) struct TcpLogger {
    teller: Teller,
    queue: Queue<String>,
}

struct Server {
    name: String,
    tcp: Tcp,
    single: bool,
}

impl Sink for Server {
    type Entry = String;

    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&mut self, batch: &[&String]) -> io::Result<()> {
        let texts: Vec<&str> = batch.iter().map(|entry| entry.as_str()).collect();
        let text = if self.single { texts.join("\n") } else { format!("[{}]", texts.join(",")) };
        self.tcp.send(format!("{text}\n").as_bytes()).await
    }
}

impl TcpLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "tcp-logger", TcpLogger);
        let told = metadata.as_deref();
        let timeout = Duration::from_millis(config.timeout);
        let batching =
            logger::batching(&config.batch, timeout, told.and_then(|told| told.max_pending_entries));
        let name = config.tls_options.clone().unwrap_or_else(|| config.host.clone());
        let server = Server {
            name: format!("tcp-logger of {}, {}:{}", scope.from, config.host, config.port),
            tcp: Tcp { host: config.host.clone(), port: config.port, tls: config.tls.then_some(name) },
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

impl Plugin for TcpLogger {
    logger::watches!();

    fn log(&self, vars: &Vars<'_>) {
        let text = self.teller.entry(vars).to_string();
        let bytes = text.len();
        if !self.queue.put(text, bytes) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}
