//! Arguments of the roles. They are taken as text: `config` reads and checks them together with variables and file.

use clap::Args;
use std::path::PathBuf;

/// What all roles take.
#[derive(Debug, Args)]
pub(crate) struct RoleArgs {
    /// Settings file [default: <config dir>/towpath/config.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "TOWPATH_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Check the settings and exit
    #[arg(long)]
    pub(crate) check: bool,
    /// Own files [TOWPATH_DATA_DIR; default: <XDG data dir>/towpath]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// Log filter, for example info or towpath_cell=debug,info [TOWPATH_LOG]
    #[arg(long, value_name = "FILTER")]
    log: Option<String>,
    /// Form of log lines: text or json [TOWPATH_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// Write addresses and process id to this file, as JSON, once everything is up
    #[arg(long, value_name = "FILE")]
    pub(crate) ready_file: Option<PathBuf>,
    /// Region of this machine [TOWPATH_REGION]
    #[arg(long, value_name = "NAME")]
    region: Option<String>,
    /// Zone inside the region [TOWPATH_ZONE]
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// Name of this machine [TOWPATH_NODE; default: the host name]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Longest time for requests in flight at the end [TOWPATH_DRAIN; default: 30s]
    #[arg(long, value_name = "TIME")]
    drain: Option<String>,
}

/// Flags of a role: field path, flag, values.
pub(crate) type Flags = Vec<(&'static str, &'static str, Vec<String>)>;

fn flag(flags: &mut Flags, path: &'static str, name: &'static str, value: Option<&String>) {
    flags.extend(value.map(|value| (path, name, vec![value.clone()])));
}

fn list(flags: &mut Flags, path: &'static str, name: &'static str, values: &[String]) {
    if !values.is_empty() {
        flags.push((path, name, values.to_vec()));
    }
}

impl RoleArgs {
    fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        flag(&mut flags, "data_dir", "--data-dir", self.data_dir.as_ref());
        flag(&mut flags, "log", "--log", self.log.as_ref());
        flag(&mut flags, "log_format", "--log-format", self.log_format.as_ref());
        flag(&mut flags, "region", "--region", self.region.as_ref());
        flag(&mut flags, "zone", "--zone", self.zone.as_ref());
        flag(&mut flags, "node", "--node", self.node.as_ref());
        flag(&mut flags, "drain", "--drain", self.drain.as_ref());
        flags
    }
}

/// NATS.
#[derive(Debug, Args)]
struct BusArgs {
    /// NATS server; several may be given [TOWPATH_NATS]
    #[arg(long, value_name = "URL")]
    nats: Vec<String>,
    /// File with NATS credentials [TOWPATH_NATS_CREDENTIALS]
    #[arg(long, value_name = "FILE")]
    nats_credentials: Option<String>,
}

impl BusArgs {
    fn add(&self, flags: &mut Flags) {
        list(flags, "bus.nats", "--nats", &self.nats);
        flag(flags, "bus.credentials", "--nats-credentials", self.nats_credentials.as_ref());
    }
}

/// `towpath up`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towpath up
  towpath up --listen 0.0.0.0:80 --domain apps.example.com
  towpath up --data-dir /srv/towpath --check

SIGTERM or Ctrl-C lets requests finish, stops the instances and exits 0; a second one exits at once.
After a kill or a crash, `towpath up` takes over the instances that still run.")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    pub(crate) role: RoleArgs,
    /// Where the gateway listens; several may be given [TOWPATH_GATEWAY_LISTEN; default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Where the API listens [TOWPATH_API_LISTEN; default: 127.0.0.1:7700]
    #[arg(long, value_name = "ADDRESS")]
    api_listen: Option<String>,
    /// Domain of the apps' addresses [TOWPATH_DOMAIN; default: localhost]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Threads of the gateway [TOWPATH_GATEWAY_WORKERS; default: one for each core]
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Where the gateway serves /metrics [TOWPATH_GATEWAY_ADMIN; default: the API's port + 1]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Memory that instances may have together [TOWPATH_CELL_MEMORY; default: 80 % of the machine]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Ports for instances [TOWPATH_CELL_PORTS; default: 20000-29999]
    #[arg(long, value_name = "FROM-TO")]
    ports: Option<String>,
    /// Leave the instances running at the end; the next start takes them over
    #[arg(long)]
    keep_instances: bool,
}

impl UpArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.role.flags();
        list(&mut flags, "gateway.listen", "--listen", &self.listen);
        flag(&mut flags, "api.listen", "--api-listen", self.api_listen.as_ref());
        flag(&mut flags, "domain", "--domain", self.domain.as_ref());
        flag(&mut flags, "gateway.workers", "--workers", self.workers.as_ref());
        flag(&mut flags, "gateway.admin", "--admin-listen", self.admin_listen.as_ref());
        flag(&mut flags, "cell.memory", "--memory", self.memory.as_ref());
        flag(&mut flags, "cell.ports", "--ports", self.ports.as_ref());
        let keep = self.keep_instances.then(|| "true".to_owned());
        flag(&mut flags, "cell.keep_instances", "--keep-instances", keep.as_ref());
        flags
    }
}

/// `towpath manager`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  towpath manager --nats nats://10.0.0.1:4222 --postgres postgres://towpath@10.0.0.1/towpath \\
      --listen 0.0.0.0:7700 --advertise http://10.0.0.1:7700

