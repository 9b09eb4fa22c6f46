//! `api-breaker`: an upstream that fails again and again is left alone for a while.

use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use bytes::Bytes;
use http::header::HeaderName;
use std::sync::Arc;
use towpath_resources::plugins::api_breaker::Config;
use towpath_route::Statuses;
use towpath_route::breaker::{ApiBreaker as Breakers, ApiBreakerSettings};
use towpath_route::vars::Template;

/// See the module.
pub(in crate::plugins) struct ApiBreaker {
    config: Arc<Config>,
    settings: ApiBreakerSettings,
    breakers: Breakers,
}

impl ApiBreaker {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let settings = ApiBreakerSettings {
            bad: Statuses::of(&config.unhealthy.http_statuses),
            failures: config.unhealthy.failures,
            good: Statuses::of(&config.healthy.http_statuses),
            successes: config.healthy.successes,
            max_break_ms: config.max_breaker_sec.saturating_mul(1000),
        };
        let breakers = Breakers::new(scope.plugins.states.limits(), &scope.from);
        Self { config: config.clone(), settings, breakers }
    }

    fn key(&self, vars: &Vars<'_>) -> u64 {
        let mut text = vars.record.host().to_vec();
        text.extend_from_slice(vars.record.uri.path().as_bytes());
        self.breakers.key(&text)
    }

    fn answer(&self, vars: &Vars<'_>) -> Answer {
        let Some(body) = &self.config.break_response_body else {
            return Answer::status(self.config.break_response_code);
        };
        let mut answer = Answer::text(self.config.break_response_code, Bytes::from(body.clone()));
        for header in self.config.break_response_headers.iter().flatten() {
            if let Ok(name) = HeaderName::from_bytes(header.key.as_bytes()) {
                answer.headers.retain(|(known, _)| *known != name);
                answer = answer.with_text(name, &vars.fill(&Template::new(&header.value)).0);
            }
        }
        answer
    }
}

impl Plugin for ApiBreaker {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access, Phase::Log])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let vars = request.vars();
        match self.breakers.broken(clock::now_ns(), self.key(&vars), &self.settings) {
            Some(_) => Step::answer(self.answer(&vars)),
            None => Step::Next,
        }
    }

    fn log(&self, vars: &Vars<'_>) {
        if let Some(status) = vars.record.upstream_status {
            self.breakers.answered(clock::now_ns(), self.key(vars), status, &self.settings);
        }
    }
}
