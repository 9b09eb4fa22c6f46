//! Rules 2 and 3: draining instances that are done, and instances on lost cells, leave the set.

use super::input::Life;
use super::plan::Work;
use super::standing::{is_lost, report_of};
use towpath_types::spec::{Assignment, Wanted};

/// A cell that does not take notice of a drain is waited for so many times as long as a drain may last.
const PATIENCE: u64 = 4;
/// A draining instance that still says it is starting had no requests; it is given this long to notice, milliseconds.
const NOTICE_MS: u64 = 2_000;

impl Work<'_> {
    /// Removes draining instances that have no more requests.
    pub(super) fn finish_drains(&mut self) {
        let draining: Vec<Assignment> =
            self.status.assignments.iter().filter(|a| a.wanted == Wanted::Drain).cloned().collect();
        for assignment in draining {
            match self.find_drain_end(&assignment) {
                Some(why) => self.remove(assignment.instance, why),
                None => self.wake_soon(),
            }
        }
    }

    /// Why a draining instance may go now; `None` = not yet.
    fn find_drain_end(&self, assignment: &Assignment) -> Option<&'static str> {
        let spent = self.input.now_ms.saturating_sub(assignment.drain_ms.unwrap_or_default());
        let Some(observed) = report_of(self.input, assignment) else {
            // Its cell does not know it (any more), or is silent; a silent one may still serve.
            let live = super::standing::is_live(self.input, assignment.cell);
            return (live || spent >= self.input.policy.drain_ms).then_some("drained: it is gone");
        };
        // The cell's own count of the time is right even when clocks jump, or nobody could be told for a while.
        let draining = matches!(observed.life, Life::Draining | Life::Stopping);
        let most = self.input.policy.drain_ms;
        if draining && observed.state_ms >= most || spent >= most.saturating_mul(PATIENCE) {
            return Some("drained: the time for it is over");
        }
        match observed.life {
            Life::Backoff | Life::CrashLoop | Life::Failed => Some("drained: it does not run"),
            Life::Draining | Life::Stopping if observed.heard && observed.in_flight == 0 => {
                Some("drained: no gateway sends to it and no request is left")
            }
            Life::Starting if spent >= NOTICE_MS => Some("drained: it never served"),
            _ => None,
        }
    }

    /// Removes instances on lost cells.
    pub(super) fn drop_lost(&mut self) {
        let lost: Vec<_> = self
            .status
            .assignments
            .iter()
            .filter(|assignment| is_lost(self.input, assignment.cell))
            .map(|assignment| assignment.instance)
            .collect();
        for instance in lost {
            self.remove(instance, "its cell is lost");
        }
    }
}
