//! `limit-count`: so many requests in so many seconds for each value of a key.

use super::limit_key::{Amount, LimitKey, scope_of};
use super::shared::Shared;
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::shares::{self, Spec};
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use http::header::{HeaderName, HeaderValue};
use std::sync::Arc;
use towpath_resources::plugins::PluginMetadata;
use towpath_resources::plugins::limit_count::{Config, KeyType, Metadata, Policy, WindowType};
use towpath_route::limit::lease::Sort;
use towpath_route::limit::{Count, Sliding, Taken};

/// See the module.
pub(in crate::plugins) struct LimitCount {
    config: Arc<Config>,
    limits: Vec<Limit>,
    counter: Counter,
}

struct Limit {
    count: Amount,
    time: Amount,
    key: LimitKey,
    /// Of several, those whose key has no value do not apply.
    one_of_several: bool,
    headers: Option<[HeaderName; 3]>,
}

/// How is counted.
enum Counter {
    Fixed(Count),
    Sliding(Sliding),
    /// Together with other gateways; one by itself where there are too many keys for that.
    Shared(Shared, Count),
}

impl Counter {
    fn new(config: &Config, scope: &Scope<'_>) -> Self {
        let name = match &config.group {
            Some(group) => format!("group {group}"),
            None => scope_of(scope, config.key_type == KeyType::Global),
        };
        let limits = scope.plugins.states.limits();
        match config.window_type {
            _ if config.policy == Policy::Shared => {
                Self::Shared(Shared::new(scope, "limit-count", &name), Count::new(limits, &name))
            }
            WindowType::Fixed => Self::Fixed(Count::new(limits, &name)),
            WindowType::Sliding => Self::Sliding(Sliding::new(limits, &name)),
        }
    }

    /// One more of the `n`th limit. Windows of other lengths, which a group or a variable may bring, count for themselves.
    fn take(&self, n: usize, key: &str, count: u64, seconds: u64) -> Taken {
        let (now, window_ms) = (clock::now_ns(), seconds.saturating_mul(1000));
        let sort = (n as u64) << 48 | seconds & ((1 << 48) - 1);
        match self {
            Self::Fixed(counted) | Self::Shared(_, counted) => {
                counted.take(now, counted.key(sort, key.as_bytes()), count, window_ms, 1)
            }
            Self::Sliding(counted) => {
                counted.take(now, counted.key(sort, key.as_bytes()), count, window_ms, 1)
            }
        }
    }
}

