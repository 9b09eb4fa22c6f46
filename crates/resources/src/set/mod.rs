//! All documents, who refers to whom, and what of them is resolved.

mod resolve;

#[cfg(test)]
mod tests;

use crate::document::{Body, Document};
use crate::model::{Listener, Ssl};
use crate::plugins::PluginMetadata;
use crate::resolved::{
    Resolved, ResolvedConsumer, ResolvedRule, ResolvedStream, ResolvedUpstream, UpstreamKey,
};
use crate::{Fault, Id, Key, Kind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Documents, resolved as they change.
#[derive(Debug, Default)]
pub struct Set {
    documents: HashMap<Key, Arc<Document>>,
    /// Who refers to a resource, whether or not it exists.
    users: HashMap<Key, BTreeSet<Key>>,
    routes: HashMap<Id, Arc<Resolved>>,
    streams: HashMap<Id, Arc<ResolvedStream>>,
    consumers: HashMap<Id, Arc<ResolvedConsumer>>,
    rules: BTreeMap<Id, Arc<ResolvedRule>>,
    /// By the resource that is or holds them.
    upstreams: HashMap<Key, Vec<Arc<ResolvedUpstream>>>,
    refused: BTreeMap<Key, Vec<Fault>>,
    resolutions: u64,
}

/// What a change made different.
#[derive(Debug, Default)]
pub struct Changed {
    /// Routes that are new or different.
    pub routes: Vec<Arc<Resolved>>,
    /// Routes that serve no longer: deleted, switched off, or refused.
    pub routes_gone: Vec<Id>,
    /// Upstreams that are new or different.
    pub upstreams: Vec<Arc<ResolvedUpstream>>,
    /// Upstreams that are no longer there.
    pub upstreams_gone: Vec<UpstreamKey>,
    /// Stream routes that are new or different.
    pub streams: Vec<Arc<ResolvedStream>>,
    /// Stream routes that serve no longer.
    pub streams_gone: Vec<Id>,
    /// Consumers that are new or different.
    pub consumers: Vec<Arc<ResolvedConsumer>>,
    /// Consumers that are no longer there.
    pub consumers_gone: Vec<Id>,
    /// All global rules in the order of their ids, if any of them changed.
    pub rules: Option<Vec<Arc<ResolvedRule>>>,
    /// Certificates that are new or different.
    pub ssls: Vec<(Id, Arc<Ssl>)>,
    /// Certificates that are no longer there.
    pub ssls_gone: Vec<Id>,
    /// Metadata of plugins that is new or different.
    pub metadata: Vec<(Id, PluginMetadata)>,
    /// Plugins that have no metadata any longer.
    pub metadata_gone: Vec<Id>,
    /// Listeners that are new or different.
    pub listeners: Vec<(Id, Arc<Listener>)>,
    /// Listeners that are no longer there.
    pub listeners_gone: Vec<Id>,
    /// Resources that the change made refused, because they refer to what is not there.
    pub refused: Vec<Refused>,
}

/// A resource that cannot serve, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which.
    pub key: Key,
    /// Why.
    pub faults: Vec<Fault>,
}

impl Set {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts and deletes documents, all at once. What is equal to what was there changes nothing.
    pub fn change(&mut self, puts: Vec<Document>, deletes: &[Key]) -> Changed {
        let mut dirty = BTreeSet::new();
        let mut changed = Changed::default();
        for document in puts {
            self.put(document, &mut dirty, &mut changed);
        }
        for key in deletes {
            self.delete(key, &mut dirty, &mut changed);
        }
        let mut rules_changed = false;
        for key in &dirty {
            rules_changed |= key.kind == Kind::GlobalRule;
            self.resolve(key, &mut changed);
        }
        if rules_changed {
            changed.rules = Some(self.rules.values().cloned().collect());
        }
        changed
    }

    /// The document.
    pub fn get(&self, key: &Key) -> Option<&Arc<Document>> {
        self.documents.get(key)
    }

    /// Every document, in no order.
    pub fn documents(&self) -> impl Iterator<Item = &Arc<Document>> {
        self.documents.values()
    }

    /// Documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// The resources that refer to `key`.
    pub fn users_of(&self, key: &Key) -> impl Iterator<Item = &Key> {
        self.users.get(key).into_iter().flatten()
    }

