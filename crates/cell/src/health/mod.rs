//! Health checks: probing, the verdict over time, and what to tell people when an app never becomes ready.

mod diagnosis;
mod probe;
mod verdict;

pub(crate) use diagnosis::{Listening, explain_silence, listening};
pub(crate) use probe::{ProbeFailure, probe};
pub(crate) use verdict::{Health, Verdict};

use std::time::Duration;

/// Pause before the n-th probe of a starting instance. A refused connection costs some 20 µs, so most interpreters are seen
/// within 5 ms of their listening (3 s), slow virtual machines within 10 (12 s more), and only then is it rarer.
pub(crate) fn start_pause(n: u32) -> Duration {
    let millis = match n {
        0..600 => 5,
        600..1800 => 10,
        1800..3800 => 25,
        _ => 100,
    };
    Duration::from_millis(millis)
}