impl LimitCount {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = match scope.plugins.metadata.get("limit-count") {
            Some(PluginMetadata::LimitCount(metadata)) => Metadata::clone(metadata),
            _ => Metadata::default(),
        };
        let names = |prefix: Option<&str>| {
            let name = |text: &str| {
                let text = match prefix {
                    Some(prefix) => text.replacen("RateLimit-", &format!("{prefix}-RateLimit-"), 1),
                    None => text.to_owned(),
                };
                HeaderName::from_bytes(text.as_bytes()).ok()
            };
            let shown = config.show_limit_quota_header;
            let names = [&metadata.limit_header, &metadata.remaining_header, &metadata.reset_header];
            match names.map(|text| name(text)) {
                [Some(limit), Some(remaining), Some(reset)] if shown => Some([limit, remaining, reset]),
                _ => None,
            }
        };
        let mut limits = Vec::new();
        if let (Some(count), Some(time)) = (&config.count, &config.time_window) {
            limits.push(Limit {
                count: Amount::of(count),
                time: Amount::of(time),
                key: LimitKey::of_count(config.key_type, &config.key),
                one_of_several: false,
                headers: names(None),
            });
        }
        for (n, rule) in config.rules.iter().flatten().enumerate() {
            let prefix = rule.header_prefix.clone().unwrap_or_else(|| (n + 1).to_string());
            limits.push(Limit {
                count: Amount::of(&rule.count),
                time: Amount::of(&rule.time_window),
                key: LimitKey::of_count(KeyType::VarCombination, &rule.key),
                one_of_several: true,
                headers: names(Some(&prefix)),
            });
        }
        Self { config: config.clone(), limits, counter: Counter::new(config, scope) }
    }

    fn refuse(&self) -> Answer {
        match &self.config.rejected_msg {
            Some(message) => Answer::error_msg(self.config.rejected_code, message),
            None => Answer::status(self.config.rejected_code),
        }
    }

    /// The request cannot be counted.
    fn uncounted(&self) -> Option<Answer> {
        (!self.config.allow_degradation).then(|| Answer::error_msg(500, "failed to limit count"))
    }

    /// By what, how many and for how many seconds is counted; `None` = the limit does not apply.
    fn asked(
        &self,
        limit: &Limit,
        request: &Request<'_>,
    ) -> Result<Option<(String, u64, u64)>, Option<Answer>> {
        let vars = request.vars();
        let key =
            if limit.one_of_several { limit.key.own_value(&vars) } else { Some(limit.key.value(&vars)) };
        let Some(key) = key else { return Ok(None) };
        match (limit.count.value(&vars, 1), limit.time.value(&vars, 1)) {
            (Some(count), Some(time)) => Ok(Some((key, count, time))),
            _ => Err(self.uncounted()),
        }
    }

    fn take(&self, limit: &Limit, n: usize, request: &mut Request<'_>) -> Result<bool, Option<Answer>> {
        let Some((key, count, time)) = self.asked(limit, request)? else { return Ok(false) };
        let found = self.counter.take(n, &key, count, time);
        limit.tell(count, found, request);
        if found.allowed { Ok(true) } else { Err(Some(self.refuse())) }
    }

    /// The one limit that is shared with other gateways.
    fn take_shared(self: &Arc<Self>, shared: &Shared, request: &mut Request<'_>) -> Step {
        let Some(limit) = self.limits.first() else { return Step::Next };
        let (key, count, time) = match self.asked(limit, request) {
            Ok(Some(asked)) => asked,
            Ok(None) | Err(None) => return Step::Next,
            Err(Some(answer)) => return Step::answer(answer),
        };
        let sort = Sort::Window(time.saturating_mul(1000));
        let spec = Spec { key: shared.key(time, &key), sort, limit: count };
        match shared.shares.take(clock::now_ms(), spec, true) {
            shares::Taken::Wait(_) => {
                let (this, shares) = (self.clone(), shared.shares.clone());
                Step::Wait(Box::pin(async move {
                    let taken = shares.settle(clock::now_ms, spec).await;
                    Box::new(move |request: &mut Request<'_>| this.told(&taken, &key, count, time, request))
                        as Resume
                }))
            }
            taken => self.told(&taken, &key, count, time, request),
        }
    }

    fn told(
        &self,
        taken: &shares::Taken,
        key: &str,
        count: u64,
        time: u64,
        request: &mut Request<'_>,
    ) -> Step {
        let found = match (taken, &self.counter) {
            (shares::Taken::Yes { remaining, reset_ms }, _) => {
                Taken { allowed: true, remaining: *remaining, reset_ms: *reset_ms }
            }
            (shares::Taken::No { reset_ms }, _) => {
                Taken { allowed: false, remaining: 0, reset_ms: *reset_ms }
            }
            (_, Counter::Shared(shared, _)) => self.counter.take(0, key, shared.shares.part(count), time),
            _ => return Step::Next,
        };
        if let Some(limit) = self.limits.first() {
            limit.tell(count, found, request);
        }
        if found.allowed { Step::Next } else { Step::answer(self.refuse()) }
    }
}

impl Limit {
    /// The response says what is left.
    fn tell(&self, count: u64, found: Taken, request: &mut Request<'_>) {
        let Some([limit, remaining, reset]) = &self.headers else { return };
        let reset_s = (found.reset_ms / 10) as f64 / 100.0;
        let headers = &mut request.running().reply_headers;
        headers.push((limit.clone(), count.into()));
        headers.push((remaining.clone(), found.remaining.into()));
        if let Ok(value) = HeaderValue::from_str(&reset_s.to_string()) {
            headers.push((reset.clone(), value));
        }
    }
}

impl Plugin for Arc<LimitCount> {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        if let Counter::Shared(shared, _) = &self.counter {
            return self.take_shared(shared, request);
        }
        let mut applied = 0;
        for (n, limit) in self.limits.iter().enumerate() {
            match self.take(limit, n, request) {
                Ok(counts) => applied += usize::from(counts),
                Err(Some(answer)) => return Step::answer(answer),
                Err(None) => return Step::Next,
            }
        }
        match self.uncounted() {
            Some(answer) if applied == 0 => Step::answer(answer),
            _ => Step::Next,
        }
    }
}