    /// The references of `document` that lead nowhere, as faults.
    pub fn missing(&self, document: &Document) -> Vec<Fault> {
        let gone = document.references().into_iter().filter(|key| !self.documents.contains_key(key));
        gone.map(|key| no_such(document, &key)).collect()
    }

    /// Every resource that cannot serve, and why.
    pub fn refused(&self) -> impl Iterator<Item = (&Key, &[Fault])> {
        self.refused.iter().map(|(key, faults)| (key, faults.as_slice()))
    }

    /// How often a resource was resolved since the set was made.
    pub fn resolutions(&self) -> u64 {
        self.resolutions
    }

    fn put(&mut self, document: Document, dirty: &mut BTreeSet<Key>, changed: &mut Changed) {
        let key = document.key.clone();
        let before = self.documents.get(&key).cloned();
        if before.as_deref() == Some(&document) {
            return;
        }
        match &document.body {
            Body::Ssl(ssl) => changed.ssls.push((key.id.clone(), ssl.clone())),
            Body::PluginMetadata(metadata) => changed.metadata.push((key.id.clone(), metadata.clone())),
            Body::Listener(listener) => changed.listeners.push((key.id.clone(), listener.clone())),
            _ => {}
        }
        self.forget_references(&key);
        for used in document.references() {
            self.users.entry(used).or_default().insert(key.clone());
        }
        let document = Arc::new(document);
        self.documents.insert(key.clone(), document.clone());
        self.mark(&key, before.as_deref(), Some(&document), dirty);
    }

    fn delete(&mut self, key: &Key, dirty: &mut BTreeSet<Key>, changed: &mut Changed) {
        self.forget_references(key);
        let Some(before) = self.documents.remove(key) else { return };
        match &before.body {
            Body::Ssl(_) => {
                changed.ssls.retain(|(id, _)| *id != key.id);
                changed.ssls_gone.push(key.id.clone());
            }
            Body::PluginMetadata(_) => {
                changed.metadata.retain(|(id, _)| *id != key.id);
                changed.metadata_gone.push(key.id.clone());
            }
            Body::Listener(_) => {
                changed.listeners.retain(|(id, _)| *id != key.id);
                changed.listeners_gone.push(key.id.clone());
            }
            _ => {}
        }
        self.mark(key, Some(&before), None, dirty);
    }

    fn forget_references(&mut self, key: &Key) {
        let Some(before) = self.documents.get(key).cloned() else { return };
        for used in before.references() {
            if let Some(users) = self.users.get_mut(&used) {
                users.remove(key);
                if users.is_empty() {
                    self.users.remove(&used);
                }
            }
        }
    }

    /// Marks what has to be resolved again because `key` was `before` and is `after`.
    fn mark(
        &self,
        key: &Key,
        before: Option<&Document>,
        after: Option<&Document>,
        dirty: &mut BTreeSet<Key>,
    ) {
        dirty.insert(key.clone());
        // A credential is seen through its consumer.
        if key.kind == Kind::Credential {
            let consumer = key.id.as_str().split('/').next().unwrap_or_default();
            dirty.extend(Id::new(Kind::Consumer, consumer).ok().map(|id| Key::new(Kind::Consumer, id)));
        }
        if before.map(resolve::seen_by_users) != after.map(resolve::seen_by_users) {
            self.mark_users(key, dirty);
        }
    }

    /// Routes see an upstream through their service, so that its users' users count too.
    fn mark_users(&self, key: &Key, dirty: &mut BTreeSet<Key>) {
        for user in self.users_of(key) {
            if dirty.insert(user.clone()) && matches!(user.kind, Kind::Service | Kind::Consumer) {
                self.mark_users(user, dirty);
            }
        }
    }
}

pub(crate) fn no_such(document: &Document, key: &Key) -> Fault {
    let field = match (document.key.kind, key.kind) {
        (_, Kind::Service) => "service_id",
        (_, Kind::PluginConfig) => "plugin_config_id",
        (_, Kind::ConsumerGroup) => "group_id",
        (_, Kind::Ssl) => "tls.client_cert_id",
        (_, Kind::Consumer) => "id",
        (_, Kind::Upstream) => "upstream_id",
        _ => "",
    };
    Fault::new(field, format!("there is no {} {:?}", key.kind.noun(), key.id.as_str()))
}
