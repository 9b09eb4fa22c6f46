//! Start-up settings of the roles: flags > environment > file > defaults, read in one pass that reports all that is
//! wrong. Routes and policy are no settings: they travel through store and bus.

mod gateway;
mod identity;
mod keys;
mod overlay;
pub(crate) mod paths;
mod ranges;
pub(crate) mod read;
mod strangers;

pub(crate) use identity::IdentitySettings;
pub(crate) use keys::KEYS;
pub(crate) use overlay::Sources;
pub(crate) use read::read;
pub(crate) use strangers::find_strangers;

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use towpath_gateway::GatewayConfig;
use towpath_types::{ByteSize, Millis, NetBlock, Place};

/// Which role the process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// All in one.
    Up,
    /// Control plane.
    Manager,
    /// Data plane.
    Gateway,
    /// Node agent.
    Cell,
}

impl Role {
    /// The name of its command.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Role::Up => "up",
            Role::Manager => "manager",
            Role::Gateway => "gateway",
            Role::Cell => "cell",
        }
    }
}

/// Validated settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Settings {
    /// Own files.
    pub(crate) data_dir: PathBuf,
    /// Domain of automatic routes.
    pub(crate) domain: String,
    /// Where the process stands.
    pub(crate) place: Place,
    /// Filter of the log, for example `info` or `towpath_cell=debug,info`.
    pub(crate) log: String,
    /// Log lines as JSON.
    pub(crate) log_json: bool,
    /// Longest time that requests in flight are given at the end.
    pub(crate) drain: Millis,
    /// The API.
    pub(crate) api: ApiSettings,
    /// Silence after which other managers evict one; `None` = the manager's default.
    pub(crate) evict_after: Option<Millis>,
    /// The manager's share of the work; `None` = the normal one.
    pub(crate) weight: Option<f32>,
    /// Logins and the audit log.
    pub(crate) identity: IdentitySettings,
    /// The newest protocol that a manager speaks; `None` = that of the build.
    pub(crate) protocol: Option<u16>,
    /// Keys that secrets are sealed with; `None` = `secrets.key` in the data directory for `up`, none for a cluster.
    pub(crate) secrets_key_file: Option<PathBuf>,
    /// How rollouts are done.
    pub(crate) rollout: RolloutSettings,
    /// The gateway.
    pub(crate) gateway: GatewaySettings,
    /// The cell.
    pub(crate) cell: CellSettings,
    /// The bus, if it is NATS.
    pub(crate) nats: Option<NatsSettings>,
    /// PostgreSQL's connection string, if that is the store.
    pub(crate) postgres: Option<String>,
    /// Authorities to trust instead of the system's when PostgreSQL is encrypted.
    pub(crate) postgres_ca: Option<PathBuf>,
}

/// Settings of the API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiSettings {
    /// Where it listens.
    pub(crate) listen: SocketAddr,
    /// How others reach it, if not by the address that it listens on.
    pub(crate) advertise: Option<String>,
    /// Largest upload in bytes.
    pub(crate) max_upload: Option<ByteSize>,
    /// Proxies in front of it that are believed.
    pub(crate) trusted_proxies: Vec<NetBlock>,
}

/// Settings of rollouts; `None` = the manager's default.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RolloutSettings {
    /// Instances above the wanted count while versions change, as a share of the count.
    pub(crate) surge: Option<f32>,
    /// Longest wait for a draining instance's requests.
    pub(crate) drain: Option<Millis>,
    /// Silence of a cell after which its instances are replaced elsewhere.
    pub(crate) lost: Option<Millis>,
    /// Added to an instance's start time-out for fetching its release.
    pub(crate) prepare: Option<Millis>,
    /// Crashes before the first success that make a new version fail.
    pub(crate) crashes: Option<u32>,
    /// How long an instance may be unhealthy before it is replaced.
    pub(crate) unhealthy: Option<Millis>,
    /// Memory that may be promised to a cell's instances, as a multiple of what it has.
    pub(crate) overcommit: Option<f32>,
    /// Instances that one manager starts in a second.
    pub(crate) starts_per_second: Option<f32>,
    /// Those of them that take the place of lost ones.
    pub(crate) replaced_per_second: Option<f32>,
    /// Instances that a cell may be starting at the same time.
    pub(crate) starts_per_cell: Option<u32>,
}

/// Settings of the gateway.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatewaySettings {
    /// Its own configuration, valid; data directory and place are filled in by the role.
    pub(crate) config: GatewayConfig,
    /// How clients reach it, for URLs that are shown.
    pub(crate) url: Option<String>,
    /// Where a gateway that runs alone has its resources from.
    pub(crate) file: Option<PathBuf>,
}

/// Settings of the cell.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CellSettings {
    /// Address of its instances.
    pub(crate) address: IpAddr,
    /// APIs of managers, for sources and artifacts.
    pub(crate) api: Vec<String>,
    /// File with the cells' token.
    pub(crate) token_file: Option<PathBuf>,
    /// How instances reach a gateway.
    pub(crate) gateway_url: Option<String>,
    /// Memory for instances; `None` = the cell decides.
    pub(crate) memory: Option<ByteSize>,
    /// Ports of instances.
    pub(crate) ports: RangeInclusive<u16>,
    /// User ids of instances when the cell is root; `None` = the default range.
    pub(crate) uids: Option<RangeInclusive<u32>>,
    /// Free disk that is left alone.
    pub(crate) disk_reserve: Option<ByteSize>,
    /// Balancing weight of its instances.
    pub(crate) weight: u32,
    /// Priority of its instances.
    pub(crate) priority: i32,
    /// Leave the instances running at the end.
    pub(crate) keep_instances: bool,
}

/// How NATS is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NatsSettings {
    /// Servers.
    pub(crate) servers: Vec<String>,
    /// File with credentials.
    pub(crate) credentials: Option<PathBuf>,
    /// File with the seed of an nkey.
    pub(crate) nkey: Option<PathBuf>,
    /// Authorities to trust instead of the system's.
    pub(crate) ca: Option<PathBuf>,
    /// Our certificate and its key.
    pub(crate) certificate: Option<(PathBuf, PathBuf)>,
}
