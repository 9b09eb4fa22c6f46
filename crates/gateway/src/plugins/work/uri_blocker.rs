//! `uri-blocker`: requests whose URI matches an expression are refused.

use super::substitute;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::uri_blocker::Config;

/// See the module.
pub(in crate::plugins) struct UriBlocker {
    config: Arc<Config>,
    /// `None` = one of them cannot be used, so that nothing can be said of requests.
    rules: Option<Vec<Regex>>,
}

impl UriBlocker {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self {
            rules: config
                .block_rules
                .iter()
                .map(|text| substitute::pattern(text, config.case_insensitive))
                .collect(),
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
        let Some(rules) = &self.rules else {
            return Step::answer(Answer::error_msg(500, "a rule of uri-blocker cannot be used"));
        };
        if !rules.iter().any(|rule| rule.is_match(uri.as_bytes())) {
            return Step::Next;
        }
        Step::answer(match &self.config.rejected_msg {
            Some(message) => Answer::error_msg(self.config.rejected_code, message),
            None => Answer::status(self.config.rejected_code),
        })
    }
}
