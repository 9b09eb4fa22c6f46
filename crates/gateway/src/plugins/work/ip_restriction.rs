//! `ip-restriction`: which clients may come, by address.

use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use std::sync::Arc;
use towpath_resources::model::Address;
use towpath_resources::plugins::ip_restriction::Config;
use towpath_route::Networks;

/// See the module.
pub(in crate::plugins) struct IpRestriction {
    config: Arc<Config>,
    only: Option<Networks>,
    not: Option<Networks>,
}

/// Addresses and networks as a set.
pub(super) fn networks(addresses: &[Address]) -> Networks {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Networks::parse(&texts).unwrap_or_default()
}

impl IpRestriction {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self {
            only: config.whitelist.as_deref().map(networks),
            not: config.blacklist.as_deref().map(networks),
            config: config.clone(),
        }
    }
}

impl Plugin for IpRestriction {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let client = request.record.client();
        let blocked = self.only.as_ref().is_some_and(|only| !only.contains(client))
            || self.not.as_ref().is_some_and(|not| not.contains(client));
        if blocked {
            return Step::answer(Answer::message(self.config.response_code, &self.config.message));
        }
        Step::Next
    }
}
