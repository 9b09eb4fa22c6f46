//! How an instance stands in a rollout.

use super::input::{GroupInput, Life, Observed};
use towpath_types::CellId;
use towpath_types::spec::Assignment;

/// How an instance stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Ready, and all live gateways know.
    Serving,
    /// Ready, but not all live gateways know yet: it may take requests.
    Fresh,
    /// Takes requests but fails its health check; `tired` = for longer than is borne.
    Weak {
        /// Whether it is to be replaced.
        tired: bool,
    },
    /// On its way: not reported yet, or starting.
    Coming {
        /// Whether the cell has said a word about it.
        reported: bool,
    },
    /// Ended; its cell starts it again.
    Down,
    /// Ended too often, or could not be prepared.
    Broken,
    /// Draining or stopping although it should run: its cell has not caught up.
    Leaving,
    /// On a lost cell: nothing is known of it.
    Lost,
}

impl Standing {
    /// Whether it can be taken away without draining.
    pub(super) fn is_off(self) -> bool {
        matches!(
            self,
            Standing::Down | Standing::Broken | Standing::Lost | Standing::Coming { reported: false }
        )
    }
}

/// The report about an assignment, from its own cell.
pub(super) fn report_of<'a>(input: &'a GroupInput<'_>, assignment: &Assignment) -> Option<&'a Observed> {
    input.observed.get(&assignment.instance).filter(|observed| observed.cell == assignment.cell)
}

/// How an assignment stands.
pub(super) fn find_standing(input: &GroupInput<'_>, assignment: &Assignment) -> Standing {
    if is_lost(input, assignment.cell) {
        return Standing::Lost;
    }
    let Some(observed) = report_of(input, assignment) else { return Standing::Coming { reported: false } };
    match observed.life {
        Life::Ready if observed.heard => Standing::Serving,
        Life::Ready => Standing::Fresh,
        Life::Unhealthy => Standing::Weak { tired: observed.state_ms >= input.policy.unhealthy_ms },
        Life::Starting => Standing::Coming { reported: true },
        Life::Backoff => Standing::Down,
        Life::CrashLoop | Life::Failed => Standing::Broken,
        Life::Draining | Life::Stopping => Standing::Leaving,
    }
}

/// Whether a cell is lost: silent for so long that its instances are replaced. One that says that it leaves has ended them
/// already.
pub(super) fn is_lost(input: &GroupInput<'_>, cell: CellId) -> bool {
    match input.cells.get(cell) {
        Some(view) if view.leaving => true,
        Some(view) => input.cells.silent_ms(view) >= input.policy.lost_ms,
        // Never heard: judged by how long there was an ear for it.
        None => input.listening_ms >= input.policy.lost_ms,
    }
}

/// Whether the instances of a cell are to run elsewhere.
pub(super) fn is_draining(input: &GroupInput<'_>, cell: CellId) -> bool {
    input.cells.get(cell).is_some_and(|view| view.draining)
}

/// Whether a cell speaks at the moment.
pub(super) fn is_live(input: &GroupInput<'_>, cell: CellId) -> bool {
    input.cells.get(cell).is_some_and(|view| input.cells.is_live(view))
}
