//! `ua-restriction`: which programs may come, by what they say of themselves.

use super::substitute;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use http::header::USER_AGENT;
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::ua_restriction::Config;

/// See the module.
pub(in crate::plugins) struct UaRestriction {
    config: Arc<Config>,
    only: Option<Vec<Regex>>,
    not: Option<Vec<Regex>>,
}

impl UaRestriction {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let regexes =
            |texts: &Option<Vec<String>>| texts.as_ref().map(|texts| substitute::patterns(texts, false));
        Self { only: regexes(&config.allowlist), not: regexes(&config.denylist), config: config.clone() }
    }

    fn passes(&self, request: &Request<'_>) -> bool {
        let mut agents =
            request.headers.get_all(USER_AGENT).iter().map(|value| value.as_bytes().trim_ascii()).peekable();
        if agents.peek().is_none() {
            return self.config.bypass_missing;
        }
        let any = |regexes: &[Regex], agent: &[u8]| regexes.iter().any(|regex| regex.is_match(agent));
        match (&self.only, &self.not) {
            (Some(only), _) => agents.any(|agent| any(only, agent)),
            (None, Some(not)) => agents.all(|agent| !any(not, agent)),
            (None, None) => true,
        }
    }
}

impl Plugin for UaRestriction {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        if self.passes(request) {
            return Step::Next;
        }
        Step::answer(Answer::message(403, &self.config.message))
    }
}
