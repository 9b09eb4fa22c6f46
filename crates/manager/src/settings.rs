//! Start-up settings.

use crate::api::ApiLimits;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use towpath_plan::rollout::RolloutPolicy;
use towpath_wire::protocol::{OLDEST, PROTOCOL};

/// Settings of a manager. All fields have defaults but the data directory.
#[derive(Debug, Clone)]
pub struct ManagerSettings {
    /// Own files: id, incarnation, blobs.
    pub data_dir: PathBuf,
    /// Where the API listens; port 0 = any free one.
    pub listen: SocketAddr,
    /// Where other managers and cells reach the API, for example `http://10.0.0.1:7700`; `None` = from `listen`.
    pub advertise: Option<String>,
    /// Domain of automatic routes.
    pub domain: String,
    /// Where clients reach the gateway; only for URLs that are shown.
    pub gateway_url: String,
    /// The first operator token is written here (mode 0600) when there is none yet; `None` = not written.
    pub first_token_file: Option<PathBuf>,
    /// The cells' token is written here (mode 0600); `None` = not written.
    pub cell_token_file: Option<PathBuf>,
    /// The gateways' token is written here (mode 0600); `None` = not written.
    pub gateway_token_file: Option<PathBuf>,
    /// Keys that secrets are sealed with, newest first; the same file on all managers. `None` = no secrets can be set.
    pub secrets_key_file: Option<PathBuf>,
    /// Whether that file is made when it is not there and nothing is sealed yet, and gets a new key at each rotation: for a
    /// platform with one manager.
    pub make_secrets_key: bool,
    /// Limits of the API.
    pub limits: ApiLimits,
    /// How rollouts are done.
    pub rollout: RolloutPolicy,
    /// Share of the work relative to other managers; 1 is normal, 0 takes none (but serves requests all the same).
    pub weight: f32,
    /// Silence after which another manager is evicted, milliseconds, by the store's clock.
    pub evict_after_ms: u64,
    /// The newest protocol that this manager speaks, which it tells the others.
    pub protocol: u16,
    /// Groups that are reconciled at the same time.
    pub workers: usize,
    /// Whether work on files is done by threads of its own. Without, it holds up everything else in the manager, but
    /// happens in an order that repeats: for simulations.
    pub file_threads: bool,
}

impl ManagerSettings {
    /// Does work on files that may take long.
    pub(crate) async fn file_work<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, tokio::task::JoinError> {
        if self.file_threads { tokio::task::spawn_blocking(work).await } else { Ok(work()) }
    }
}

impl ManagerSettings {
    /// Defaults for everything but the data directory.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            advertise: None,
            domain: "localhost".into(),
            gateway_url: "http://127.0.0.1:8080".into(),
            first_token_file: None,
            cell_token_file: None,
            gateway_token_file: None,
            secrets_key_file: None,
            make_secrets_key: false,
            limits: ApiLimits::default(),
            rollout: RolloutPolicy::default(),
            weight: 1.0,
            evict_after_ms: 6_000,
            protocol: PROTOCOL,
            workers: 8,
            file_threads: true,
        }
    }

    /// Checks everything; the error lists all that is wrong, each with its field.
    pub fn validate(&self) -> Result<(), Vec<String>> {
        let mut wrong = Vec::new();
        let label = |l: &str| {
            !l.is_empty()
                && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !l.starts_with('-')
                && !l.ends_with('-')
        };
        if self.data_dir.as_os_str().is_empty() {
            wrong.push("data_dir: is empty; name a directory".into());
        }
        if !self.domain.split('.').all(label) {
            wrong.push(format!(
                "domain: {:?} is not a host name; write for example apps.example.com",
                self.domain
            ));
        }
        for (field, url) in [("gateway_url", Some(&self.gateway_url)), ("advertise", self.advertise.as_ref())]
        {
            if url.is_some_and(|url| !url.starts_with("http://") && !url.starts_with("https://")) {
                wrong.push(format!("{field}: has to begin with http:// or https://"));
            }
        }
        if !(0.0..=16.0).contains(&self.weight) {
            wrong.push("weight: has to be between 0 and 16; 1 is normal".into());
        }
        if self.evict_after_ms < 3_000 {
            wrong.push("evict_after: has to be at least 3s, since heartbeats come every 2s".into());
        }
        let known = OLDEST..=PROTOCOL;
        if !known.contains(&self.protocol) {
            wrong.push(format!("protocol: this build speaks {OLDEST} and {PROTOCOL}"));
        }
        if self.workers == 0 {
            wrong.push("workers: has to be at least 1".into());
        }
        wrong.extend(self.rollout.validate().err().unwrap_or_default());
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}
