//! Which cells were told lately that there is something new for them.
//!
//! A cell that is told asks; until it has, its announcements say that it is behind. Each of them would have it told and ask once
//! more, the more often the more there is to do.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;
use towpath_types::{CellId, Revision};

/// A cell that was told is not told the same again within this time: it is on its way to ask.
const AGAIN: Duration = Duration::from_secs(1);
/// So many are kept without a look at which of them are old.
const SPARE: usize = 1_024;

/// What cells were told last, and when.
#[derive(Debug, Default)]
pub(crate) struct Pokes {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    cells: HashMap<CellId, (Revision, Instant)>,
    /// So many were left at the last look.
    left: usize,
}

impl Pokes {
    /// A cell is told of a revision now.
    pub(crate) fn note(&self, cell: CellId, revision: Revision) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.cells.len() > 2 * told.left + SPARE {
            told.cells.retain(|_, (_, at)| at.elapsed() < AGAIN);
            told.left = told.cells.len();
        }
        let now = Instant::now();
        let newest = told.cells.get(&cell).map_or(revision, |(newest, _)| revision.max(*newest));
        told.cells.insert(cell, (newest, now));
    }

    /// Whether a cell that is behind a revision was not told of it just now.
    pub(crate) fn is_due(&self, cell: CellId, revision: Revision) -> bool {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.cells.get(&cell).is_none_or(|(newest, at)| *newest < revision || at.elapsed() >= AGAIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_cell_is_told_once_a_second_unless_there_is_something_newer() {
        let (pokes, cell) = (Pokes::default(), CellId::mint(1, [1; 10]));
        assert!(pokes.is_due(cell, Revision(5)));
        pokes.note(cell, Revision(5));
        assert!(!pokes.is_due(cell, Revision(5)));
        assert!(!pokes.is_due(cell, Revision(4)));
        assert!(pokes.is_due(cell, Revision(6)));
        tokio::time::advance(AGAIN).await;
        assert!(pokes.is_due(cell, Revision(5)), "it may have been lost");
        for n in 0..5_000_u16 {
            let mut random = [2; 10];
            random[..2].copy_from_slice(&n.to_be_bytes());
            pokes.note(CellId::mint(2, random), Revision(1));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        assert!(pokes.told.lock().unwrap().cells.len() < 4 * SPARE, "old ones go");
    }
}
