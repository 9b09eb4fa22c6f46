//! Which certificate serves a name.

use super::served::Served;
use std::collections::HashMap;
use std::sync::Arc;

/// An index by name: exact before wildcard, a wildcard stands for one label.
#[derive(Debug, Default)]
pub(crate) struct Names {
    exact: HashMap<Box<str>, Arc<Served>>,
    /// By what follows `*.`.
    wildcard: HashMap<Box<str>, Arc<Served>>,
    any: Option<Arc<Served>>,
    /// Some name's clients have to show a certificate.
    pub(crate) asks_clients: bool,
}

impl Names {
    /// Of these certificates, at a moment in seconds since 1970; which one of several for a name, [`Served::rank`] says.
    pub(crate) fn new<'s>(all: impl Iterator<Item = &'s Arc<Served>>, now: i64) -> Self {
        let mut names = Self::default();
        for served in all {
            names.asks_clients |= served.client.is_some();
            for name in served.names() {
                let present = match name.strip_prefix("*.") {
                    _ if name == "*" => names.any.as_ref(),
                    Some(parent) => names.wildcard.get(parent),
                    None => names.exact.get(name),
                };
                if present.is_some_and(|present| present.rank(now) >= served.rank(now)) {
                    continue;
                }
                match name.strip_prefix("*.") {
                    _ if name == "*" => names.any = Some(served.clone()),
                    Some(parent) => drop(names.wildcard.insert(parent.into(), served.clone())),
                    None => drop(names.exact.insert(name.into(), served.clone())),
                }
            }
        }
        names
    }

    /// The certificate for a name in lower case.
    pub(crate) fn find(&self, name: &str) -> Option<&Arc<Served>> {
        let name = name.strip_suffix('.').unwrap_or(name);
        self.exact.get(name).or_else(|| self.wildcard.get(name.split_once('.')?.1)).or(self.any.as_ref())
    }
}
