//! `client-control`: how large a request may be.

use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use http_body::Body;
use std::sync::Arc;
use towpath_resources::plugins::client_control::Config;

/// See the module.
pub(in crate::plugins) struct ClientControl(Option<u64>);

impl ClientControl {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.max_body_size)
    }
}

impl Plugin for ClientControl {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let Some(most) = self.0.map(|most| if most == 0 { u64::MAX } else { most }) else {
            return Step::Next;
        };
        let length = request.body.as_ref().and_then(|body| body.size_hint().exact());
        if length.is_some_and(|length| length > most) {
            return Step::answer(Answer::status(413));
        }
        request.running().max_body = Some(most);
        Step::Next
    }
}
