//! How to reach NATS.

use crate::BusError;
use async_nats::ConnectOptions;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How to reach NATS.
#[derive(Debug, Clone)]
pub struct NatsConfig {
    /// Servers, `nats://host:port` or `tls://host:port`; more of the cluster are discovered.
    pub urls: Vec<String>,
    /// Name of this client in the server's monitoring.
    pub name: String,
    /// Who this client is.
    pub auth: NatsAuth,
    /// Encryption.
    pub tls: NatsTls,
    /// Be [`crate::BusState::Down`] and go on trying, instead of failing, when no server can be reached at first.
    pub retry_initial: bool,
    /// Messages that wait for a subscriber before it loses some.
    pub subscription_capacity: usize,
    /// Pause between pings; a server that leaves two unanswered is left for another.
    pub ping_interval: Duration,
    /// Longest wait for a connection.
    pub connect_timeout: Duration,
}

/// Who this client is. With `None` the URL may have `user:password@` or `token@` in it.
#[derive(Clone, Default)]
pub enum NatsAuth {
    /// Nobody in particular.
    #[default]
    None,
    /// A user.
    User {
        /// Name.
        user: String,
        /// Password.
        password: String,
    },
    /// A token.
    Token(String),
    /// A `.creds` file with a JWT and its key.
    CredentialsFile(PathBuf),
    /// A file with the seed of an nkey.
    NkeyFile(PathBuf),
}

impl fmt::Debug for NatsAuth {
    /// Without secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::User { user, .. } => write!(f, "User({user:?})"),
            Self::Token(_) => f.write_str("Token"),
            Self::CredentialsFile(path) => write!(f, "CredentialsFile({})", path.display()),
            Self::NkeyFile(path) => write!(f, "NkeyFile({})", path.display()),
        }
    }
}

/// Encryption.
#[derive(Debug, Clone, Default)]
pub struct NatsTls {
    /// Refuse servers without it.
    pub required: bool,
    /// Authorities to trust instead of the system's (PEM).
    pub ca: Option<PathBuf>,
    /// This client's certificate and key (PEM).
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl NatsConfig {
    /// The usual settings for one server.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            urls: vec![url.into()],
            name: "towpath".to_owned(),
            auth: NatsAuth::None,
            tls: NatsTls::default(),
            retry_initial: false,
            subscription_capacity: 65_536,
            ping_interval: Duration::from_secs(1),
            connect_timeout: Duration::from_secs(5),
        }
    }

    /// The parsed servers.
    pub(super) fn servers(&self) -> Result<Vec<async_nats::ServerAddr>, BusError> {
        if self.urls.is_empty() {
            return Err(BusError::Invalid("no NATS server is named".to_owned()));
        }
        let parse = |url: &String| {
            url.parse().map_err(|error: std::io::Error| {
                // The URL itself may have a password in it.
                BusError::Invalid(format!("a NATS URL cannot be read ({error}); it is like nats://host:4222"))
            })
        };
        self.urls.iter().map(parse).collect()
    }

    /// The client library does not look at the user in a URL.
    fn auth_of_url(&self, options: ConnectOptions) -> Result<ConnectOptions, BusError> {
        let servers = self.servers()?;
        let found = servers.iter().find_map(|server| Some((server.username()?, server.password())));
        let Some((user, password)) = found else { return Ok(options) };
        if user.contains('%') || password.is_some_and(|password| password.contains('%')) {
            let why =
                "the user or password in a NATS URL has special characters; give them apart from the URL";
            return Err(BusError::Invalid(why.to_owned()));
        }
        Ok(match password {
            Some(password) => options.user_and_password(user.to_owned(), password.to_owned()),
            None => options.token(user.to_owned()),
        })
    }

    /// The client library's form, without what depends on the bus object.
    pub(super) async fn options(&self) -> Result<ConnectOptions, BusError> {
        let unreadable = |path: &PathBuf, error: std::io::Error| {
            BusError::Invalid(format!("NATS credentials {}: {error}", path.display()))
        };
        let mut options = ConnectOptions::new()
            .name(&self.name)
            .subscription_capacity(self.subscription_capacity.max(65_536))
            .client_capacity(16_384)
            .ping_interval(self.ping_interval)
            .connection_timeout(self.connect_timeout)
            .require_tls(self.tls.required);
        options = match &self.auth {
            NatsAuth::None => self.auth_of_url(options)?,
            NatsAuth::User { user, password } => options.user_and_password(user.clone(), password.clone()),
            NatsAuth::Token(token) => options.token(token.clone()),
            NatsAuth::CredentialsFile(path) => {
                options.credentials_file(path).await.map_err(|error| unreadable(path, error))?
            }
            NatsAuth::NkeyFile(path) => {
                let seed = tokio::fs::read_to_string(path).await.map_err(|error| unreadable(path, error))?;
                options.nkey(seed.trim().to_owned())
            }
        };
        if let Some(ca) = &self.tls.ca {
            options = options.add_root_certificates(ca.clone());
        }
        if let Some((certificate, key)) = &self.tls.certificate {
            options = options.add_client_certificate(certificate.clone(), key.clone());
        }
        if self.retry_initial {
            options = options.retry_on_initial_connect();
        }
        Ok(options)
    }
}

/// How long to wait before an attempt to connect again: growing to some seconds, and spread by `random` (0..1), so that
/// a thousand clients do not come back in one instant. `attempt` counts from 1.
pub(super) fn reconnect_delay(attempt: usize, random: f64) -> Duration {
    let doublings = u32::try_from(attempt.saturating_sub(2)).unwrap_or(u32::MAX).min(6);
    let whole = Duration::from_millis(100 * 2_u64.pow(doublings)).min(Duration::from_secs(4));
    if attempt <= 1 { Duration::from_millis(500).mul_f64(random) } else { whole.mul_f64(0.5 + random) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_a_bound_and_are_spread() {
        assert_eq!(reconnect_delay(1, 0.0), Duration::ZERO);
        assert_eq!(reconnect_delay(1, 1.0), Duration::from_millis(500));
        assert_eq!(reconnect_delay(2, 0.5), Duration::from_millis(100));
        assert_eq!(reconnect_delay(5, 0.5), Duration::from_millis(800));
        assert_eq!(reconnect_delay(1_000_000, 0.0), Duration::from_secs(2));
        assert_eq!(reconnect_delay(usize::MAX, 1.0), Duration::from_secs(6));
    }

    #[test]
    fn secrets_are_not_printed() {
        let auth = NatsAuth::User { user: "me".into(), password: "hunter2".into() };
        assert_eq!(format!("{auth:?}"), "User(\"me\")");
        assert_eq!(format!("{:?}", NatsAuth::Token("hunter2".into())), "Token");
    }

    #[test]
    fn a_bad_url_is_refused_without_repeating_it() {
        let error = NatsConfig::new("nats://me:hunter2@host:notaport").servers().unwrap_err().to_string();
        assert!(error.contains("nats://host:4222") && !error.contains("hunter2"), "{error}");
    }
}
