//! A configuration, made ready: what the key is made of.

use crate::cache::Digest;
use crate::cache::index::digest;
use crate::plugins::vars::Vars;
use std::sync::Arc;
use towpath_resources::plugins::proxy_cache::Config;
use towpath_route::vars::Name;

/// Parts of a key that say who asks. Others are empty where credentials are hidden.
const WHO: [&str; 2] = ["$consumer_name", "$consumer_group_id"];

/// See the module.
pub(super) struct Plan {
    pub(super) config: Arc<Config>,
    key: Vec<Part>,
    bypass: Vec<Part>,
    no_cache: Vec<Part>,
    /// The key itself says who asks.
    own_identity: bool,
}

enum Part {
    Text(String),
    Var(Name),
}

fn parts(texts: &[String]) -> Vec<Part> {
    let part = |text: &String| match text.strip_prefix('$') {
        Some(name) => Part::Var(Name::new(name)),
        None => Part::Text(text.clone()),
    };
    texts.iter().map(part).collect()
}

fn join(parts: &[Part], vars: &Vars<'_>) -> Vec<String> {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Var(name) => vars.text(name).unwrap_or_default(),
    };
    parts.iter().map(text).collect()
}

fn says_yes(parts: &[Part], vars: &Vars<'_>) -> bool {
    let all = join(parts, vars).concat();
    !all.is_empty() && all != "0"
}

impl Plan {
    pub(super) fn of(config: &Arc<Config>) -> Self {
        Self {
            key: parts(&config.cache_key),
            bypass: parts(config.cache_bypass.as_deref().unwrap_or_default()),
            no_cache: parts(config.no_cache.as_deref().unwrap_or_default()),
            own_identity: config.cache_key.iter().any(|part| WHO.contains(&part.as_str())),
            config: config.clone(),
        }
    }

    pub(super) fn bypasses(&self, vars: &Vars<'_>) -> bool {
        says_yes(&self.bypass, vars)
    }

    pub(super) fn is_not_kept(&self, vars: &Vars<'_>) -> bool {
        says_yes(&self.no_cache, vars)
    }

    /// Whether keys tell requests of different people apart by something that was verified, or by all that they prove it with.
    pub(super) fn knows_who(&self, consumer: bool) -> bool {
        let has = |name: &str| self.config.cache_key.iter().any(|part| part == name);
        has("$http_authorization")
            || (consumer && (has("$consumer_name") || (self.config.consumer_isolation && !self.own_identity)))
    }

    /// The key of a request. Different routes and lanes have different ones: what differs in them is not in its target.
    pub(super) fn key(&self, vars: &Vars<'_>, lane: &str, class: &str) -> Digest {
        let mut who = String::new();
        if self.config.consumer_isolation && !self.own_identity {
            let name = |name: &str| vars.other(name).map(|name| name.into_owned());
            who = name("consumer_name").or_else(|| name("remote_user")).unwrap_or_default();
        }
        let route = vars.other("route_id").unwrap_or_default();
        let values = join(&self.key, vars);
        let first = [self.config.cache_zone.as_str(), &*route, lane, class, &who];
        digest(first.into_iter().chain(values.iter().map(String::as_str)).map(str::as_bytes))
    }
}
