//! `limit-conn`: so many requests at the same time for each value of a key.

use super::limit_key::{Amount, LimitKey, scope_of};
use super::shared::Shared;
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::shares::{Place, Shares, Spec, Taken};
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::limit_conn::{Config, KeyType};
use towpath_resources::plugins::limit_count::Policy;
use towpath_route::limit::lease::Sort;
use towpath_route::limit::{Conn, ConnSlot};

/// See the module.
pub(in crate::plugins) struct LimitConn {
    config: Arc<Config>,
    limits: Vec<Limit>,
    counted: Arc<Conn>,
    /// Slots are those of all gateways.
    shared: Option<Shared>,
}

struct Limit {
    conn: Amount,
    burst: Amount,
    key: LimitKey,
    one_of_several: bool,
}

/// A place that a request has, given back when it ends, however it ends.
struct Slot {
    place: Option<ConnSlot>,
    since_ns: u64,
    learns: bool,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(place) = self.place.take().filter(|_| self.learns) {
            place.done(clock::now_ns().saturating_sub(self.since_ns));
        }
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
        let name = scope_of(scope, config.key_type == KeyType::Global);
        let unit_ns = (config.default_conn_delay * 1e9) as u64;
        let states = &scope.plugins.states;
        // Slots are counted under the name alone; what a request takes is learned anew after another default.
        let counted = states.kept(
            &format!("{name}/limit-conn/{unit_ns}/{}", config.only_use_default_delay),
            clock::now_ns(),
            || Conn::new(states.limits(), &name, unit_ns),
        );
        let shared = (config.policy == Policy::Shared).then(|| Shared::new(scope, "limit-conn", &name));
        Self { config: config.clone(), limits, counted, shared }
    }

    fn refuse(&self) -> Answer {
        match &self.config.rejected_msg {
            Some(message) => Answer::error_msg(self.config.rejected_code, message),
            None => Answer::status(self.config.rejected_code),
        }
    }

    /// Takes a place for each limit: the longest wait, nanoseconds.
    fn enter(&self, request: &mut Request<'_>) -> Result<u64, Answer> {
        let (mut longest, mut applied) = (0, false);
        for (n, limit) in self.limits.iter().enumerate() {
            let vars = request.vars();
            let key =
                if limit.one_of_several { limit.key.own_value(&vars) } else { Some(limit.key.value(&vars)) };
            let (conn, burst) = (limit.conn.value(&vars, 1), limit.burst.value(&vars, 0));
            let (Some(key), Some(conn), Some(burst)) = (key, conn, burst) else { continue };
            applied = true;
            let key = self.counted.key(n as u64, key.as_bytes());
            let Some(place) = self.counted.take(key, conn, burst) else { return Err(self.refuse()) };
            longest = longest.max(place.delay_ns);
            let learns = !self.config.only_use_default_delay;
            request.hold(Slot { place: Some(place), since_ns: clock::now_ns(), learns });
        }
        if applied || self.config.allow_degradation { Ok(longest) } else { Err(Answer::status(500)) }
    }
}

impl LimitConn {
    /// The one limit that is shared with other gateways.
    fn enter_shared(self: &Arc<Self>, shared: &Shared, request: &mut Request<'_>) -> Step {
        let Some(limit) = self.limits.first() else { return Step::Next };
        let vars = request.vars();
        let Some(conn) = limit.conn.value(&vars, 1) else {
            return if self.config.allow_degradation {
                Step::Next
            } else {
                Step::answer(Answer::status(500))
            };
        };
        let key = limit.key.value(&vars);
        let spec = Spec { key: shared.key(0, &key), sort: Sort::Places, limit: conn };
        match shared.shares.take(clock::now_ms(), spec, true) {
            Taken::Wait(_) => {
                let (this, shares) = (self.clone(), shared.shares.clone());
                Step::Wait(Box::pin(async move {
                    let taken = shares.settle(clock::now_ms, spec).await;
                    let place = place(&shares, spec, &taken);
                    Box::new(move |request: &mut Request<'_>| {
                        this.told(&taken, place, &shares, spec, request)
                    }) as Resume
                }))
            }
            taken => {
                let place = place(&shared.shares, spec, &taken);
                self.told(&taken, place, &shared.shares, spec, request)
            }
        }
    }

    fn told(
        &self,
        taken: &Taken,
        place: Option<Place>,
        shares: &Shares,
        spec: Spec,
        request: &mut Request<'_>,
    ) -> Step {
        match (place, taken) {
            (Some(place), _) => request.hold(place),
            (None, Taken::Full) => {
                let place = self.counted.take(spec.key as u64, shares.part(spec.limit), 0);
                match place {
                    Some(place) => request.hold(place),
                    None => return Step::answer(self.refuse()),
                }
            }
            (None, _) => return Step::answer(self.refuse()),
        }
        Step::Next
    }
}

/// What holds the place that was taken, from now on.
fn place(shares: &Arc<Shares>, spec: Spec, taken: &Taken) -> Option<Place> {
    matches!(taken, Taken::Yes { .. }).then(|| Place { shares: shares.clone(), key: spec.key })
}

impl Plugin for Arc<LimitConn> {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        if let Some(shared) = &self.shared {
            return self.enter_shared(shared, request);
        }
        match self.enter(request) {
            Ok(wait) if wait < 1_000_000 => Step::Next,
            Ok(wait) => Step::pause(Duration::from_nanos(wait)),
            Err(answer) => Step::answer(answer),
        }
    }
}
