//! `http-logger`: what is known of requests goes to a server, many at a time.

use super::entry::Form;
use super::outbound::{self, Place};
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use crate::plugins::{Phase, Phases, Plugin};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::Full;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout, timeout_at};
use towpath_resources::plugins::PluginMetadata;
use towpath_resources::plugins::http_logger::{Concat, Config};

/// Most entries that wait; further ones are dropped.
const WAITING: usize = 16 * 1024;

/// See the module.
pub(in crate::plugins) struct HttpLogger {
    form: Form,
    entries: Arc<Entries>,
}

/// Entries on their way to a thread that sends them; it ends with this.
pub(in crate::plugins) struct Entries(Sender<String>);

impl Entries {
    fn open(config: Arc<Config>) -> Self {
        let (entries, sent) = channel(WAITING);
        let spawned = std::thread::Builder::new().name("towpath-gw-log".into()).spawn(move || {
            let runtime =
                Builder::new_current_thread().enable_io().enable_time().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(run(&config, sent)),
                Err(error) => tracing::error!(%error, "a collector of logs cannot start"),
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "a thread for a collector of logs cannot be started");
        }
        Self(entries)
    }

    /// Whether the entry could be taken.
    fn take(&self, entry: String) -> bool {
        self.0.try_send(entry).is_ok()
    }
}

/// Gathers entries and sends them, until there can be no more.
async fn run(config: &Config, mut entries: Receiver<String>) {
    let Some(place) = Place::read(&config.uri) else { return };
    while let Some(first) = entries.recv().await {
        let end = Instant::now() + Duration::from_secs(config.buffer_duration);
        let mut batch = vec![first];
        while batch.len() < config.batch_max_size {
            let quiet = Instant::now() + Duration::from_secs(config.inactive_timeout);
            match timeout_at(quiet.min(end), entries.recv()).await {
                Ok(Some(entry)) => batch.push(entry),
                Ok(None) | Err(_) => break,
            }
        }
        for attempt in 0..=config.max_retry_count {
            if attempt > 0 {
                tokio::time::sleep(Duration::from_secs(config.retry_delay)).await;
            }
            match timeout(Duration::from_secs(config.timeout), post(config, &place, &batch)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::warn!(uri = %config.uri, %error, "logs could not be sent"),
                Err(_) => tracing::warn!(uri = %config.uri, "logs could not be sent in time"),
            }
        }
    }
}

async fn post(config: &Config, place: &Place, batch: &[String]) -> io::Result<()> {
    let (kind, text) = match (config.concat_method, batch) {
        (Concat::Json, [one]) if config.batch_max_size == 1 => ("application/json", one.clone()),
        (Concat::Json, _) => ("application/json", format!("[{}]", batch.join(","))),
        (Concat::NewLine, _) => ("text/plain", batch.join("\n")),
    };
    let mut request =
        http::Request::post(place.target.as_str()).header(HOST, &place.authority).header(CONTENT_TYPE, kind);
    if let Some(secret) = &config.auth_header {
        request = request.header(AUTHORIZATION, secret);
    }
    let request = request.body(Full::new(Bytes::from(text))).map_err(io::Error::other)?;
    let answer = outbound::send(place, request, config.ssl_verify).await?;
    if answer.status().as_u16() >= 400 {
        return Err(io::Error::other(format!("the server answered {}", answer.status())));
    }
    Ok(())
}

impl HttpLogger {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = match scope.plugins.metadata.get("http-logger") {
            Some(PluginMetadata::HttpLogger(metadata)) => metadata.log_format.as_ref(),
            _ => None,
        };
        let form = Form::of(config.log_format.as_ref(), metadata);
        let name = format!("http-logger {} {config:?}", scope.from);
        Self { form, entries: scope.plugins.states.get(&name, || Entries::open(config.clone())) }
    }
}

impl Plugin for HttpLogger {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Log])
    }

    fn log(&self, vars: &Vars<'_>) {
        if !self.entries.take(self.form.entry(vars).to_string()) {
            vars.record.conn.worker.metrics.plugin_log_dropped.add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_told() {
        let (entries, mut taken) = channel(1);
        let entries = Entries(entries);
        assert!(entries.take("1".into()));
        assert!(!entries.take("2".into()));
        assert_eq!(taken.try_recv().unwrap(), "1");
        assert!(entries.take("3".into()));
        drop(taken);
        assert!(!entries.take("4".into()));
    }
}
