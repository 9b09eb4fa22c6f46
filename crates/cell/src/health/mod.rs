//! Health checks: probing, the verdict over time, and what to tell people when an app never becomes ready.

mod diagnosis;
mod probe;
mod verdict;

pub(crate) use diagnosis::{Listening, explain_silence, listening};
pub(crate) use probe::{ProbeFailure, probe};
pub(crate) use verdict::{Health, Verdict};

use std::time::Duration;

/// Pause before the n-th probe of a starting instance: readiness is seen within milliseconds, and a slow start costs little.
pub(crate) fn start_pause(n: u32) -> Duration {
    let millis = match n {
        0..20 => 5,
        20..60 => 10,
        60..200 => 25,
        _ => 100,
    };
    Duration::from_millis(millis)
}
