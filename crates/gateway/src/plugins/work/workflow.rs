//! `workflow`: what happens to a request is decided by the first rule whose conditions it meets.

use crate::plugins::make::{Scope, make};
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use std::sync::Arc;
use towpath_resources::plugins::workflow::{Action, Config};
use towpath_route::vars::Expr;

/// See the module.
pub(in crate::plugins) struct Workflow(Vec<(Option<Expr>, Done)>);

enum Done {
    Answer(u16),
    Plugin(Arc<dyn Plugin>),
}

impl Workflow {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let rules = config.rules.iter().enumerate().filter_map(|(n, rule)| {
            let done = match rule.action().ok()? {
                Action::Return(code) => Done::Answer(code),
                Action::Plugin(config) => {
                    // Each rule counts for itself.
                    let from = format!("{}/workflow/{n}", scope.from);
                    Done::Plugin(make(&config, &Scope { from, plugins: scope.plugins }))
                }
            };
            Some((rule.case.as_ref().map(|case| case.0.clone()), done))
        });
        Self(rules.collect())
    }
}

impl Plugin for Workflow {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let vars = request.vars();
        let met = self.0.iter().find(|(case, _)| case.as_ref().is_none_or(|case| case.holds(&vars)));
        match met {
            None => Step::Next,
            Some((_, Done::Answer(code))) => Step::answer(Answer::error_msg(*code, "rejected by workflow")),
            Some((_, Done::Plugin(plugin))) => plugin.access(request),
        }
    }
}
