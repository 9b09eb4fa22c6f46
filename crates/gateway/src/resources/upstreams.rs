//! Static upstreams: their nodes as endpoints, with addresses and health as they are now.

use super::Event;
use super::by_key::ByKey;
use super::passive::{Checkers, Watch};
use super::probe::{self, Judged, Target};
use super::resolver::{self, Dns, Found, Question};
use super::upstream::{self, Upstream};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use towpath_resources::model::Node;
use towpath_resources::{ResolvedUpstream, Serves};
use towpath_route::health::Checker;
use towpath_route::{Address, Change, Source, StaticNode, node_id};
use towpath_types::{AppRef, InstanceId, LaneName, Place};

/// All of them.
pub(super) struct Upstreams {
    /// For requests.
    pub(super) by_key: ByKey<Upstream>,
    held: HashMap<String, Held>,
    names: HashMap<Question, Name>,
    dns: Rc<Dns>,
    tell: mpsc::UnboundedSender<Event>,
}

struct Held {
    resolved: Arc<ResolvedUpstream>,
    app: AppRef,
    /// Of the nodes that are checked.
    checkers: Checkers,
    probes: HashMap<InstanceId, Probe>,
}

/// A probe under way; it ends with this.
struct Probe {
    target: Target,
    wake: mpsc::UnboundedSender<()>,
    task: AbortHandle,
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A name under watch, for as long as upstreams use it.
struct Name {
    /// As last answered; none before the first answer.
    found: Vec<Found>,
    users: HashSet<String>,
    task: AbortHandle,
}

impl Drop for Name {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Upstreams {
    pub(super) fn new(dns: Dns, tell: mpsc::UnboundedSender<Event>) -> Self {
        Self {
            by_key: ByKey::default(),
            held: HashMap::new(),
            names: HashMap::new(),
            dns: Rc::new(dns),
            tell,
        }
    }

