//! Health checks: probing, the verdict over time, and what to tell people when an app never becomes ready.

mod awaited;
mod diagnosis;
mod listener;
mod probe;
mod verdict;

pub(crate) use awaited::{Awaited, Crowd, await_listener};
pub(crate) use diagnosis::{Listening, explain_silence, find_elsewhere, listening};
pub(crate) use probe::{ProbeFailure, probe};
pub(crate) use verdict::{Health, Verdict};

use std::time::Duration;

/// Pause before the n-th probe of a starting instance that listens and does not pass its check yet; where the kernel does not say
/// who listens, of one that does not listen.
pub(crate) fn start_pause(n: u32) -> Duration {
    let millis = match n {
        0..600 => 5,
        600..1800 => 10,
        1800..3800 => 25,
        _ => 100,
    };
    Duration::from_millis(millis)
}
