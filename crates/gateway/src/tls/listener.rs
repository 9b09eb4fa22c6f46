//! What a TLS listener serves.

use super::certificates::Certificates;
use super::names::Names;
use super::own;
use super::own::TlsError;
use super::served::Served;
use crate::settings::TlsSettings;
use arc_swap::{ArcSwap, Guard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Those of the process's certificates that a listener's labels choose.
#[derive(Debug)]
pub(crate) struct Chosen {
    labels: BTreeMap<String, String>,
    names: ArcSwap<Names>,
}

impl Chosen {
    /// Swaps the index.
    pub(super) fn publish<'s>(&self, all: impl Iterator<Item = &'s Arc<Served>>, now: i64) {
        let wanted = |served: &&Arc<Served>| {
            let labels = served.ssl.as_ref().and_then(|ssl| ssl.labels.as_ref());
            self.labels.iter().all(|(name, value)| {
                labels.and_then(|labels| labels.get(name)).is_some_and(|label| label.0 == *value)
            })
        };
        self.names.store(Arc::new(Names::new(all.filter(wanted), now)));
    }
}

/// A TLS listener, shared by all workers.
#[derive(Debug)]
pub(crate) struct TlsListener {
    chosen: Arc<Chosen>,
    /// From its own files: for clients that name nothing, or what no resource has.
    own: Option<Arc<Served>>,
    fallback: Option<Box<str>>,
    /// Handshakes under way.
    handshakes: AtomicUsize,
    most: usize,
}

impl TlsListener {
    /// As settings say.
    pub(crate) fn new(settings: &TlsSettings, certificates: &Certificates) -> Result<Arc<Self>, TlsError> {
        let unusable = |why| TlsError::Unusable { listen: settings.listen, why };
        let own = own::load(settings)?.map(|pair| Served::of_files(pair, &certificates.keys));
        let own = own.transpose().map_err(unusable)?.map(Arc::new);
        let chosen = Arc::new(Chosen { labels: settings.labels.clone(), names: ArcSwap::default() });
        certificates.add_listener(chosen.clone());
        Ok(Arc::new(Self {
            chosen,
            own,
            fallback: settings.fallback_sni.as_deref().map(|name| name.to_ascii_lowercase().into()),
            handshakes: AtomicUsize::new(0),
            most: settings.handshakes,
        }))
    }

    /// The newest index.
    pub(super) fn names(&self) -> Guard<Arc<Names>> {
        self.chosen.names.load()
    }

    /// What serves a client that has named `name`.
    pub(crate) fn find(&self, name: Option<&str>) -> Option<Arc<Served>> {
        let found = name.or(self.fallback.as_deref()).and_then(|name| self.names().find(name).cloned());
        found.or_else(|| self.own.clone())
    }

    /// Room for one handshake more, for as long as it is held.
    pub(crate) fn place(self: &Arc<Self>) -> Option<Place> {
        let more = |now: usize| (now < self.most).then_some(now + 1);
        self.handshakes.fetch_update(Relaxed, Relaxed, more).ok().map(|_| Place(self.clone()))
    }
}

/// See [`TlsListener::place`].
pub(crate) struct Place(Arc<TlsListener>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.handshakes.fetch_sub(1, Relaxed);
    }
}
