//! `uri-blocker`: requests whose URI matches an expression are refused.

use super::substitute;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::uri_blocker::Config;

/// See the module.
pub(in crate::plugins) struct UriBlocker {
    config: Arc<Config>,
    rules: Vec<Regex>,
}

impl UriBlocker {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self {
            rules: substitute::patterns(&config.block_rules, config.case_insensitive),
            config: config.clone(),
        }
    }
}

impl Plugin for UriBlocker {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let uri = request.record.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        if !self.rules.iter().any(|rule| rule.is_match(uri.as_bytes())) {
            return Step::Next;
        }
        Step::answer(match &self.config.rejected_msg {
            Some(message) => Answer::error_msg(self.config.rejected_code, message),
            None => Answer::status(self.config.rejected_code),
        })
    }
}
