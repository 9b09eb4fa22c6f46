//! The certificates of the process, as resources put them.

use super::expiry::{self, Told};
use super::listener::Chosen;
use super::served::Served;
use super::tickets::TicketKeys;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use towpath_resources::Id;
use towpath_resources::model::{Ssl, SslKind, Switch};

/// Most certificates whose expiry is listed for scrapes, soonest first.
const LISTED: usize = 1_000;

/// See the module. Changed by the control thread; the indexes of listeners are what handshakes read.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(super) keys: Arc<TicketKeys>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    served: BTreeMap<Id, Arc<Served>>,
    listeners: Vec<Arc<Chosen>>,
    told: Told,
    /// When validity was looked at last, seconds since 1970.
    looked: i64,
}

impl Certificates {
    /// None yet.
    pub(crate) fn new(keys: Arc<TicketKeys>) -> Arc<Self> {
        Arc::new(Self { keys, inner: Mutex::default() })
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listener reads from here from now on.
    pub(super) fn add_listener(&self, listener: Arc<Chosen>) {
        let mut inner = self.inner();
        inner.listeners.push(listener);
        inner.publish(unix_seconds());
    }

    /// Puts and removes certificates; they serve when this returns. Tells those that cannot serve, with why; the version from
    /// before goes on serving there.
    pub(crate) fn change(&self, puts: &[(Id, Arc<Ssl>)], gone: &[Id]) -> Vec<(Id, String)> {
        if puts.is_empty() && gone.is_empty() {
            return Vec::new();
        }
        let mut refused = Vec::new();
        let mut made = Vec::new();
        for (id, ssl) in puts.iter().filter(|(id, _)| !gone.contains(id)) {
            if ssl.r#type != SslKind::Server || ssl.status != Switch::On {
                made.push((id, None));
                continue;
            }
            if self.inner().served.get(id).is_some_and(|known| known.ssl.as_ref() == Some(ssl)) {
                continue;
            }
            match Served::of_resource(id, ssl, &self.keys) {
                Ok(served) => made.push((id, Some(Arc::new(served)))),
                Err(why) => refused.push((id.clone(), why)),
            }
        }
        let mut inner = self.inner();
        for (id, served) in made {
            match served {
                Some(served) => drop(inner.served.insert(id.clone(), served)),
                None => drop(inner.served.remove(id)),
            }
        }
        for id in gone {
            inner.served.remove(id);
        }
        let now = unix_seconds();
        inner.publish(now);
        inner.warn(now);
        refused
    }

    /// Looks at what time alone changes: called often, does something once an hour.
    pub(crate) fn look(&self) {
        let now = unix_seconds();
        let mut inner = self.inner();
        if now - inner.looked >= 3600 {
            inner.publish(now);
            inner.warn(now);
        }
    }

    /// Writes how long certificates are valid still, in Prometheus text form.
    pub(crate) fn render(&self, out: &mut String) {
        let now = unix_seconds();
        let mut all: Vec<_> = {
            let inner = self.inner();
            inner.served.iter().map(|(id, served)| (served.validity.not_after, id.clone())).collect()
        };
        if all.is_empty() {
            return;
        }
        all.sort_unstable();
        let name = "towpath_gateway_certificate_expiry_seconds";
        let _ = writeln!(out, "# TYPE {name} gauge");
        for (not_after, id) in all.into_iter().take(LISTED) {
            let _ = writeln!(out, "{name}{{id=\"{}\"}} {}", id.as_str(), not_after - now);
        }
    }
}

impl Inner {
    fn publish(&mut self, now: i64) {
        self.looked = now;
        for listener in &self.listeners {
            listener.publish(self.served.values(), now);
        }
    }

    fn warn(&mut self, now: i64) {
        let ends = self.served.iter().map(|(id, served)| (id, served.validity.not_after));
        for (id, words) in expiry::due(&mut self.told, ends, now) {
            tracing::warn!(certificate = %format_args!("ssls/{}", id.as_str()), "a certificate {words}");
        }
    }
}

pub(super) fn unix_seconds() -> i64 {
    i64::try_from(crate::clock::unix_ms() / 1000).unwrap_or(i64::MAX)
}
