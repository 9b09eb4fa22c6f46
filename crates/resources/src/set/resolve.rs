//! One resource and all that it refers to become one value.

use super::{Changed, Refused, Set, no_such};
use crate::document::{Body, Document, client_certificate_of};
use crate::model::{Route, SslKind, StreamRoute, Switch, Upstream};
use crate::resolved::{
    PathPattern, PluginUse, Resolved, ResolvedConsumer, ResolvedRule, ResolvedStream, ResolvedUpstream,
    Serves, Target, UpstreamKey, app_of, merge,
};
use crate::{Fault, Id, Key, Kind};
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// The part of a document that those see who refer to it. Routes do not see the nodes of an upstream, only whether it is an app.
pub(super) fn seen_by_users(document: &Document) -> Seen<'_> {
    match &document.body {
        Body::Upstream(upstream) => Seen::Upstream(upstream.app.as_deref(), upstream.lane.as_deref()),
        _ => Seen::All(document),
    }
}

#[derive(PartialEq)]
pub(super) enum Seen<'a> {
    Upstream(Option<&'a str>, Option<&'a str>),
    All(&'a Document),
}

impl Set {
    /// Resolves `key` as it is now, and adds what is different to `changed`.
    pub(super) fn resolve(&mut self, key: &Key, changed: &mut Changed) {
        let document = self.documents.get(key).cloned();
        if document.is_some() {
            self.resolutions += 1;
        }
        let missing = document.as_deref().map(|document| self.faults_of(document)).unwrap_or_default();
        // A global rule stays whatever one of its plugins refers to: without it, what it protects would be open.
        let rule = document.clone().filter(|_| key.kind == Kind::GlobalRule);
        let document = document.filter(|_| missing.is_empty());
        self.refuse(key, missing, changed);
        self.resolve_upstreams(key, document.as_deref(), changed);
        match key.kind {
            Kind::Route => {
                let now = document.as_deref().and_then(|document| self.route(document));
                replace(&mut self.routes, &key.id, now, &mut changed.routes, &mut changed.routes_gone);
            }
            Kind::StreamRoute => {
                let now = document.as_deref().and_then(|document| self.stream(document));
                replace(&mut self.streams, &key.id, now, &mut changed.streams, &mut changed.streams_gone);
            }
            Kind::Consumer => {
                let now = document.as_deref().and_then(|document| self.consumer(document));
                replace(
                    &mut self.consumers,
                    &key.id,
                    now,
                    &mut changed.consumers,
                    &mut changed.consumers_gone,
                );
            }
            Kind::GlobalRule => match rule {
                Some(document) => {
                    let rule = ResolvedRule { id: key.id.clone(), plugins: document.plugins.clone() };
                    self.rules.insert(key.id.clone(), Arc::new(rule));
                }
                None => {
                    self.rules.remove(&key.id);
                }
            },
            _ => {}
        }
    }

