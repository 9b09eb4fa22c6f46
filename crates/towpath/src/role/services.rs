//! Makes the services' settings from ours and starts them.

use super::layout::Layout;
use super::signals::Signals;
use super::{failures, ports};
use crate::config::Settings;
use crate::exit::{Exit, Failure, Outcome, reason};
use crate::resources_file::ResourcesFile;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use towpath_bus::{Bus, NatsAuth, NatsBus, NatsConfig, NatsTls};
use towpath_cell::Cell;
use towpath_gateway::{Gateway, Kept, Resources, TakeOver};
use towpath_manager::{Manager, ManagerSettings};
use towpath_store::Store;

/// Connects to NATS. With `patient` the process goes on without it until it is there.
pub(super) async fn nats(settings: &Settings, patient: bool) -> Outcome<Arc<dyn Bus>> {
    let Some(nats) = &settings.nats else {
        return Err(Failure::new(Exit::Usage, "bus.nats: NATS is not configured"));
    };
    let auth = match (&nats.credentials, &nats.nkey) {
        (Some(file), _) => NatsAuth::CredentialsFile(file.clone()),
        (None, Some(file)) => NatsAuth::NkeyFile(file.clone()),
        (None, None) => NatsAuth::None,
    };
    // Whoever names an authority or a certificate wants no server without encryption.
    let required = nats.ca.is_some() || nats.certificate.is_some();
    let config = NatsConfig {
        urls: nats.servers.clone(),
        auth,
        tls: NatsTls { required, ca: nats.ca.clone(), certificate: nats.certificate.clone() },
        retry_initial: patient,
        ..NatsConfig::new(String::new())
    };
    match NatsBus::connect(config).await {
        Ok(bus) => Ok(Arc::new(bus)),
        Err(error) => {
            let servers = nats.servers.iter().map(|url| without_secret(url)).collect::<Vec<_>>().join(", ");
            Err(failures::any(&format!("NATS at {servers}"), &error))
        }
    }
}

/// A URL without user and password.
fn without_secret(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}{}", url.get(..scheme + 3).unwrap_or_default(), url.get(at + 1..).unwrap_or_default())
        }
        _ => url.to_owned(),
    }
}

/// What a gateway has from the process before it, and gives to the one after it.
#[derive(Default)]
pub(super) struct Succession {
    pub(super) take_over: Option<TakeOver>,
    /// The lock of the data directory; without it nobody can take over.
    pub(super) lock: Option<Arc<OwnedFd>>,
}

/// Starts the gateway.
pub(super) async fn gateway(
    settings: &Settings,
    layout: &Layout,
    bus: Option<Arc<dyn Bus>>,
    succession: Succession,
) -> Outcome<Gateway> {
    let mut config = settings.gateway.config.clone();
    config.data_dir = layout.closed("gateway")?;
    // It is looked for when keys are asked for: beside a new manager it comes later than the gateway.
    config.token_file.get_or_insert_with(|| layout.gateway_token());
    config.place = settings.place.clone();
    let mut checked = config.validate().map_err(|errors| Failure {
        code: None,
        exit: Exit::Usage,
        lines: errors.0.iter().map(|e| format!("gateway.{}: {}", e.field, e.message)).collect(),
    })?;
    let file = settings.gateway.file.clone();
    checked.resources = file.map(|file| Resources(Arc::new(ResourcesFile::new(file))));
    checked.take_over = succession.take_over;
    checked.hand_over = succession.lock.map(|lock| Kept(vec![(super::lock::NAME.to_owned(), lock)]));
    Gateway::start(checked, bus).await.map_err(|error| failures::gateway(&error, settings))
}

