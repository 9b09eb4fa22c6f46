//! Rules: routes with conditions, as APISIX's resources have them.

use crate::net::Networks;
use crate::vars::Expr;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use towpath_types::upstream::Timeouts;
use towpath_types::{AppRef, LaneName};

/// A rule of the routing table. See [`crate::Table::find_for`] for which of several rules a request gets.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleSpec {
    /// Unique among rules. Of two that are equal in all else, the smaller one goes first.
    pub id: String,
    /// Hosts in any case, without port: `shop.example.com`, or `*.example.com` for exactly one further label. None = every
    /// host that has nothing better.
    pub hosts: Vec<String>,
    /// Paths, at least one: `/a` exactly, `/a*` and whatever begins so, `/user/:name/x` with parameters of one segment,
    /// `/files/*path` with a parameter that takes any number of segments.
    pub paths: Vec<String>,
    /// Methods; `None` = all.
    pub methods: Option<Methods>,
    /// Networks of clients; `None` = all.
    pub remote: Option<Networks>,
    /// A further condition.
    pub vars: Option<Expr>,
    /// Among rules on the same path the higher one goes first; normally 0.
    pub priority: i64,
    /// Who serves: an app, or an upstream as [`AppRef::of_upstream`].
    pub target: AppRef,
    /// The lane of requests that name none; `None` = base.
    pub lane: Option<LaneName>,
    /// Limits in time instead of the target's own.
    pub timeouts: Option<Timeouts>,
    /// Whether a connection may be upgraded.
    pub websocket: bool,
    /// Whatever the gateway needs with it.
    pub payload: Option<Payload>,
}

impl RuleSpec {
    /// A rule for every request on `paths`, without conditions.
    pub fn new(id: impl Into<String>, paths: &[&str], target: AppRef) -> Self {
        Self {
            id: id.into(),
            hosts: Vec::new(),
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
            methods: None,
            remote: None,
            vars: None,
            priority: 0,
            target,
            lane: None,
            timeouts: None,
            websocket: false,
            payload: None,
        }
    }
}

/// Something of the gateway's that hangs on a rule. Equal only to itself.
#[derive(Clone)]
pub struct Payload(pub Arc<dyn Any + Send + Sync>);

impl Payload {
    /// It, if it is of this type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Payload")
    }
}

/// A set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Methods(u16);

/// The methods that a rule can name.
const METHODS: [&str; 10] =
    ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE", "PURGE"];

impl Methods {
    /// Reads methods in upper case; `Err` says which one is none, and what would be right.
    pub fn parse(names: &[impl AsRef<str>]) -> Result<Self, String> {
        let mut set = 0;
        for name in names {
            let name = name.as_ref();
            let at = METHODS.iter().position(|known| *known == name);
            let at =
                at.ok_or_else(|| format!("method {name:?} is not known; one of {}", METHODS.join(", ")))?;
            set |= 1 << at;
        }
        Ok(Self(set))
    }

    /// Whether a method (as sent) is in the set.
    pub fn contains(self, method: &str) -> bool {
        METHODS.iter().position(|known| *known == method).is_some_and(|at| self.0 >> at & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_named_as_they_are_sent() {
        let set = Methods::parse(&["GET", "PURGE"]).unwrap();
        assert!(set.contains("GET") && set.contains("PURGE"));
        assert!(!set.contains("POST") && !set.contains("get") && !set.contains(""));
        assert!(Methods::parse(&["GET", "FETCH"]).unwrap_err().contains("PURGE"));
    }
}
