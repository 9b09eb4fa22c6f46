//! `syslog`: what is known of requests goes to a syslog server, each entry in RFC 5424's form.

use super::delivery::{Delivery, Queue};
use super::logger::{self, Teller};
use super::sinks::{self, Sink, Tcp};
use crate::clock;
use crate::plugins::Plugin;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::syslog::{Config, SockType};

/// Facility `syslog`, severity `info`.
const PRIORITY: u32 = 5 * 8 + 6;

/// See the module.
pub(in crate::plugins) struct Syslog {
    teller: Teller,
    queue: Queue<String>,
}

struct Server {
    name: String,
    tcp: Tcp,
    by_datagram: bool,
}

impl Sink for Server {
    type Entry = String;

    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&mut self, batch: &[&String]) -> io::Result<()> {
        if self.by_datagram {
            let texts = batch.iter().map(|entry| entry.as_str());
            return sinks::datagrams(&self.tcp.host, self.tcp.port, texts).await;
        }
        let texts: Vec<&str> = batch.iter().map(|entry| entry.as_str()).collect();
        self.tcp.send(texts.concat().as_bytes()).await
    }
}

impl Syslog {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "syslog", Syslog);
        let told = metadata.as_deref();
        let timeout = Duration::from_millis(config.timeout);
        let batching =
            logger::batching(&config.batch, timeout, told.and_then(|told| told.max_pending_entries));
        let server = Server {
            name: format!("syslog of {}, {}:{}", scope.from, config.host, config.port),
            tcp: Tcp {
                host: config.host.clone(),
                port: config.port,
                tls: config.tls.then(|| config.host.clone()),
            },
            by_datagram: config.sock_type == SockType::Udp,
        };
        let format = told.and_then(|told| told.log_format.as_ref());
        let extra = told.and_then(|told| told.log_format_extra.as_ref());
        Self {
            teller: Teller::new(&config.told, format, extra),
            queue: Delivery::of(&scope.plugins.states).queue(server, batching),
        }
    }
}

/// A line. What a client sent cannot end it: the host has no other characters than a host's, and JSON no line ends.
fn line(unix_ms: u64, host: &str, text: &str) -> String {
    let mut time = Vec::new();
    clock::write_second(&mut time, unix_ms / 1000);
    clock::put_fraction(&mut time, unix_ms % 1000);
    let time = String::from_utf8_lossy(&time);
    let host: String = host.chars().filter(|c| ('!'..='~').contains(c)).take(255).collect();
    let host = if host.is_empty() { "-" } else { &host };
    format!("<{PRIORITY}>1 {time} {host} apisix {} - - {text}\n", std::process::id())
}

impl Plugin for Syslog {
    logger::watches!();

    fn log(&self, vars: &Vars<'_>) {
        let host = String::from_utf8_lossy(vars.record.host());
        let text = line(clock::unix_ms(), &host, &self.teller.entry(vars).to_string());
        let bytes = text.len();
        if !self.queue.put(text, bytes) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_the_form_of_rfc_5424() {
        let pid = std::process::id();
        assert_eq!(
            line(7, "a.test", "{}"),
            format!("<46>1 1970-01-01T00:00:00.007Z a.test apisix {pid} - - {{}}\n")
        );
        assert_eq!(line(7, "a b\n", "x").split(' ').nth(2), Some("ab"));
        assert_eq!(line(7, "", "x").split(' ').nth(2), Some("-"));
    }
}
