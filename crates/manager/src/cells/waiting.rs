//! Cells that wait for an answer: each of them once, with what it asked last.
//!
//! A cell asks again when its patience is over. Whoever answered what it asked before would work for nobody, all the more the
//! further behind it is.

use std::collections::{HashMap, VecDeque};
use towpath_types::CellId;
use towpath_wire::cell::SyncRequest;

/// A question, and where the answer is to go.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) request: SyncRequest,
    pub(super) reply: String,
}

/// The line; as long as there are cells, at most.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    line: VecDeque<CellId>,
    asked: HashMap<CellId, Asked>,
}

impl Waiting {
    /// A cell joins the line, or asks something else in its place there.
    pub(super) fn add(&mut self, asked: Asked) {
        let cell = asked.request.cell;
        if self.asked.insert(cell, asked).is_none() {
            self.line.push_back(cell);
        }
    }

    /// The question of who waits longest.
    pub(super) fn next(&mut self) -> Option<Asked> {
        let cell = self.line.pop_front()?;
        self.asked.remove(&cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::{Incarnation, Revision};

    fn asked(cell: u8, revision: u64) -> Asked {
        let request = SyncRequest {
            cell: CellId::mint(1, [cell; 10]),
            incarnation: Incarnation(1),
            cursor: None,
            at_least: Revision(revision),
            epoch: 0,
            proof: None,
            known: Default::default(),
        };
        Asked { request, reply: format!("to {revision}") }
    }

    #[test]
    fn a_cell_waits_once_in_its_place_and_is_answered_what_it_asked_last() {
        let mut waiting = Waiting::default();
        for (cell, revision) in [(1, 1), (2, 2), (1, 3), (1, 4)] {
            waiting.add(asked(cell, revision));
        }
        let replies: Vec<_> = std::iter::from_fn(|| waiting.next()).map(|asked| asked.reply).collect();
        assert_eq!(replies, ["to 4", "to 2"]);
        assert!(waiting.line.is_empty() && waiting.asked.is_empty());
    }
}
