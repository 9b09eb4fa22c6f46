//! `limit-count`: so many requests in so many seconds for each value of a key.

use super::counters::Counters;
use super::limit_key::{Amount, LimitKey};
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use http::header::{HeaderName, HeaderValue};
use std::sync::Arc;
use towpath_resources::plugins::PluginMetadata;
use towpath_resources::plugins::limit_count::{Config, KeyType, Metadata, WindowType};

/// See the module.
pub(in crate::plugins) struct LimitCount {
    config: Arc<Config>,
    limits: Vec<Limit>,
    counted: Arc<Counters<Window>>,
}

struct Limit {
    count: Amount,
    time: Amount,
    key: LimitKey,
    /// Of several, those whose key has no value do not apply.
    one_of_several: bool,
    headers: Option<[HeaderName; 3]>,
}

/// What is counted for one value of the key.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::plugins) struct Window {
    start_ns: u64,
    length_ns: u64,
    used: u64,
    before: u64,
}

/// What a request finds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Count {
    admitted: bool,
    remaining: u64,
    reset_s: f64,
}

impl Window {
    fn take(&mut self, now: u64, count: u64, length_ns: u64, sliding: bool) -> Count {
        let passed = now.saturating_sub(self.start_ns);
        if self.length_ns != length_ns || passed >= 2 * length_ns {
            *self = Self { start_ns: now, length_ns, used: 0, before: 0 };
        } else if passed >= length_ns {
            let start_ns = if sliding { self.start_ns + length_ns } else { now };
            *self = Self { start_ns, length_ns, used: 0, before: self.used };
        }
        let passed = now.saturating_sub(self.start_ns);
        let left = length_ns.saturating_sub(passed);
        let carried =
            if sliding { (self.before as f64 * (left as f64 / length_ns as f64)).floor() as u64 } else { 0 };
        let spent = self.used + carried;
        let admitted = spent < count;
        self.used += u64::from(admitted);
        let remaining = count.saturating_sub(spent + u64::from(admitted));
        Count { admitted, remaining, reset_s: left as f64 / 1e9 }
    }

    fn is_spent(&self, now: u64) -> bool {
        now.saturating_sub(self.start_ns) >= 2 * self.length_ns
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
        let name = match &config.group {
            Some(group) => format!("group {group}/limit-count"),
            None => format!("{}/limit-count", scope.from),
        };
        let counted = scope.plugins.states.kept(&name, clock::now_ns(), Counters::default);
        Self { config: config.clone(), limits, counted }
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

    fn take(&self, limit: &Limit, n: usize, request: &mut Request<'_>) -> Result<bool, Option<Answer>> {
        let vars = request.vars();
        let key = if limit.one_of_several {
            match limit.key.own_value(&vars) {
                Some(key) => key,
                None => return Ok(false),
            }
        } else {
            limit.key.value(&vars)
        };
        let (Some(count), Some(time)) = (limit.count.value(&vars, 1), limit.time.value(&vars, 1)) else {
            return Err(self.uncounted());
        };
        let (now, length) = (clock::now_ns(), time.saturating_mul(1_000_000_000));
        let sliding = self.config.window_type == WindowType::Sliding;
        // Windows of other lengths, which a group or a variable may bring, count for themselves: one would begin the other anew.
        let key = format!("{n}:{time}:{sliding}:{key}");
        let found = self.counted.with(
            &key,
            |window| window.is_spent(now),
            |window| window.take(now, count, length, sliding),
        );
        if let Some([limit, remaining, reset]) = &limit.headers {
            let reset_s = (found.reset_s * 100.0).floor() / 100.0;
            let headers = &mut request.running().reply_headers;
            headers.push((limit.clone(), count.into()));
            headers.push((remaining.clone(), found.remaining.into()));
            if let Ok(value) = HeaderValue::from_str(&reset_s.to_string()) {
                headers.push((reset.clone(), value));
            }
        }
        if found.admitted { Ok(true) } else { Err(Some(self.refuse())) }
    }
}

impl Plugin for LimitCount {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
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

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_fixed_window_admits_its_count_and_begins_with_a_request() {
        let mut window = Window::default();
        let mut take = |at: u64| window.take(1000 * S + at, 2, 60 * S, false);
        assert_eq!(take(0), Count { admitted: true, remaining: 1, reset_s: 60.0 });
        assert_eq!(take(10 * S), Count { admitted: true, remaining: 0, reset_s: 50.0 });
        assert_eq!(take(59 * S), Count { admitted: false, remaining: 0, reset_s: 1.0 });
        assert_eq!(take(70 * S), Count { admitted: true, remaining: 1, reset_s: 60.0 });
    }

    #[test]
    fn a_sliding_window_has_no_double_burst_at_its_edge() {
        let mut window = Window::default();
        let mut take = |at: u64| window.take(1000 * S + at, 10, 10 * S, true).admitted;
        assert_eq!((0..20).filter(|_| take(9 * S)).count(), 10);
        assert_eq!((0..20).filter(|_| take(19 * S + S / 2)).count(), 1, "most of the window is still full");
        assert_eq!((0..20).filter(|_| take(24 * S)).count(), 4);
        assert_eq!((0..20).filter(|_| take(60 * S)).count(), 10);
    }
}
