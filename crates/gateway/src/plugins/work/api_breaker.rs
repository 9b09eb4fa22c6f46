//! `api-breaker`: an upstream that fails again and again is left alone for a while.

use super::counters::Counters;
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use bytes::Bytes;
use http::header::HeaderName;
use std::sync::Arc;
use towpath_resources::plugins::api_breaker::Config;
use towpath_route::vars::Template;

/// See the module.
pub(in crate::plugins) struct ApiBreaker {
    config: Arc<Config>,
    seen: Arc<Counters<Seen>>,
}

/// What was seen of one host and path.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::plugins) struct Seen {
    unhealthy: u32,
    healthy: u32,
    /// When it was last found unhealthy; 0 = never.
    at_ms: u64,
}

impl Seen {
    fn is_broken(&self, now_ms: u64, config: &Config) -> bool {
        let times = (self.unhealthy / config.unhealthy.failures).max(1);
        let seconds = 2_u64.checked_pow(times).unwrap_or(u64::MAX).min(config.max_breaker_sec);
        self.at_ms > 0 && now_ms < self.at_ms.saturating_add(seconds.saturating_mul(1000))
    }

    fn note(&mut self, status: u16, now_ms: u64, config: &Config) {
        if config.unhealthy.http_statuses.contains(&status) {
            self.unhealthy += 1;
            self.healthy = 0;
            if self.unhealthy.is_multiple_of(config.unhealthy.failures) {
                self.at_ms = now_ms.max(1);
            }
        } else if config.healthy.http_statuses.contains(&status) && self.unhealthy > 0 {
            self.healthy += 1;
            if self.healthy >= config.healthy.successes {
                *self = Self::default();
            }
        }
    }
}

impl ApiBreaker {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let seen = scope.plugins.states.kept(
            &format!("{}/api-breaker", scope.from),
            clock::now_ns(),
            Counters::default,
        );
        Self { config: config.clone(), seen }
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

fn key(vars: &Vars<'_>) -> String {
    format!("{}{}", String::from_utf8_lossy(vars.record.host()), vars.record.uri.path())
}

impl Plugin for ApiBreaker {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access, Phase::Log])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let (vars, now) = (request.vars(), clock::now_ms());
        let mut broken = false;
        self.seen.finish(&key(&vars), |seen| {
            broken = seen.is_broken(now, &self.config);
            false
        });
        if broken { Step::answer(self.answer(&vars)) } else { Step::Next }
    }

    fn log(&self, vars: &Vars<'_>) {
        let Some(status) = vars.record.upstream_status else { return };
        let now = clock::now_ms();
        let key = key(vars);
        if self.config.unhealthy.http_statuses.contains(&status) {
            let spent = |seen: &Seen| !seen.is_broken(now, &self.config);
            self.seen.with(&key, spent, |seen| seen.note(status, now, &self.config));
        } else {
            self.seen.finish(&key, |seen| {
                seen.note(status, now, &self.config);
                seen.unhealthy == 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_break_is_twice_as_long_and_successes_end_it() {
        let config: Config = serde_json::from_value(serde_json::json!({"break_response_code": 502})).unwrap();
        let mut seen = Seen::default();
        (0..2).for_each(|_| seen.note(500, 1000, &config));
        assert!(!seen.is_broken(1000, &config));
        seen.note(500, 1000, &config);
        assert!(seen.is_broken(2999, &config) && !seen.is_broken(3000, &config));
        (0..3).for_each(|_| seen.note(500, 5000, &config));
        assert!(seen.is_broken(8999, &config) && !seen.is_broken(9000, &config));
        (0..3).for_each(|_| seen.note(200, 9000, &config));
        assert_eq!((seen.unhealthy, seen.at_ms), (0, 0));
        (0..1000).for_each(|_| seen.note(500, 10_000, &config));
        assert!(seen.is_broken(309_999, &config) && !seen.is_broken(310_000, &config));
    }
}
