//! The resources of the dynamic gateway at work: documents come in, changes of the routing table and what plugins need go out.
//!
//! An upstream is an app of org `-` in the table, its nodes are a source of endpoints; a route is a rule whose payload is the
//! [`Program`] of its plugins. Only what a change made different is compiled. Health and addresses of nodes are found out by
//! tasks on the control thread, which tell by [`Resources::next`]; a task ends with its node.

pub(crate) mod by_key;
mod consumers;
pub(crate) mod file;
pub(crate) mod passive;
mod probe;
mod resolver;
mod route;
#[cfg(test)]
mod tests;
pub(crate) mod tls;
pub(crate) mod upstream;
mod upstreams;

use crate::plugins::program::{About, Plugins, Program};
use crate::plugins::shares::Shares;
use crate::plugins::states::States;
use crate::settings::DnsSettings;
use crate::stream_proxy::Streams;
use crate::stream_proxy::routes::Stream;
use crate::tls::Certificates;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio::sync::mpsc;
use towpath_resources::model::Listener;
use towpath_resources::plugins::PluginMetadata;
use towpath_resources::{
    Changed, Document, Id, Key, Kind, Resolved, ResolvedConsumer, ResolvedRule, ResolvedStream, Set,
};
use towpath_route::Change;
use upstreams::Upstreams;

/// Something that a task has found out.
#[derive(Debug)]
pub(crate) enum Event {
    /// DNS has answered differently than before.
    Answered(resolver::Question, Vec<resolver::Found>),
    /// A check has turned a node over.
    Judged(probe::Judged),
}

/// What a change comes to.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// For the table.
    pub(crate) changes: Vec<Change>,
    /// Resources that cannot serve, and why; no text = it can again.
    pub(crate) refused: Vec<(String, Option<String>)>,
}

/// See the module.
pub(crate) struct Resources {
    set: Set,
    routes: HashMap<Id, Arc<Resolved>>,
    consumers: BTreeMap<Id, Arc<ResolvedConsumer>>,
    rules: Vec<Arc<ResolvedRule>>,
    metadata: HashMap<String, PluginMetadata>,
    upstreams: Upstreams,
    certificates: Arc<Certificates>,
    streams: BTreeMap<Id, Arc<Stream>>,
    listeners: Vec<(Id, Option<Arc<Listener>>)>,
    plugins: Arc<Plugins>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Resources {
    /// None yet; certificates go to where listeners look for them. `dns` = how names of nodes are resolved.
    pub(crate) fn new(certificates: Arc<Certificates>, dns: &DnsSettings) -> Self {
        let (tell, events) = mpsc::unbounded_channel();
        Self {
            set: Set::new(),
            routes: HashMap::new(),
            consumers: BTreeMap::new(),
            rules: Vec::new(),
            metadata: HashMap::new(),
            upstreams: Upstreams::new(resolver::Dns::new(dns.clone()), tell),
            certificates,
            streams: BTreeMap::new(),
            listeners: Vec::new(),
            plugins: Arc::new(Plugins { states: Arc::new(States::default()), ..Plugins::default() }),
            events,
        }
    }

    /// What requests need to know; `None` = nothing, there are neither routes nor global rules.
    pub(crate) fn plugins(&self) -> Option<Arc<Plugins>> {
        let any = !self.routes.is_empty() || !self.rules.is_empty() || !self.streams.is_empty();
        any.then(|| self.plugins.clone())
    }

    /// Listeners that have come, changed or gone since this was asked last.
    pub(crate) fn take_listeners(&mut self) -> Vec<(Id, Option<Arc<Listener>>)> {
        std::mem::take(&mut self.listeners)
    }

    /// Parts of limits that this gateway shares with others.
    pub(crate) fn shares(&self) -> Arc<Shares> {
        self.plugins.states.shares.clone()
    }

    /// The keys of all documents.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.set.documents().map(|document| document.key.clone()).collect()
    }

