//! The circuit breaker of APISIX's `api-breaker`: after so many bad answers nothing is sent for two seconds, then four, eight,
//! …, until enough good ones came.

use crate::MS;
use crate::limit::{Limits, New, Part, STATE_MAX, Stake};
use crate::status::Statuses;
use std::sync::Arc;

/// Bits of the parts of a state below the time of the last break: breaks so far, bad answers since, good ones in a row.
const BREAK_BITS: u32 = 6;
const FAILURE_BITS: u32 = 12;
const SUCCESS_BITS: u32 = 8;
const BREAKS_MAX: u64 = (1 << BREAK_BITS) - 1;
const FAILURES_MAX: u64 = (1 << FAILURE_BITS) - 1;
const SUCCESSES_MAX: u64 = (1 << SUCCESS_BITS) - 1;
const TIME_SHIFT: u32 = BREAK_BITS + FAILURE_BITS + SUCCESS_BITS;
/// Times are in units of four milliseconds, so that there is room for two years.
const TICK: u64 = 4 * MS;
/// How long failures are worth keeping when there is no room.
const KEPT_MS: u64 = 600_000;

/// How a breaker judges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiBreakerSettings {
    /// Answers that are bad.
    pub bad: Statuses,
    /// How many of them break; up to 4,095.
    pub failures: u32,
    /// Answers that are good.
    pub good: Statuses,
    /// How many of them in a row mend; up to 255.
    pub successes: u32,
    /// Longest break, milliseconds.
    pub max_break_ms: u64,
}

/// Breakers by key, shared by all workers. What is a key (host and path in APISIX) is the caller's choice.
#[derive(Debug)]
pub struct ApiBreaker(Part);

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// When the last break began, in ticks; 0 = there was none.
    broke: u64,
    breaks: u64,
    failures: u64,
    successes: u64,
}

impl State {
    fn read(state: u64) -> Self {
        Self {
            broke: state >> TIME_SHIFT,
            breaks: state >> (FAILURE_BITS + SUCCESS_BITS) & BREAKS_MAX,
            failures: state >> SUCCESS_BITS & FAILURES_MAX,
            successes: state & SUCCESSES_MAX,
        }
    }

    fn word(self) -> u64 {
        self.broke << TIME_SHIFT
            | self.breaks << (FAILURE_BITS + SUCCESS_BITS)
            | self.failures << SUCCESS_BITS
            | self.successes
    }

    fn worse(self, now: u64, settings: &ApiBreakerSettings) -> Self {
        let failures = self.failures + 1;
        if failures < u64::from(settings.failures).clamp(1, FAILURES_MAX) {
            return Self { failures, successes: 0, ..self };
        }
        let broke = now.div_ceil(TICK).clamp(1, STATE_MAX >> TIME_SHIFT);
        Self { broke, breaks: (self.breaks + 1).min(BREAKS_MAX), failures: 0, successes: 0 }
    }

    fn better(self, settings: &ApiBreakerSettings) -> Self {
        if self.breaks == 0 && self.failures == 0 {
            return self;
        }
        let successes = self.successes + 1;
        let mended = successes >= u64::from(settings.successes).min(SUCCESSES_MAX);
        if mended { Self::default() } else { Self { successes, ..self } }
    }
}

impl ApiBreaker {
    /// The breakers of this name.
    pub fn new(limits: &Arc<Limits>, name: &str) -> Self {
        Self(Part::new(limits, "breaker", name))
    }

    /// The key of a text.
    pub fn key(&self, text: &[u8]) -> u64 {
        self.0.key(0, text)
    }

    /// How long nothing may be sent yet, milliseconds; `None` = it may.
    pub fn broken(&self, now: u64, key: u64, settings: &ApiBreakerSettings) -> Option<u64> {
        let state = State::read(self.0.limits.counts.get(key)?);
        if state.breaks == 0 {
            return None;
        }
        let length = (1_000_u64 << state.breaks.min(40)).min(settings.max_break_ms).saturating_mul(MS);
        let left = (state.broke * TICK).saturating_add(length).saturating_sub(now);
        (left > 0).then(|| left.div_ceil(MS))
    }

    /// Tells the status of an answer of the upstream (not of one that the gateway gave for it).
    pub fn answered(&self, now: u64, key: u64, status: u16, settings: &ApiBreakerSettings) {
        let bad = settings.bad.contains(status);
        let mends = || settings.good.contains(status) && self.0.limits.counts.get(key).is_some();
        if !bad && !mends() {
            return;
        }
        let next = |word: Option<u64>| {
            let state = State::read(word.unwrap_or_default());
            let next = if bad { state.worse(now, settings) } else { state.better(settings) };
            // a break counts as the whole limit
            let failures = u64::from(settings.failures).clamp(1, FAILURES_MAX);
            let used = if next.breaks > 0 { failures } else { next.failures };
            let stake =
                Stake::new((now / MS).saturating_add(settings.max_break_ms.max(KEPT_MS)), used, failures);
            ((bad || word.is_some()).then(|| New { state: next.word(), stake }), ())
        };
        self.0.limits.counts.change(key, now / MS, next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000 * MS;

    fn settings() -> ApiBreakerSettings {
        ApiBreakerSettings {
            bad: Statuses::of(&[500, 503]),
            failures: 3,
            good: Statuses::of(&[200]),
            successes: 2,
            max_break_ms: 10_000,
        }
    }

    fn fail(breaker: &ApiBreaker, now: u64, times: usize) {
        (0..times).for_each(|_| breaker.answered(now, 1, 500, &settings()));
    }

    #[test]
    fn breaks_double_until_the_longest() {
        let breaker = ApiBreaker::new(&Limits::new(1, 10), "a");
        let broken = |now| breaker.broken(now, 1, &settings());
        fail(&breaker, S, 2);
        assert_eq!(broken(S), None);
        let mut now = S;
        fail(&breaker, now, 1);
        for seconds in [2, 4, 8, 10, 10] {
            assert_eq!(broken(now), Some(seconds * 1_000));
            assert_eq!(broken(now + seconds * S - 1), Some(1));
            now += seconds * S;
            assert_eq!(broken(now), None);
            fail(&breaker, now, 3);
        }
        assert_eq!(breaker.broken(now, 2, &settings()), None, "each key has its own");
    }

    #[test]
    fn good_answers_in_a_row_mend_and_others_say_nothing() {
        let breaker = ApiBreaker::new(&Limits::new(1, 10), "a");
        let tell = |status| breaker.answered(S, 1, status, &settings());
        fail(&breaker, S, 3);
        tell(200);
        tell(404);
        assert!(breaker.broken(S, 1, &settings()).is_some());
        tell(503);
        tell(200);
        assert!(breaker.broken(S, 1, &settings()).is_some(), "the bad one between began the row anew");
        tell(200);
        assert_eq!(breaker.broken(S, 1, &settings()), None);
        fail(&breaker, S, 2);
        assert_eq!(breaker.broken(S, 1, &settings()), None, "and counting began anew");
    }

    #[test]
    fn counts_stay_in_their_range_whatever_comes() {
        let breaker = ApiBreaker::new(&Limits::new(1, 10), "a");
        for limit in [1, 3, 4_000, u32::MAX] {
            let settings = ApiBreakerSettings { failures: limit, max_break_ms: u64::MAX, ..settings() };
            for n in 0..40_000_u64 {
                breaker.answered(n * MS, u64::from(limit), 500, &settings);
            }
            assert!(breaker.broken(40 * S, u64::from(limit), &settings).is_some(), "{limit}");
        }
    }
}
