//! How to reach PostgreSQL.

use crate::StoreError;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How to reach PostgreSQL.
#[derive(Clone)]
pub struct PostgresConfig {
    /// `postgres://user:password@host:port/database?sslmode=require`; several hosts are permitted, the one that takes
    /// writes is used. Encryption is used with `sslmode=require` or when [`PostgresConfig::tls_ca`] is set, and then
    /// the server's certificate is always verified.
    pub url: String,
    /// Authorities to trust instead of the system's (PEM).
    pub tls_ca: Option<PathBuf>,
    /// Connections for reads; each takes many at once.
    pub readers: usize,
    /// How many revisions of the change feed are kept (up to a tenth more).
    pub keep_revisions: u64,
    /// Longest run of one statement.
    pub statement_timeout: Duration,
    /// Longest pause inside of a transaction. A writer that is frozen in one holds up all others this long.
    pub idle_in_transaction_timeout: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
    /// How long a start waits for a server that is not there yet.
    pub start_patience: Duration,
    /// How often the revision is looked up if no notification comes.
    pub poll_interval: Duration,
    /// How long writes wait for a lost connection to come back before they fail.
    pub reconnect_grace: Duration,
    /// How long to find out whether a commit took effect whose answer was lost.
    pub resolve_timeout: Duration,
    /// Most transactions in one database transaction.
    pub max_batch: usize,
}

impl fmt::Debug for PostgresConfig {
    /// Without the URL, which may have a password in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresConfig").field("tls_ca", &self.tls_ca).finish_non_exhaustive()
    }
}

impl PostgresConfig {
    /// The usual settings for a database.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls_ca: None,
            readers: 4,
            keep_revisions: 100_000,
            statement_timeout: Duration::from_secs(10),
            idle_in_transaction_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(5),
            start_patience: Duration::from_secs(30),
            poll_interval: Duration::from_secs(1),
            reconnect_grace: Duration::from_secs(1),
            resolve_timeout: Duration::from_secs(10),
            max_batch: 512,
        }
    }

    /// The parsed and completed connection settings.
    pub(super) fn target(&self) -> Result<Target, StoreError> {
        let invalid = |error: &dyn fmt::Display| StoreError::Invalid(format!("the PostgreSQL URL: {error}"));
        let mut database: tokio_postgres::Config = self.url.parse().map_err(|error| invalid(&error))?;
        if database.get_hosts().is_empty() && database.get_hostaddrs().is_empty() {
            return Err(invalid(&"it names no host"));
        }
        if database.get_application_name().is_none() {
            database.application_name("towpath");
        }
        if database.get_connect_timeout().is_none() {
            database.connect_timeout(self.connect_timeout);
        }
        if self.tls_ca.is_some() {
            database.ssl_mode(SslMode::Require);
        } else if database.get_ssl_mode() == SslMode::Prefer {
            database.ssl_mode(SslMode::Disable);
        }
        if database.get_hosts().len() > 1 {
            // Reads too: a replica may not have yet what was just written.
            database.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        database.keepalives_idle(Duration::from_secs(10)).tcp_user_timeout(Duration::from_secs(10));
        let tls = self.tls(database.get_ssl_mode() == SslMode::Require)?;
        Ok(Target { database, tls, settings: self.settings(), timeout: self.connect_timeout * 2 })
    }

    /// What each session is told first.
    fn settings(&self) -> String {
        format!(
            "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {};
             SET client_min_messages = warning;
             SELECT set_config('synchronous_commit', 'on', false)
             WHERE current_setting('synchronous_commit') = 'off';",
            self.statement_timeout.as_millis(),
            self.idle_in_transaction_timeout.as_millis()
        )
    }

    fn tls(&self, used: bool) -> Result<MakeRustlsConnect, StoreError> {
        let mut roots = RootCertStore::empty();
        if let Some(path) = &self.tls_ca {
            let bad = |error: &dyn fmt::Display| {
                StoreError::Invalid(format!("authorities in {}: {error}", path.display()))
            };
            let authorities = CertificateDer::pem_file_iter(path).map_err(|error| bad(&error))?;
            for authority in authorities {
                roots.add(authority.map_err(|error| bad(&error))?).map_err(|error| bad(&error))?;
            }
        } else if used {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| StoreError::Invalid(format!("TLS: {error}")))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(client))
    }
}

/// What is needed to open a session.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) database: tokio_postgres::Config,
    pub(super) tls: MakeRustlsConnect,
    pub(super) settings: String,
    /// For connecting and setting up together.
    pub(super) timeout: Duration,
}
