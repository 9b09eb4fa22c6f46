//! Rule 4: whether the target has failed.

use super::input::Life;
use super::plan::Work;
use super::standing::{is_live, report_of};
use towpath_types::ErrorCode;
use towpath_types::spec::{Assignment, Casualty, Wanted};

/// Most casualties that are remembered.
const CASUALTIES: usize = 5;

impl Work<'_> {
    /// Gives the target up when one of its instances has failed before it was ever good.
    pub(super) fn judge_target(&mut self) {
        let target = self.input.target;
        if self.status.failed == Some(target) || self.status.good == Some(target) {
            return;
        }
        let mut casualties: Vec<(u32, Casualty)> = self
            .status
            .assignments
            .iter()
            .filter(|assignment| assignment.version == target && assignment.wanted == Wanted::Run)
            .filter_map(|assignment| {
                let reason = self.find_failure(assignment)?;
                let (instance, cell) = (assignment.instance, assignment.cell);
                Some((assignment.ordinal, Casualty { instance, cell, reason }))
            })
            .collect();
        let Some((ordinal, first)) = casualties.first() else { return };
        self.status.message = format!("instance {ordinal} ({}) {}", first.instance.short(), first.reason);
        self.status.code = Some(ErrorCode::StartFailed);
        self.status.failed = Some(target);
        casualties.truncate(CASUALTIES);
        self.status.casualties = casualties.into_iter().map(|(_, casualty)| casualty).collect();
    }

    /// Why an instance of a new version has failed; `None` = it has not, or not yet.
    fn find_failure(&self, assignment: &Assignment) -> Option<String> {
        let policy = self.input.policy;
        let timeout = self.input.start_timeout().map_or(u64::MAX, |timeout| timeout.0);
        let with_preparation = timeout.saturating_add(policy.prepare_ms);
        // Time in which nobody listened to the cell is not held against the instance.
        let age = self.input.now_ms.saturating_sub(assignment.since_ms).min(self.input.listening_ms);
        let because = |reason: &str| if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let Some(observed) = report_of(self.input, assignment) else {
            let late = age >= with_preparation && is_live(self.input, assignment.cell);
            return late.then(|| format!("was not taken up by its cell within {} s", age / 1000));
        };
        let reason = because(&observed.reason);
        match observed.life {
            // Its cell tries again: what it could not fetch or unpack it may get the next time.
            Life::Failed if observed.restarts >= policy.crashes => {
                Some(format!("could not be prepared in {} attempts{reason}", observed.restarts))
            }
            Life::Failed if age >= with_preparation => Some(format!("could not be prepared{reason}")),
            Life::CrashLoop => Some(format!("ended again and again{reason}")),
            Life::Starting | Life::Backoff if observed.restarts >= policy.crashes => {
                Some(format!("ended {} times before it was healthy{reason}", observed.restarts))
            }
            Life::Backoff if age >= timeout => {
                Some(format!("was not healthy within {} s{reason}", timeout / 1000))
            }
            Life::Starting if observed.restarts > 0 && age >= timeout => {
                Some(format!("was not healthy within {} s{reason}", timeout / 1000))
            }
            Life::Starting if age >= with_preparation => {
                Some(format!("was not healthy within {} s{reason}", age / 1000))
            }
            Life::Unhealthy if observed.state_ms >= policy.unhealthy_ms => {
                Some(format!("became unhealthy and stayed so{reason}"))
            }
            _ => None,
        }
    }
}
