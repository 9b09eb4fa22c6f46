//! `limit-req`: so many requests in a second for each value of a key, evenly (a leaky bucket).

use super::limit_key::{LimitKey, scope_of};
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::limit_conn::KeyType;
use towpath_resources::plugins::limit_req::Config;
use towpath_route::limit::Req;

/// See the module.
pub(in crate::plugins) struct LimitReq {
    config: Arc<Config>,
    key: LimitKey,
    counted: Req,
}

impl LimitReq {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let name = scope_of(scope, config.key_type == KeyType::Global);
        let counted = Req::new(scope.plugins.states.limits(), &name);
        Self { key: LimitKey::of_conn(config.key_type, &config.key), config: config.clone(), counted }
    }
}

impl Plugin for LimitReq {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let key = self.counted.key(self.key.value(&request.vars()).as_bytes());
        let wait = self.counted.take(clock::now_ns(), key, self.config.rate, self.config.burst);
        match (wait, &self.config.rejected_msg) {
            (None, Some(message)) => Step::answer(Answer::error_msg(self.config.rejected_code, message)),
            (None, None) => Step::answer(Answer::status(self.config.rejected_code)),
            (Some(wait), _) if wait < 1_000_000 || self.config.nodelay => Step::Next,
            (Some(wait), _) => Step::pause(Duration::from_nanos(wait)),
        }
    }
}