/// Starts the manager. `gateway_url` is for URLs that are shown. `alone`: it is the only one, and makes its own key for secrets.
pub(super) async fn manager(
    settings: &Settings,
    layout: &Layout,
    gateway_url: String,
    store: Arc<dyn Store>,
    bus: Arc<dyn Bus>,
    (flag, alone): (&str, bool),
) -> Outcome<Manager> {
    let mut manager = ManagerSettings::new(layout.closed("manager")?);
    manager.listen = settings.api.listen;
    manager.advertise.clone_from(&settings.api.advertise);
    manager.domain.clone_from(&settings.domain);
    manager.gateway_url = gateway_url;
    manager.first_token_file = Some(layout.token());
    manager.cell_token_file = Some(layout.cell_token());
    manager.gateway_token_file = Some(layout.gateway_token());
    let own_key = (alone && settings.secrets_key_file.is_none()).then(|| layout.secrets_key());
    manager.make_secrets_key = own_key.is_some();
    manager.secrets_key_file = settings.secrets_key_file.clone().or(own_key);
    if let Some(limit) = settings.api.max_upload {
        manager.limits.blobs.source = limit;
    }
    manager.limits.trusted_proxies.clone_from(&settings.api.trusted_proxies);
    settings.identity.apply(&mut manager.limits);
    manager.weight = settings.weight.unwrap_or(manager.weight);
    manager.protocol = settings.protocol.unwrap_or(manager.protocol);
    manager.evict_after_ms = settings.evict_after.map_or(manager.evict_after_ms, |time| time.0);
    let (ours, policy) = (&settings.rollout, &mut manager.rollout);
    policy.surge = ours.surge.map_or(policy.surge, f64::from);
    policy.drain_ms = ours.drain.map_or(policy.drain_ms, |time| time.0);
    policy.lost_ms = ours.lost.map_or(policy.lost_ms, |time| time.0);
    policy.prepare_ms = ours.prepare.map_or(policy.prepare_ms, |time| time.0);
    policy.crashes = ours.crashes.unwrap_or(policy.crashes);
    policy.unhealthy_ms = ours.unhealthy.map_or(policy.unhealthy_ms, |time| time.0);
    policy.overcommit = ours.overcommit.map_or(policy.overcommit, f64::from);
    policy.starts_per_second = ours.starts_per_second.map_or(policy.starts_per_second, f64::from);
    policy.replaced_per_second = ours.replaced_per_second.map_or(policy.replaced_per_second, f64::from);
    policy.starts_per_cell = ours.starts_per_cell.unwrap_or(policy.starts_per_cell);
    manager.validate().map_err(|lines| Failure { exit: Exit::Usage, lines, code: None })?;
    Manager::start(manager, store, bus).await.map_err(|error| failures::manager(&error, flag))
}

/// Waits for a signal, whose name it gives; fails when a part of the manager breaks before.
pub(super) async fn until_told(signals: &mut Signals, manager: &Manager) -> Outcome<&'static str> {
    tokio::select! {
        name = signals.next() => Ok(name),
        what = manager.failed() => Err(Failure::hinted(
            Exit::Failed,
            format!("a part of the manager broke: {what}"),
            "start it again; the log has more",
        )),
    }
}

/// Starts the cell.
pub(super) async fn cell(
    settings: &Settings,
    data_dir: PathBuf,
    api: Vec<String>,
    token_file: &Path,
    gateway_url: String,
    bus: Arc<dyn Bus>,
) -> Outcome<Cell> {
    let token = std::fs::read_to_string(token_file).map_err(|error| {
        let what = format!("the cells' token {} cannot be read: {}", token_file.display(), reason(&error));
        Failure::hinted(Exit::Usage, what, "a manager writes it to <data-dir>/cell-token at its first start")
    })?;
    let mut cell = towpath_cell::CellSettings::new(data_dir, "", token.trim());
    cell.api = api;
    let ours = &settings.cell;
    cell.address = ours.address;
    cell.place = settings.place.clone();
    cell.domain.clone_from(&settings.domain);
    cell.gateway_url = gateway_url;
    cell.memory = ours.memory;
    cell.ports = ours.ports.clone();
    (cell.weight, cell.priority) = (ours.weight, ours.priority);
    if let Some(uids) = &ours.uids {
        cell.uids = Some(uids.clone());
    }
    if let Some(reserve) = ours.disk_reserve {
        cell.disk_reserve = reserve;
    }
    cell.validate().map_err(|lines| Failure {
        code: None,
        exit: Exit::Usage,
        lines: lines.iter().map(|line| format!("cell.{line}")).collect(),
    })?;
    Cell::start(cell, bus).await.map_err(|error| failures::cell(&error))
}

/// The URL at which this machine reaches a listener.
pub(super) fn local_url(address: SocketAddr) -> String {
    format!("http://{}", reachable(address))
}

/// A listener's address with "all addresses" replaced by loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// The first listener of a gateway.
pub(super) fn first_address(gateway: &Gateway) -> Outcome<SocketAddr> {
    gateway
        .addresses()
        .first()
        .copied()
        .ok_or_else(|| Failure::new(Exit::Failed, "the gateway listens nowhere"))
}

/// For roles that have no gateway of their own: what is said, or this machine's usual one.
pub(super) fn configured_gateway_url(settings: &Settings) -> String {
    settings
        .gateway
        .url
        .clone()
        .or_else(|| settings.cell.gateway_url.clone())
        .unwrap_or_else(|| ports::USUAL_GATEWAY.to_owned())
}
