//! The life of one attempt at one endpoint: counted in flight from `begin` to whatever end it has.

use crate::MS;
use crate::endpoint::Endpoint;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// How an attempt ended. Latencies are from sending the request to the response head, nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The endpoint answered.
    Success {
        /// Time to the response head.
        latency_ns: u64,
    },
    /// Connect error, reset, timeout, or a response that says that the endpoint cannot serve (502, 503, 504).
    Failure {
        /// Time until it was known.
        latency_ns: u64,
    },
    /// The client went away, or the gateway gave up for a reason of its own. Says nothing about the endpoint.
    ClientGone,
}

/// What the end of an attempt calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[must_use]
pub struct Finished {
    /// The endpoint has failed often enough: call [`crate::Table::eject`].
    pub eject: bool,
}

/// A failure counts as at least this latency, and as at least twice the average.
const FAILURE_NS: u64 = 250 * MS;
/// No sample is longer than this, so that one timeout does not blind the balancer for minutes.
const SAMPLE_MAX_NS: u64 = 60_000 * MS;

/// An attempt in flight. Dropped without [`InFlight::finish`] it counts as [`Outcome::ClientGone`].
#[derive(Debug)]
pub struct InFlight {
    endpoint: Arc<Endpoint>,
    observed: bool,
}

impl Endpoint {
    /// Begins an attempt.
    pub fn begin(endpoint: &Arc<Endpoint>) -> InFlight {
        endpoint.state.in_flight.fetch_add(1, Relaxed);
        InFlight { endpoint: Arc::clone(endpoint), observed: false }
    }
}

impl InFlight {
    /// The endpoint.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Tells the outcome as soon as it is known (usually at the response head) while the attempt goes on, as with long
    /// streams. A second call, and the outcome of a later `finish`, changes nothing unless it is a failure.
    pub fn observe(&mut self, now: u64, outcome: Outcome) -> Finished {
        let failed = matches!(outcome, Outcome::Failure { .. });
        if (self.observed && !failed) || outcome == Outcome::ClientGone {
            return Finished::default();
        }
        self.observed = true;
        self.endpoint.judge(now, outcome)
    }

    /// Ends the attempt.
    pub fn finish(mut self, now: u64, outcome: Outcome) -> Finished {
        self.observe(now, outcome)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.endpoint.state.in_flight.fetch_sub(1, Relaxed);
    }
}

impl Endpoint {
    fn judge(&self, now: u64, outcome: Outcome) -> Finished {
        let state = &self.state;
        let rule = &self.upstream.ejection;
        let failed = match outcome {
            Outcome::Success { latency_ns } => {
                state.latency.add(now, latency_ns.min(SAMPLE_MAX_NS));
                if state.consecutive.load(Relaxed) != 0 {
                    state.consecutive.store(0, Relaxed);
                }
                false
            }
            Outcome::Failure { latency_ns } => {
                let average = state.latency.seconds(now).unwrap_or_default();
                let doubled = (f64::from(average) * 2e9) as u64;
                state.latency.add(now, latency_ns.max(FAILURE_NS).max(doubled).min(SAMPLE_MAX_NS));
                state.consecutive.fetch_add(1, Relaxed);
                true
            }
            Outcome::ClientGone => return Finished::default(),
        };
        state.count(failed);
        let (failures, requests) = state.window.add(now, rule.window.0.saturating_mul(MS), failed);
        let in_a_row = rule.consecutive > 0 && state.consecutive.load(Relaxed) >= rule.consecutive;
        let by_rate = rule.rate > 0.0
            && requests >= u64::from(rule.min_requests)
            && failures as f64 >= f64::from(rule.rate) * requests as f64;
        Finished { eject: failed && (in_a_row || by_rate) && !state.ejected(now) }
    }
}
