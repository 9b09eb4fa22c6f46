//! `limit-conn`: so many requests at the same time for each value of a key.

use super::counters::Counters;
use super::limit_key::{Amount, LimitKey};
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::limit_conn::{Config, KeyType};

/// See the module.
pub(in crate::plugins) struct LimitConn {
    config: Arc<Config>,
    limits: Vec<Limit>,
    counted: Arc<Counters<Level>>,
}

struct Limit {
    conn: Amount,
    burst: Amount,
    key: LimitKey,
    one_of_several: bool,
}

/// Requests of one value of the key at the moment.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(in crate::plugins) struct Level {
    requests: u64,
    /// What one step above the limit waits; 0 = not known yet.
    unit_s: f64,
}

impl Level {
    /// One more, if it may come: how long it waits.
    fn enter(&mut self, conn: u64, burst: u64, default_s: f64) -> Option<f64> {
        if self.requests >= conn + burst {
            return None;
        }
        self.requests += 1;
        if self.unit_s == 0.0 {
            self.unit_s = default_s;
        }
        if self.requests <= conn {
            return Some(0.0);
        }
        Some(((self.requests - 1) / conn.max(1)) as f64 * self.unit_s)
    }

    /// One less; `true` = nobody is left.
    fn leave(&mut self, took_s: Option<f64>) -> bool {
        self.requests = self.requests.saturating_sub(1);
        if let Some(took_s) = took_s {
            self.unit_s = (self.unit_s + took_s) / 2.0;
        }
        self.requests == 0
    }
}

/// A place that a request has, given back when it ends, however it ends.
struct Slot {
    counted: Arc<Counters<Level>>,
    key: String,
    since_ns: u64,
    learns: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let took = clock::now_ns().saturating_sub(self.since_ns) as f64 / 1e9;
        self.counted.finish(&self.key, |level| level.leave(self.learns.then_some(took)));
    }
}

impl LimitConn {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let mut limits = Vec::new();
        if let (Some(conn), Some(burst), Some(key)) = (&config.conn, &config.burst, &config.key) {
            limits.push(Limit {
                conn: Amount::of(conn),
                burst: Amount::of_quantity(burst),
                key: LimitKey::of_conn(config.key_type, key),
                one_of_several: false,
            });
        }
        limits.extend(config.rules.iter().flatten().map(|rule| Limit {
            conn: Amount::of(&rule.conn),
            burst: Amount::of_quantity(&rule.burst),
            key: LimitKey::of_conn(KeyType::VarCombination, &rule.key),
            one_of_several: true,
        }));
        let counted = scope.plugins.states.kept(
            &format!("{}/limit-conn", scope.from),
            clock::now_ns(),
            Counters::default,
        );
        Self { config: config.clone(), limits, counted }
    }

    fn refuse(&self) -> Answer {
        match &self.config.rejected_msg {
            Some(message) => Answer::error_msg(self.config.rejected_code, message),
            None => Answer::status(self.config.rejected_code),
        }
    }

    /// Takes a place for each limit: the longest wait.
    fn enter(&self, request: &mut Request<'_>) -> Result<f64, Option<Answer>> {
        let (mut longest, mut applied) = (0.0_f64, false);
        for (n, limit) in self.limits.iter().enumerate() {
            let vars = request.vars();
            let key =
                if limit.one_of_several { limit.key.own_value(&vars) } else { Some(limit.key.value(&vars)) };
            let (conn, burst) = (limit.conn.value(&vars, 1), limit.burst.value(&vars, 0));
            let (Some(key), Some(conn), Some(burst)) = (key, conn, burst) else { continue };
            applied = true;
            let key = format!("{n}:{key}");
            let entered = self.counted.with(
                &key,
                |level| level.requests == 0,
                |level| level.enter(conn, burst, self.config.default_conn_delay),
            );
            let Some(wait) = entered else { return Err(Some(self.refuse())) };
            longest = longest.max(wait);
            let learns = !self.config.only_use_default_delay;
            request.hold(Slot { counted: self.counted.clone(), key, since_ns: clock::now_ns(), learns });
        }
        if applied || self.config.allow_degradation { Ok(longest) } else { Err(Some(Answer::status(500))) }
    }
}

impl Plugin for LimitConn {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        match self.enter(request) {
            Ok(wait) if wait < 0.001 => Step::Next,
            Ok(wait) => {
                let time = Duration::try_from_secs_f64(wait).unwrap_or_default();
                Step::Wait(Box::pin(async move {
                    tokio::time::sleep(time).await;
                    Box::new(|_: &mut Request<'_>| Step::Next) as Resume
                }))
            }
            Err(Some(answer)) => Step::answer(answer),
            Err(None) => Step::Next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_above_the_limit_wait_and_those_above_the_burst_are_refused() {
        let mut level = Level::default();
        let waits: Vec<_> = (0..6).map(|_| level.enter(2, 3, 0.1)).collect();
        assert_eq!(waits, [Some(0.0), Some(0.0), Some(0.1), Some(0.1), Some(0.2), None]);
        assert!(!level.leave(None));
        assert_eq!(level.enter(2, 3, 0.1), Some(0.2));
        for left in (0..5).rev() {
            assert_eq!(level.leave(Some(0.3)), left == 0);
        }
        assert!(level.unit_s > 0.1 && level.unit_s < 0.3);
    }

    #[test]
    fn a_slot_is_given_back_when_it_is_dropped() {
        let counted = Arc::new(Counters::<Level>::default());
        counted.with("k", |_| false, |level| level.enter(1, 0, 0.1));
        let slot = Slot { counted: counted.clone(), key: "k".into(), since_ns: 0, learns: false };
        assert_eq!(counted.with("k", |_| false, |level| level.enter(1, 0, 0.1)), None);
        drop(slot);
        assert_eq!(counted.len(), 0);
        assert_eq!(counted.with("k", |_| false, |level| level.enter(1, 0, 0.1)), Some(0.0));
    }
}
