//! What a running operation tells, kept in a bounded ring, so that who comes late sees it from the start.

use serde::Serialize;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;
use towpath_types::spec::OperationPhase;

/// Most events kept.
const EVENTS: usize = 10_000;
/// Most bytes of text kept.
const BYTES: usize = 1024 * 1024;

/// One happening.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Event {
    /// Another phase.
    Phase {
        /// The new one.
        phase: OperationPhase,
    },
    /// A step of the build begins.
    Step {
        /// For people.
        title: String,
    },
    /// A line that the build printed.
    Line {
        /// The line.
        text: String,
    },
    /// The rollout moved on.
    Progress {
        /// Instances of the new version that serve.
        ready: u32,
        /// Instances wanted.
        wanted: u32,
        /// For people: what is being waited for.
        message: String,
    },
    /// Events that were lost or dropped.
    Gap {
        /// How many.
        missed: u64,
    },
}

impl Event {
    /// Name of the server-sent event.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Phase { .. } => "phase",
            Event::Step { .. } => "step",
            Event::Line { .. } => "line",
            Event::Progress { .. } => "progress",
            Event::Gap { .. } => "gap",
        }
    }

    fn bytes(&self) -> usize {
        64 + match self {
            Event::Step { title } => title.len(),
            Event::Line { text } => text.len(),
            Event::Progress { message, .. } => message.len(),
            Event::Phase { .. } | Event::Gap { .. } => 0,
        }
    }
}

/// The ring.
#[derive(Debug)]
pub struct Events {
    inner: Mutex<Inner>,
    newest: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Events have numbers above this.
    base: u64,
    /// Events with their numbers.
    ring: VecDeque<(u64, Event)>,
    bytes: usize,
    last: u64,
}

impl Events {
    /// Its events have numbers above `base`.
    pub fn above(base: u64) -> Self {
        let inner = Inner { base, last: base, ..Inner::default() };
        Self { inner: Mutex::new(inner), newest: watch::Sender::new(base) }
    }

    /// Adds an event.
    pub fn push(&self, event: Event) {
        let newest = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.last += 1;
            inner.bytes += event.bytes();
            let number = inner.last;
            inner.ring.push_back((number, event));
            while inner.ring.len() > EVENTS || inner.bytes > BYTES {
                let Some((_, old)) = inner.ring.pop_front() else { break };
                inner.bytes = inner.bytes.saturating_sub(old.bytes());
            }
            number
        };
        self.newest.send_replace(newest);
    }

    /// Events behind number `after`, at most `limit`, with their numbers. Where some are gone, a gap comes first. A
    /// number of an earlier run of the operation is before all of these.
    pub fn behind(&self, after: u64, limit: usize) -> Vec<(u64, Event)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let after = after.max(inner.base);
        let first = inner.ring.front().map_or(inner.last + 1, |(number, _)| *number);
        let mut found = Vec::new();
        if first > after + 1 {
            found.push((first - 1, Event::Gap { missed: first - 1 - after }));
        }
        let skip = usize::try_from((after + 1).saturating_sub(first)).unwrap_or(usize::MAX);
        found.extend(inner.ring.iter().skip(skip).take(limit).cloned());
        found
    }

    /// Follows the number of the newest event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_and_says_what_is_gone() {
        let events = Events::above(0);
        for n in 0..EVENTS + 5 {
            events.push(Event::Line { text: n.to_string() });
        }
        let found = events.behind(0, 2);
        assert_eq!(found.first(), Some(&(5, Event::Gap { missed: 5 })));
        assert_eq!(found.get(1), Some(&(6, Event::Line { text: "5".into() })));
        assert_eq!(events.behind(7, 1), [(8, Event::Line { text: "7".into() })]);
        events.push(Event::Line { text: "x".repeat(BYTES) });
        assert_eq!(events.behind(EVENTS as u64 + 5, 10).len(), 1);
    }

    #[test]
    fn a_number_of_an_earlier_run_is_before_all() {
        let events = Events::above(1000);
        events.push(Event::Line { text: "x".into() });
        let all = [(1001, Event::Line { text: "x".into() })];
        assert_eq!((events.behind(0, 9), events.behind(7, 9)), (all.to_vec(), all.to_vec()));
        assert!(events.behind(1001, 9).is_empty());
    }
}