    /// What is not there, or is of the wrong sort.
    fn faults_of(&self, document: &Document) -> Vec<Fault> {
        let mut faults = Vec::new();
        let is_stream = matches!(document.body, Body::StreamRoute(_));
        for key in document.references() {
            match self.documents.get(&key).map(|found| &found.body) {
                None => faults.push(no_such(document, &key)),
                Some(Body::Ssl(ssl)) if ssl.r#type != SslKind::Client => {
                    let message = format!("certificate {:?} is not of type \"client\"", key.id.as_str());
                    faults.push(Fault::new("tls.client_cert_id", message));
                }
                Some(Body::Upstream(upstream)) if !upstream.scheme.fits(is_stream) => {
                    if matches!(document.body, Body::StreamRoute(_) | Body::Route(_)) {
                        let message = format!(
                            "names upstream {:?}, whose {}",
                            key.id.as_str(),
                            upstream.scheme.misfit(is_stream)
                        );
                        faults.push(Fault::new("upstream_id", message));
                    }
                }
                Some(Body::Service(_)) if is_stream => {
                    let service = self.documents.get(&key);
                    let uses = service.iter().flat_map(|service| &service.plugins);
                    faults.extend(uses.filter_map(crate::plugins::fault_in_stream).map(|fault| {
                        Fault::new(
                            "service_id",
                            format!("names a service whose {} {}", fault.path, fault.message),
                        )
                    }));
                }
                Some(Body::Upstream(upstream)) if upstream.lane.is_some() => {
                    let split = |plugin: &&PluginUse| plugin.config.settings().references().contains(&key);
                    if let Some(plugin) = document.plugins.iter().find(split) {
                        let message = format!(
                            "names upstream {:?}, whose lane does nothing in {}: put it into the route's upstream",
                            key.id.as_str(),
                            plugin.name
                        );
                        faults.push(Fault::new(format!("plugins.{}", plugin.name), message));
                    }
                }
                Some(_) => {}
            }
        }
        faults
    }

    fn refuse(&mut self, key: &Key, faults: Vec<Fault>, changed: &mut Changed) {
        if faults.is_empty() {
            self.refused.remove(key);
        } else if self.refused.get(key) != Some(&faults) {
            self.refused.insert(key.clone(), faults.clone());
            changed.refused.push(Refused { key: key.clone(), faults });
        }
    }

    fn resolve_upstreams(&mut self, key: &Key, document: Option<&Document>, changed: &mut Changed) {
        let now = document.map(|document| self.upstreams_in(document)).unwrap_or_default();
        let before = self.upstreams.remove(key).unwrap_or_default();
        for upstream in &before {
            if now.iter().all(|other| other.key != upstream.key) {
                changed.upstreams_gone.push(upstream.key.clone());
            }
        }
        let mut kept = Vec::with_capacity(now.len());
        for upstream in now {
            let upstream = match before.iter().find(|other| other.as_ref() == &upstream) {
                Some(same) => same.clone(),
                None => {
                    let upstream = Arc::new(upstream);
                    changed.upstreams.push(upstream.clone());
                    upstream
                }
            };
            kept.push(upstream);
        }
        if !kept.is_empty() {
            self.upstreams.insert(key.clone(), kept);
        }
    }

    /// The upstream that a document is, or those that stand in it.
    fn upstreams_in(&self, document: &Document) -> Vec<ResolvedUpstream> {
        let owner = &document.key;
        let mut found = Vec::new();
        let mut inside = |upstream: &Option<Upstream>| {
            let key = UpstreamKey::inside(owner);
            found.extend(
                upstream.as_ref().and_then(|upstream| self.upstream(key, owner, Arc::new(upstream.clone()))),
            );
        };
        match &document.body {
            Body::Route(route) => inside(&route.upstream),
            Body::Service(service) => inside(&service.upstream),
            Body::StreamRoute(stream) => inside(&stream.upstream),
            Body::Upstream(upstream) => {
                found.extend(self.upstream(UpstreamKey::by_id(&owner.id), owner, upstream.clone()));
            }
            _ => {}
        }
        for plugin in &document.plugins {
            for (name, upstream) in plugin.config.settings().upstreams() {
                let key = UpstreamKey::inside_plugin(owner, plugin.name, &name);
                found.extend(self.upstream(key, owner, Arc::new(upstream.clone())));
            }
        }
        found
    }

    fn upstream(&self, key: UpstreamKey, owner: &Key, spec: Arc<Upstream>) -> Option<ResolvedUpstream> {
        let serves = match (&spec.app, &spec.service_name) {
            (Some(app), _) => Serves::App {
                app: app_of(app).ok()?,
                lane: spec.lane.as_deref().and_then(|lane| lane.parse().ok()),
            },
            (None, Some(name)) => Serves::Dns(name.clone()),
            (None, None) => {
                let mut nodes = spec.node_list();
                for node in &mut nodes {
                    node.port = node.port.or(spec.scheme.default_port());
                }
                Serves::Nodes(nodes)
            }
        };
        Some(ResolvedUpstream {
            key,
            owner: owner.clone(),
            serves,
            client_certificate: self.client_certificate(&spec),
            spec,
        })
    }

    fn client_certificate(&self, spec: &Upstream) -> Option<Arc<(String, String)>> {
        if let Some(id) = client_certificate_of(spec) {
            return match &self.documents.get(&Key::new(Kind::Ssl, id))?.body {
                Body::Ssl(ssl) => Some(Arc::new((ssl.cert.clone(), ssl.key.clone()))),
                _ => None,
            };
        }
        let tls = spec.tls.as_ref()?;
        Some(Arc::new((tls.client_cert.clone()?, tls.client_key.clone()?)))
    }

    fn route(&self, document: &Document) -> Option<Resolved> {
        let Body::Route(route) = &document.body else { return None };
        if route.status == Switch::Off {
            return None;
        }
        let service =
            route.service_id.as_ref().and_then(|id| self.documents.get(&Key::new(Kind::Service, id.clone())));
        let service_spec = service.and_then(|document| match &document.body {
            Body::Service(service) => Some(service),
            _ => None,
        });
        let mut hosts: Vec<_> = route.own_hosts().cloned().collect();
        if hosts.is_empty() {
            hosts = service_spec.iter().flat_map(|service| service.hosts.iter().flatten()).cloned().collect();
        }
        let websocket = route.enable_websocket.or(service_spec.and_then(|service| service.enable_websocket));
        Some(Resolved {
            id: document.key.id.clone(),
            name: route.name.clone(),
            priority: route.priority,
            hosts,
            paths: route.paths().map(PathPattern::of).collect(),
            methods: route.methods.iter().flatten().copied().collect(),
            remote: route.remotes().copied().collect(),
            vars: route.vars.as_ref().map(|condition| condition.0.clone()),
            timeout: route.timeout,
            websocket: websocket.unwrap_or_default(),
            target: self.target_of_route(&document.key, route, service),
            plugins: self.plugins_of_route(document, route, service),
            service: route.service_id.clone(),
            service_name: service_spec.and_then(|service| service.name.clone()),
            labels: route.labels.clone().unwrap_or_default(),
        })
    }

    /// Route over plugin configuration over service.
    fn plugins_of_route(
        &self,
        document: &Document,
        route: &Route,
        service: Option<&Arc<Document>>,
    ) -> Vec<PluginUse> {
        let shared = route
            .plugin_config_id
            .as_ref()
            .and_then(|id| self.documents.get(&Key::new(Kind::PluginConfig, id.clone())))
            .map_or(&[][..], |config| config.plugins.as_slice());
        let below = service.map_or(&[][..], |service| service.plugins.as_slice());
        merge(&merge(&document.plugins, shared), below)
    }

    fn target_of_route(&self, key: &Key, route: &Route, service: Option<&Arc<Document>>) -> Target {
        self.target(key, &route.upstream, &route.upstream_id, service)
    }

    fn target(
        &self,
        key: &Key,
        inside: &Option<Upstream>,
        id: &Option<Id>,
        service: Option<&Arc<Document>>,
    ) -> Target {
        if let Some(upstream) = inside {
            return target_of(UpstreamKey::inside(key), upstream);
        }
        if let Some(id) = id {
            return match self
                .documents
                .get(&Key::new(Kind::Upstream, id.clone()))
                .map(|document| &document.body)
            {
                Some(Body::Upstream(upstream)) => target_of(UpstreamKey::by_id(id), upstream),
                _ => Target::Nowhere,
            };
        }
        match service.map(|document| (&document.key, &document.body)) {
            Some((key, Body::Service(service))) => {
                self.target(key, &service.upstream, &service.upstream_id, None)
            }
            _ => Target::Nowhere,
        }
    }

    fn stream(&self, document: &Document) -> Option<ResolvedStream> {
        let Body::StreamRoute(stream) = &document.body else { return None };
        let spec: &StreamRoute = stream;
        let service =
            spec.service_id.as_ref().and_then(|id| self.documents.get(&Key::new(Kind::Service, id.clone())));
        let below = service.map_or(&[][..], |service| service.plugins.as_slice());
        Some(ResolvedStream {
            id: document.key.id.clone(),
            target: self.target(&document.key, &spec.upstream, &spec.upstream_id, service),
            plugins: merge(&document.plugins, below),
            spec: stream.clone(),
        })
    }

    fn consumer(&self, document: &Document) -> Option<ResolvedConsumer> {
        let Body::Consumer(consumer) = &document.body else { return None };
        let group = consumer
            .group_id
            .as_ref()
            .and_then(|id| self.documents.get(&Key::new(Kind::ConsumerGroup, id.clone())))
            .map_or(&[][..], |group| group.plugins.as_slice());
        let mut credentials: Vec<_> = document.credentials.iter().map(|held| (None, held.clone())).collect();
        for user in self.users_of(&document.key).filter(|user| user.kind == Kind::Credential) {
            let held =
                self.documents.get(user).map_or(&[][..], |credential| credential.credentials.as_slice());
            credentials.extend(held.iter().map(|held| (Some(user.id.clone()), held.clone())));
        }
        Some(ResolvedConsumer {
            name: document.key.id.clone(),
            group: consumer.group_id.clone(),
            credentials,
            plugins: merge(&document.plugins, group),
            labels: consumer.labels.clone().unwrap_or_default(),
        })
    }
}

fn target_of(key: UpstreamKey, upstream: &Upstream) -> Target {
    match upstream.app.as_deref().map(app_of) {
        Some(Ok(app)) => Target::App {
            app,
            lane: upstream.lane.as_deref().and_then(|lane| lane.parse().ok()),
            upstream: key,
        },
        _ => Target::Upstream(key),
    }
}

fn replace<K: Hash + Eq + Clone, V: PartialEq>(
    held: &mut HashMap<K, Arc<V>>,
    key: &K,
    now: Option<V>,
    changed: &mut Vec<Arc<V>>,
    gone: &mut Vec<K>,
) {
    match now {
        Some(now) if held.get(key).map(Arc::as_ref) == Some(&now) => {}
        Some(now) => {
            let now = Arc::new(now);
            held.insert(key.clone(), now.clone());
            changed.push(now);
        }
        None => gone.extend(held.remove(key).map(|_| key.clone())),
    }
}
