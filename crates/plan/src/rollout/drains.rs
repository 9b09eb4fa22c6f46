//! Rules 2 and 3: draining instances that are done, and instances on lost cells, leave the set.

use super::input::{Life, PlanAction};
use super::plan::{Aim, Work};
use super::standing::{is_lost, report_of};
use std::collections::HashSet;
use towpath_types::spec::{Assignment, Wanted};

/// A cell that does not take notice of a drain is waited for so many times as long as a drain may last.
const PATIENCE: u64 = 4;
/// Why instances on lost cells go.
const LOST: &str = "its cell is lost";
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

    /// Sets instances on lost cells aside, so that others take their places. Those that were to go anyway are gone.
    pub(super) fn set_lost_aside(&mut self) {
        let all = std::mem::take(&mut self.status.assignments);
        let (lost, here): (Vec<_>, Vec<_>) = all.into_iter().partition(|a| is_lost(self.input, a.cell));
        self.status.assignments = here;
        for assignment in lost {
            if assignment.wanted == Wanted::Drain {
                let instance = assignment.instance;
                self.actions.push(PlanAction::Remove { instance, why: LOST.to_owned() });
            } else {
                self.lost.push(assignment);
            }
        }
    }

    /// Takes back those that nothing has taken the place of: their cell may return, and then they still run.
    pub(super) fn keep_unreplaced(&mut self, aim: &Aim) {
        if self.lost.is_empty() {
            return;
        }
        let mut numbers: HashSet<u32> = self.status.assignments.iter().map(|a| a.ordinal).collect();
        let mut missing = (aim.count as usize).saturating_sub(self.running().len());
        for assignment in std::mem::take(&mut self.lost) {
            if missing > 0 && !numbers.contains(&assignment.ordinal) {
                missing -= 1;
                numbers.insert(assignment.ordinal);
                self.status.assignments.push(assignment);
            } else {
                self.actions.push(PlanAction::Remove { instance: assignment.instance, why: LOST.to_owned() });
            }
        }
    }
}
