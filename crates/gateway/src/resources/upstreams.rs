//! Static upstreams: their nodes as endpoints, with addresses and health as they are now.

use super::by_key::ByKey;
use super::passive::{Fallen, Watch};
use super::probe::{self, Judged, Target};
use super::upstream::{self, Upstream};
use super::{Event, resolver};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use towpath_resources::model::Node;
use towpath_resources::{ResolvedUpstream, Serves};
use towpath_route::{Address, Change, Source, StaticNode, node_id};
use towpath_types::{AppRef, InstanceId, LaneName, Place};

/// All of them.
pub(super) struct Upstreams {
    /// For requests.
    pub(super) by_key: ByKey<Upstream>,
    held: HashMap<String, Held>,
    names: HashMap<String, Name>,
    tell: mpsc::UnboundedSender<Event>,
}

struct Held {
    resolved: Arc<ResolvedUpstream>,
    app: AppRef,
    unhealthy: HashSet<InstanceId>,
    probes: HashMap<InstanceId, Probe>,
    watch: Option<Arc<Watch>>,
}

/// A probe under way; it ends with this.
struct Probe {
    target: Target,
    fallen: mpsc::UnboundedSender<()>,
    task: AbortHandle,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A name under watch, for as long as upstreams use it.
struct Name {
    addresses: Vec<IpAddr>,
    users: HashSet<String>,
    task: AbortHandle,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstreams {
    pub(super) fn new(tell: mpsc::UnboundedSender<Event>) -> Self {
        Self { by_key: ByKey::default(), held: HashMap::new(), names: HashMap::new(), tell }
    }

    /// A new or changed upstream. Nodes that stay keep their health.
    pub(super) fn put(&mut self, resolved: &Arc<ResolvedUpstream>) -> Result<Vec<Change>, String> {
        let key = resolved.key.as_str().to_owned();
        let app = match &resolved.serves {
            Serves::App { app, .. } => app.clone(),
            _ => AppRef::of_upstream(&key),
        };
        let before = self.held.remove(&key);
        let rules = resolved.spec.checks.as_ref().and_then(|checks| checks.passive.clone());
        let watch = match before.as_ref().and_then(|before| before.watch.clone()) {
            Some(watch) if Some(watch.rules()) == rules.as_ref() => Some(watch),
            _ => rules.map(|rules| Arc::new(Watch::new(key.clone(), rules, self.tell.clone()))),
        };
        let (unhealthy, probes) = match before {
            Some(before) => (before.unhealthy, before.probes),
            None => (HashSet::new(), HashMap::new()),
        };
        self.held.insert(key.clone(), Held { resolved: resolved.clone(), app, unhealthy, probes, watch });
        self.watch_names(&key);
        self.compile(&key)
    }

    /// It is gone, with its probes.
    pub(super) fn remove(&mut self, key: &str) -> Vec<Change> {
        let Some(held) = self.held.remove(key) else { return Vec::new() };
        self.by_key.remove(key);
        self.drop_names(key, &HashSet::new());
        if !upstream::has_nodes(&held.resolved) {
            return Vec::new();
        }
        vec![
            Change::DropSource(Source::Group(held.app.clone(), LaneName::base())),
            Change::DeleteApp(held.app.clone()),
        ]
    }

    /// What a task has found out.
    pub(super) fn take(&mut self, event: Event) -> Vec<Change> {
        let keys: Vec<String> = match event {
            Event::Addresses(found) => match self.names.get_mut(&found.name) {
                Some(name) => {
                    name.addresses = found.addresses;
                    name.users.iter().cloned().collect()
                }
                None => Vec::new(),
            },
            Event::Judged(Judged { upstream, instance, healthy }) => match self.held.get_mut(&upstream) {
                Some(held) if held.probes.contains_key(&instance) => {
                    if healthy {
                        held.unhealthy.remove(&instance);
                        held.watch.iter().for_each(|watch| watch.forget(instance));
                    } else {
                        held.unhealthy.insert(instance);
                    }
                    vec![upstream]
                }
                _ => Vec::new(),
            },
            Event::Fallen(Fallen { upstream, instance }) => match self.held.get_mut(&upstream) {
                Some(held) => match held.probes.get(&instance) {
                    Some(probe) => {
                        let _ = probe.fallen.send(());
                        held.unhealthy.insert(instance);
                        vec![upstream]
                    }
                    None => Vec::new(),
                },
                None => Vec::new(),
            },
        };
        keys.iter().filter_map(|key| self.compile(key).ok()).flatten().collect()
    }

    /// What the table and requests need to know of the upstream as it is now.
    fn compile(&mut self, key: &str) -> Result<Vec<Change>, String> {
        let nodes = self.nodes(key);
        let Some(held) = self.held.get_mut(key) else { return Ok(Vec::new()) };
        let resolved = held.resolved.clone();
        let names = nodes.iter().map(|node| (node_id(&held.app, &node.node.address), node.host.clone()));
        let names: HashMap<_, _> = names.collect();
        let has_nodes = upstream::has_nodes(&resolved);
        let runtime = Upstream::new(&resolved, held.app.clone(), names, held.watch.clone())?;
        self.by_key.put(key, Arc::new(runtime));
        if !has_nodes {
            return Ok(Vec::new());
        }
        probe_all(held, &nodes, &self.tell);
        let app = &held.app;
        let endpoints = nodes.into_iter().map(|mut live| {
            live.node.healthy = !held.unhealthy.contains(&node_id(app, &live.node.address));
            live.node.endpoint(app)
        });
        let endpoints: Vec<_> = endpoints.collect();
        let put = Change::PutApp {
            app: app.clone(),
            upstream: upstream::spec_of(&resolved, endpoints.len()),
            stopped: false,
            base_stopped: false,
            lanes: vec![LaneName::base()],
        };
        let source = Source::Group(app.clone(), LaneName::base());
        Ok(vec![put, Change::Endpoints { source, endpoints }])
    }

    /// Its nodes, a name being as many as it has addresses.
    fn nodes(&self, key: &str) -> Vec<Live> {
        let Some(held) = self.held.get(key) else { return Vec::new() };
        let scheme = held.resolved.spec.scheme;
        let usual = scheme.default_port();
        let given = match &held.resolved.serves {
            Serves::Nodes(nodes) => nodes.clone(),
            Serves::Dns(name) => dns_node(name, usual),
            Serves::App { .. } => Vec::new(),
        };
        let mut live: Vec<Live> = Vec::new();
        for node in given {
            let port = node.port.or(usual).unwrap_or(80);
            let host = node.host.as_str();
            let called = if Some(port) == usual { host.to_owned() } else { format!("{host}:{port}") };
            let known = self.names.get(host).map(|name| name.addresses.as_slice()).unwrap_or_default();
            let addresses = match (Address::parse(host, port), known) {
                (address @ Address::Socket(_), _) | (address, []) => vec![address],
                (_, known) => known.iter().map(|ip| Address::Socket((*ip, port).into())).collect(),
            };
            for address in addresses {
                // The same address twice is one node with both weights.
                if let Some(twin) = live.iter_mut().find(|twin| twin.node.address == address) {
                    twin.node.weight = twin.node.weight.saturating_add(node.weight);
                    continue;
                }
                let node = StaticNode {
                    address,
                    weight: node.weight,
                    priority: node.priority,
                    place: place(&node),
                    protocol: upstream::protocol(scheme),
                    healthy: true,
                };
                live.push(Live { node, host: called.clone() });
            }
        }
        live
    }

    /// Begins to ask for the names of an upstream, and ends it for those that it has no more.
    fn watch_names(&mut self, key: &str) {
        let names: HashSet<String> = match self.held.get(key).map(|held| &held.resolved.serves) {
            Some(Serves::Nodes(nodes)) => {
                nodes.iter().filter_map(|node| is_name(node.host.as_str())).collect()
            }
            Some(Serves::Dns(name)) => {
                dns_node(name, Some(80)).iter().filter_map(|node| is_name(node.host.as_str())).collect()
            }
            _ => HashSet::new(),
        };
        for name in &names {
            let tell = &self.tell;
            let watched = self.names.entry(name.clone()).or_insert_with(|| Name {
                addresses: Vec::new(),
                users: HashSet::new(),
                task: tokio::task::spawn_local(resolver::run(name.clone(), tell.clone())).abort_handle(),
            });
            watched.users.insert(key.to_owned());
        }
        self.drop_names(key, &names);
    }

    fn drop_names(&mut self, key: &str, kept: &HashSet<String>) {
        self.names.retain(|name, watched| {
            if !kept.contains(name) {
                watched.users.remove(key);
            }
            !watched.users.is_empty()
        });
    }
}

/// A node as it is now, and what it is called.
struct Live {
    node: StaticNode,
    host: String,
}

fn dns_node(name: &str, usual: Option<u16>) -> Vec<Node> {
    let (host, port) = match name.rsplit_once(':').map(|(host, port)| (host, port.parse().ok())) {
        Some((host, Some(port))) => (host, Some(port)),
        _ => (name, usual),
    };
    let Some(host) = towpath_resources::model::Host::parse(host) else { return Vec::new() };
    vec![Node { host, port, weight: 1, priority: 0, metadata: None }]
}

fn is_name(host: &str) -> Option<String> {
    matches!(Address::parse(host, 1), Address::Name(..)).then(|| host.to_owned())
}

fn place(node: &Node) -> Place {
    let metadata = node.metadata.clone().unwrap_or_default();
    Place {
        region: metadata.region.unwrap_or_default(),
        zone: metadata.zone.unwrap_or_default(),
        node: metadata.node.unwrap_or_default(),
    }
}

/// Begins probes of nodes that have none, and ends those of nodes that are no more.
fn probe_all(held: &mut Held, nodes: &[Live], tell: &mpsc::UnboundedSender<Event>) {
    let checks = held.resolved.spec.checks.as_ref().and_then(|checks| checks.active.clone());
    let mut probes = HashMap::new();
    if let Some(checks) = checks.map(Arc::new) {
        for live in nodes {
            let instance = node_id(&held.app, &live.node.address);
            let target = Target {
                upstream: held.resolved.key.as_str().to_owned(),
                instance,
                address: live.node.address.clone(),
                host: live.host.clone(),
                checks: checks.clone(),
            };
            let kept = held.probes.remove(&instance).filter(|probe| probe.target == target);
            let probe = kept.unwrap_or_else(|| {
                let (fallen, falls) = mpsc::unbounded_channel();
                let healthy = !held.unhealthy.contains(&instance);
                let task = probe::run(target.clone(), healthy, falls, tell.clone());
                Probe { target, fallen, task: tokio::task::spawn_local(task).abort_handle() }
            });
            probes.insert(instance, probe);
        }
    }
    held.unhealthy.retain(|instance| probes.contains_key(instance));
    held.probes = probes;
}
