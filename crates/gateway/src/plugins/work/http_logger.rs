//! `http-logger`: what is known of requests goes to a server, many at a time.

use super::delivery::{Delivery, Queue};
use super::logger::{self, Teller};
use super::outbound::Place;
use super::sinks::{self, Sink};
use crate::plugins::Plugin;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::http_logger::{Concat, Config};

/// See the module.
pub(in crate::plugins) struct HttpLogger {
    teller: Teller,
    queue: Option<Queue<String>>,
}

struct Server {
    name: String,
    place: Place,
    headers: Vec<(HeaderName, HeaderValue)>,
    verify: bool,
    concat: Concat,
    /// Messages have one entry.
    single: bool,
}

impl Sink for Server {
    type Entry = String;

    fn name(&self) -> &str {
        &self.name
    }

    async fn send(&mut self, batch: &[&String]) -> io::Result<()> {
        let texts: Vec<&str> = batch.iter().map(|entry| entry.as_str()).collect();
        let (kind, text) = match self.concat {
            Concat::Json if self.single => ("application/json", texts.concat()),
            Concat::Json => ("application/json", format!("[{}]", texts.join(","))),
            Concat::NewLine => ("text/plain", texts.join("\n")),
        };
        sinks::post(&self.place, kind, &self.headers, self.verify, text).await
    }
}

impl HttpLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "http-logger", HttpLogger);
        let told = metadata.as_deref();
        let secret = config.auth_header.as_ref().and_then(|secret| HeaderValue::from_str(secret).ok());
        let headers = secret.map(|secret| (AUTHORIZATION, secret)).into_iter().collect();
        let timeout = Duration::from_secs(config.timeout);
        let batching =
            logger::batching(&config.batch, timeout, told.and_then(|told| told.max_pending_entries));
        let queue = Place::read(&config.uri).map(|place| {
            let server = Server {
                name: format!("http-logger of {}, {}", scope.from, place.authority),
                place,
                headers,
                verify: config.ssl_verify,
                concat: config.concat_method,
                single: config.batch.batch_max_size == 1,
            };
            Delivery::of(&scope.plugins.states).queue(server, batching)
        });
        let format = told.and_then(|told| told.log_format.as_ref());
        let extra = told.and_then(|told| told.log_format_extra.as_ref());
        Self { teller: Teller::new(&config.told, format, extra), queue }
    }
}

impl Plugin for HttpLogger {
    logger::watches!();

    fn log(&self, vars: &Vars<'_>) {
        let text = self.teller.entry(vars).to_string();
        let bytes = text.len();
        if !self.queue.as_ref().is_some_and(|queue| queue.put(text, bytes)) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}