    /// A new or changed upstream. Nodes that stay keep their health.
    pub(super) fn put(&mut self, resolved: &Arc<ResolvedUpstream>) -> Result<Vec<Change>, String> {
        let key = resolved.key.as_str().to_owned();
        let app = match &resolved.serves {
            Serves::App { app, .. } => app.clone(),
            _ => AppRef::of_upstream(&key),
        };
        let before = self.held.remove(&key);
        let (checkers, probes) = match before {
            Some(before) => (before.checkers, before.probes),
            None => (HashMap::new(), HashMap::new()),
        };
        self.held.insert(key.clone(), Held { resolved: resolved.clone(), app, checkers, probes });
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
            Event::Answered(question, found) => match self.names.get_mut(&question) {
                Some(name) => {
                    name.found = found;
                    name.users.iter().cloned().collect()
                }
                None => Vec::new(),
            },
            Event::Judged(Judged { upstream, instance }) => {
                let held = self.held.get(&upstream);
                match held.and_then(|held| held.probes.get(&instance)) {
                    Some(probe) => {
                        let _ = probe.wake.send(());
                        vec![upstream]
                    }
                    None => Vec::new(),
                }
            }
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
        if has_nodes {
            check_all(held, &nodes, &self.tell);
        }
        let passive = resolved.spec.checks.as_ref().and_then(|checks| checks.passive.as_ref());
        let watch = passive.map(|rules| Watch::new(key, rules, held.checkers.clone(), self.tell.clone()));
        let runtime = Upstream::new(&resolved, held.app.clone(), names, watch)?;
        self.by_key.put(key, Arc::new(runtime));
        if !has_nodes {
            return Ok(Vec::new());
        }
        let app = &held.app;
        let endpoints = nodes.into_iter().map(|mut live| {
            let checker = held.checkers.get(&node_id(app, &live.node.address));
            live.node.healthy = checker.is_none_or(|checker| checker.healthy());
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
        let mut live: Vec<Live> = Vec::new();
        for (node, question) in asked(&held.resolved.serves) {
            let port = node.port.or(usual).unwrap_or(80);
            let host = node.host.as_str();
            let called = if Some(port) == usual { host.to_owned() } else { format!("{host}:{port}") };
            let found = question.as_ref().and_then(|question| self.names.get(question));
            let found = found.map(|name| name.found.as_slice()).unwrap_or_default();
            let mut add = |address: Address, weight: u32, priority: i32| {
                // The same address twice is one node with both weights.
                if let Some(twin) = live.iter_mut().find(|twin| twin.node.address == address) {
                    twin.node.weight = twin.node.weight.saturating_add(weight);
                    return;
                }
                let node = StaticNode {
                    address,
                    weight,
                    priority,
                    place: place(&node),
                    protocol: upstream::protocol(scheme),
                    healthy: true,
                };
                live.push(Live { node, host: called.clone() });
            };
            for one in found {
                let port = node.port.or(one.port).unwrap_or(port);
                add(
                    Address::Socket((one.ip, port).into()),
                    one.weight.unwrap_or(node.weight),
                    node.priority.saturating_sub(one.priority),
                );
            }
            // The name of a service may be no host at all: it has nodes once it is answered.
            if found.is_empty() && !matches!(question, Some(Question::Service(_))) {
                add(Address::parse(host, port), node.weight, node.priority);
            }
        }
        live
    }

    /// Begins to ask for the names of an upstream, and ends it for those that it has no more.
    fn watch_names(&mut self, key: &str) {
        let names: HashSet<Question> = match self.held.get(key) {
            Some(held) => {
                asked(&held.resolved.serves).into_iter().filter_map(|(_, question)| question).collect()
            }
            None => HashSet::new(),
        };
        for question in &names {
            let (dns, tell) = (&self.dns, &self.tell);
            let watched = self.names.entry(question.clone()).or_insert_with(|| {
                let task = resolver::run(dns.clone(), question.clone(), tell.clone());
                let task = tokio::task::spawn_local(task).abort_handle();
                Name { found: Vec::new(), users: HashSet::new(), task }
            });
            watched.users.insert(key.to_owned());
        }
        self.drop_names(key, &names);
    }

    fn drop_names(&mut self, key: &str, kept: &HashSet<Question>) {
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

/// The nodes of an upstream as they are written, and what DNS is asked for each.
fn asked(serves: &Serves) -> Vec<(Node, Option<Question>)> {
    match serves {
        Serves::Nodes(nodes) => {
            let question = |host: &str| {
                let is_name = matches!(Address::parse(host, 1), Address::Name(..));
                is_name.then(|| Question::Host(host.to_owned()))
            };
            nodes.iter().map(|node| (node.clone(), question(node.host.as_str()))).collect()
        }
        Serves::Dns(name) => {
            let (host, port) = match name.rsplit_once(':').map(|(host, port)| (host, port.parse().ok())) {
                Some((host, Some(port))) => (host, Some(port)),
                _ => (name.as_str(), None),
            };
            let Some(node) = towpath_resources::model::Host::parse(host) else { return Vec::new() };
            let question = Question::Service(node.as_str().to_owned());
            vec![(Node { host: node, port, weight: 1, priority: 0, metadata: None }, Some(question))]
        }
        Serves::App { .. } => Vec::new(),
    }
}

fn place(node: &Node) -> Place {
    let metadata = node.metadata.clone().unwrap_or_default();
    Place {
        region: metadata.region.unwrap_or_default(),
        zone: metadata.zone.unwrap_or_default(),
        node: metadata.node.unwrap_or_default(),
    }
}

/// Begins to check nodes that are not checked yet, and ends it for those that are no more.
fn check_all(held: &mut Held, nodes: &[Live], tell: &mpsc::UnboundedSender<Event>) {
    let checks = held.resolved.spec.checks.as_ref().and_then(|checks| checks.active.clone());
    let (mut probes, mut checkers) = (HashMap::new(), HashMap::new());
    if let Some(checks) = checks.map(Arc::new) {
        for live in nodes {
            let instance = node_id(&held.app, &live.node.address);
            let target = Target {
                upstream: held.resolved.key.as_str().to_owned(),
                instance,
                address: live.node.address.clone(),
                host: live.host.clone(),
                checks: checks.clone(),
                announce: held.resolved.spec.proxy_protocol.map(super::upstream::version),
            };
            let checker = held.checkers.remove(&instance).unwrap_or_else(|| Arc::new(Checker::new(true)));
            let kept = held.probes.remove(&instance).filter(|probe| probe.target == target);
            let probe = kept.unwrap_or_else(|| {
                let (wake, woken) = mpsc::unbounded_channel();
                let task = probe::run(target.clone(), checker.clone(), woken, tell.clone());
                Probe { target, wake, task: tokio::task::spawn_local(task).abort_handle() }
            });
            probes.insert(instance, probe);
            checkers.insert(instance, checker);
        }
    }
    held.checkers = checkers;
    held.probes = probes;
}