    /// The next thing that a task has found out. Never ends.
    pub(crate) async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Some(event) => event,
            None => std::future::pending().await,
        }
    }

    /// Changes of the table that a finding brings about.
    pub(crate) fn take(&mut self, event: Event) -> Vec<Change> {
        let changes = self.upstreams.take(event);
        self.refresh();
        changes
    }

    /// Puts and deletes documents.
    pub(crate) fn change(&mut self, puts: Vec<Document>, deletes: &[Key]) -> Outcome {
        let changed = self.set.change(puts, deletes);
        let mut outcome = Outcome::default();
        self.take_metadata(&changed);
        self.take_consumers(&changed);
        for resolved in &changed.upstreams {
            match self.upstreams.put(resolved) {
                Ok(changes) => outcome.changes.extend(changes),
                Err(why) => outcome.refused.push((resolved.owner.to_string(), Some(why))),
            }
        }
        self.take_certificates(&changed, &mut outcome);
        if let Some(rules) = &changed.rules {
            self.rules.clone_from(rules);
        }
        self.refresh();
        self.take_routes(&changed, &mut outcome);
        self.take_streams(&changed);
        for key in &changed.upstreams_gone {
            outcome.changes.extend(self.upstreams.remove(key.as_str()));
        }
        for refused in &changed.refused {
            let why: Vec<String> = refused.faults.iter().map(ToString::to_string).collect();
            outcome.refused.push((refused.key.to_string(), Some(why.join("; "))));
        }
        self.refresh();
        outcome
    }

    fn take_routes(&mut self, changed: &Changed, outcome: &mut Outcome) {
        let all = !changed.metadata.is_empty() || !changed.metadata_gone.is_empty();
        for resolved in &changed.routes {
            self.routes.insert(resolved.id.clone(), resolved.clone());
        }
        for id in &changed.routes_gone {
            if self.routes.remove(id).is_some() {
                outcome.changes.push(Change::DeleteRule(id.as_str().to_owned()));
            }
        }
        let again: Vec<_> = if all {
            self.routes.values().cloned().collect()
        } else {
            changed.routes.iter().filter(|route| self.routes.contains_key(&route.id)).cloned().collect()
        };
        for resolved in again {
            let name = Key::new(Kind::Route, resolved.id.clone()).to_string();
            match route::compile(&resolved, &self.plugins) {
                Ok(rule) => {
                    outcome.changes.push(Change::PutRule(Box::new(rule)));
                    outcome.refused.push((name, None));
                }
                Err(why) => outcome.refused.push((name, Some(why))),
            }
        }
    }

    fn take_certificates(&self, changed: &Changed, outcome: &mut Outcome) {
        let refused = self.certificates.change(&changed.ssls, &changed.ssls_gone);
        let named = |id: &Id| Key::new(Kind::Ssl, id.clone()).to_string();
        outcome.refused.extend(changed.ssls.iter().map(|(id, _)| (named(id), None)));
        outcome.refused.extend(refused.into_iter().map(|(id, why)| (named(&id), Some(why))));
    }

    /// Looks at what time alone changes; to be called often.
    pub(crate) fn look(&self) {
        self.certificates.look();
    }

    fn take_streams(&mut self, changed: &Changed) {
        let compiled = |stream: &Arc<ResolvedStream>| Stream::compile(stream, &self.plugins).map(Arc::new);
        let made: Vec<_> =
            changed.streams.iter().map(|stream| (stream.id.clone(), compiled(stream))).collect();
        for (id, stream) in made {
            match stream {
                Some(stream) => self.streams.insert(id, stream),
                None => self.streams.remove(&id),
            };
        }
        for id in &changed.streams_gone {
            self.streams.remove(id);
        }
        if !changed.streams.is_empty() || !changed.streams_gone.is_empty() {
            let streams = Arc::new(Streams::new(self.streams.values().cloned()));
            self.plugins = Arc::new(Plugins { streams, ..self.plugins.share() });
        }
        let came = changed.listeners.iter().map(|(id, listener)| (id.clone(), Some(listener.clone())));
        let gone = changed.listeners_gone.iter().map(|id| (id.clone(), None));
        self.listeners.extend(gone.chain(came));
    }

    fn take_metadata(&mut self, changed: &Changed) {
        for (id, metadata) in &changed.metadata {
            self.metadata.insert(id.as_str().to_owned(), metadata.clone());
        }
        for id in &changed.metadata_gone {
            self.metadata.remove(id.as_str());
        }
    }

    fn take_consumers(&mut self, changed: &Changed) {
        for consumer in &changed.consumers {
            self.consumers.insert(consumer.name.clone(), consumer.clone());
        }
        for id in &changed.consumers_gone {
            self.consumers.remove(id);
        }
        if !changed.consumers.is_empty() || !changed.consumers_gone.is_empty() {
            let consumers = Arc::new(consumers::index(self.consumers.values(), &self.plugins.consumers));
            let plugins = Plugins { consumers, ..self.plugins.share() };
            self.plugins = Arc::new(plugins);
        }
    }

    /// What requests need to know, of this moment.
    fn refresh(&mut self) {
        let mut plugins = self.plugins.share();
        plugins.upstreams = self.upstreams.by_key.clone();
        let is_known = *plugins.metadata == self.metadata;
        if !is_known {
            plugins.metadata = Arc::new(self.metadata.clone());
        }
        let uses: Vec<_> = self.rules.iter().flat_map(|rule| rule.plugins.iter().cloned()).collect();
        plugins.global = if uses.is_empty() {
            None
        } else if is_known && plugins.global.as_ref().is_some_and(|global| global.uses == uses) {
            plugins.global
        } else {
            let mut ordered = uses.clone();
            ordered.sort_by_key(|one| std::cmp::Reverse(one.priority));
            let mut program = Program::compile(ordered, About::default(), &plugins);
            program.uses = uses;
            Some(Arc::new(program))
        };
        self.plugins = Arc::new(plugins);
    }
}