The first start writes an operator token to <data-dir>/token and the cells' token to <data-dir>/cell-token.")]
pub(crate) struct ManagerArgs {
    #[command(flatten)]
    pub(crate) role: RoleArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// PostgreSQL [TOWPATH_POSTGRES]
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Where the API listens [TOWPATH_API_LISTEN; default: 127.0.0.1:7700]
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// How others reach the API [TOWPATH_API_ADVERTISE; default: the address that it listens on]
    #[arg(long, value_name = "URL")]
    advertise: Option<String>,
    /// Domain of the apps' addresses [TOWPATH_DOMAIN; default: localhost]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// How clients reach the gateways, for URLs that are shown [TOWPATH_GATEWAY_URL]
    #[arg(long, value_name = "URL")]
    gateway_url: Option<String>,
}

impl ManagerArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.role.flags();
        self.bus.add(&mut flags);
        flag(&mut flags, "store.postgres", "--postgres", self.postgres.as_ref());
        flag(&mut flags, "api.listen", "--listen", self.listen.as_ref());
        flag(&mut flags, "api.advertise", "--advertise", self.advertise.as_ref());
        flag(&mut flags, "domain", "--domain", self.domain.as_ref());
        flag(&mut flags, "gateway.url", "--gateway-url", self.gateway_url.as_ref());
        flags
    }
}

/// `towpath gateway`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  towpath gateway --nats nats://10.0.0.1:4222 --listen 0.0.0.0:80 --region eu --zone eu-1
  towpath gateway --file apisix.yaml --listen 0.0.0.0:9080
  towpath gateway --file apisix.yaml --check

SIGUSR2 starts the binary anew, which takes over: the old process finishes what is under way and ends.
With --file it runs alone, without manager, store and bus, and follows the file's changes. Otherwise the last routing table is kept in the data directory: a gateway starts from it when nothing else runs.")]
pub(crate) struct GatewayArgs {
    #[command(flatten)]
    pub(crate) role: RoleArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// Where it listens; several may be given [TOWPATH_GATEWAY_LISTEN; default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<String>,
    /// Threads [TOWPATH_GATEWAY_WORKERS; default: one for each core]
    #[arg(long, value_name = "N")]
    workers: Option<String>,
    /// Where it serves /metrics and /healthz [TOWPATH_GATEWAY_ADMIN; default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<String>,
    /// Run alone, with the routes, upstreams and plugins of this file (apisix.yaml, .json, .toml) [TOWPATH_GATEWAY_FILE]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nats", "nats_credentials"])]
    file: Option<String>,
    /// Take over from the gateway that runs with this data directory: its listeners, then its traffic
    #[arg(long)]
    pub(crate) take_over: bool,
}

impl GatewayArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.role.flags();
        self.bus.add(&mut flags);
        list(&mut flags, "gateway.listen", "--listen", &self.listen);
        flag(&mut flags, "gateway.workers", "--workers", self.workers.as_ref());
        flag(&mut flags, "gateway.admin", "--admin-listen", self.admin_listen.as_ref());
        flag(&mut flags, "gateway.file", "--file", self.file.as_ref());
        flags
    }
}

/// `towpath cell`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  towpath cell --nats nats://10.0.0.1:4222 --api http://10.0.0.1:7700 \\
      --token-file /etc/towpath/cell-token --address 10.0.0.7 --zone eu-1

SIGTERM leaves the instances running, so that the cell can be replaced; the next start takes them over.")]
pub(crate) struct CellArgs {
    #[command(flatten)]
    pub(crate) role: RoleArgs,
    #[command(flatten)]
    bus: BusArgs,
    /// API of a manager, for sources and artifacts; several times for several, others are learnt from the bus [TOWPATH_API]
    #[arg(long, value_name = "URL")]
    api: Vec<String>,
    /// File with the cells' token [TOWPATH_CELL_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// IP address at which gateways reach the instances [TOWPATH_CELL_ADDRESS; default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    address: Option<String>,
    /// How instances reach a gateway [TOWPATH_CELL_GATEWAY_URL; default: http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    gateway_url: Option<String>,
    /// Domain of the apps' addresses [TOWPATH_DOMAIN; default: localhost]
    #[arg(long, value_name = "DOMAIN")]
    domain: Option<String>,
    /// Memory that instances may have together [TOWPATH_CELL_MEMORY; default: 80 % of the machine]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Ports for instances [TOWPATH_CELL_PORTS; default: 20000-29999]
    #[arg(long, value_name = "FROM-TO")]
    ports: Option<String>,
    /// Stop the instances at the end too
    #[arg(long)]
    stop_instances: bool,
}

impl CellArgs {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = self.role.flags();
        self.bus.add(&mut flags);
        list(&mut flags, "cell.api", "--api", &self.api);
        flag(&mut flags, "cell.token_file", "--token-file", self.token_file.as_ref());
        flag(&mut flags, "cell.address", "--address", self.address.as_ref());
        flag(&mut flags, "cell.gateway_url", "--gateway-url", self.gateway_url.as_ref());
        flag(&mut flags, "domain", "--domain", self.domain.as_ref());
        flag(&mut flags, "cell.memory", "--memory", self.memory.as_ref());
        flag(&mut flags, "cell.ports", "--ports", self.ports.as_ref());
        let keep = self.stop_instances.then(|| "false".to_owned());
        flag(&mut flags, "cell.keep_instances", "--stop-instances", keep.as_ref());
        flags
    }
}
