//! `consumer-restriction`: which consumers may come, and with which methods.

use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use std::sync::Arc;
use towpath_resources::plugins::consumer_restriction::Config;
use towpath_route::vars::Name;

/// See the module.
pub(in crate::plugins) struct ConsumerRestriction {
    config: Arc<Config>,
    by: Name,
}

impl ConsumerRestriction {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self { by: Name::new(config.r#type.as_str()), config: config.clone() }
    }

    fn passes(&self, value: &str, method: &str) -> bool {
        let is_in = |list: &[String]| list.iter().any(|one| one == value);
        if self.config.blacklist.as_deref().is_some_and(is_in) {
            return false;
        }
        let listed = self.config.whitelist.as_deref().map(is_in);
        if listed == Some(true) {
            return true;
        }
        let rule = self.config.allowed_by_methods.iter().flatten().find(|rule| rule.user == value);
        let method = rule.is_none_or(|rule| rule.methods.iter().any(|one| one.as_str() == method));
        listed.is_none() && method
    }
}

impl Plugin for ConsumerRestriction {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let kind = self.config.r#type.as_str();
        let Some(value) = request.vars().text(&self.by) else {
            let why = format!("The request is rejected, please check the {kind} for this request");
            return Step::answer(Answer::message(401, &why));
        };
        if self.passes(&value, request.record.method.as_str()) {
            return Step::Next;
        }
        let usual = format!("The {kind} is forbidden.");
        let message = self.config.rejected_msg.as_deref().unwrap_or(&usual);
        Step::answer(Answer::message(self.config.rejected_code, message))
    }
}
