//! What the status says after a plan.

use super::input::Life;
use super::plan::{Aim, Work};
use super::standing::{Standing, report_of};
use std::collections::BTreeSet;
use towpath_types::ErrorCode;
use towpath_types::spec::{Assignment, InstanceVersion, RolloutPhase, Wanted};

/// How far the instances are from the aim.
struct Tally {
    /// Running, of the right version, where they may stay, and not on a lost cell.
    own: usize,
    /// Those that serve.
    serving: usize,
    /// Of the right version, on draining cells.
    moving: usize,
    /// Those that serve.
    moving_serving: usize,
    /// Running, of other versions.
    old: usize,
    /// Draining.
    draining: usize,
}

impl Work<'_> {
    /// Sets phase, message, `good` and `serving`, and forgets settings that nothing uses.
    pub(super) fn conclude(&mut self, aim: &Aim) {
        let tally = self.tally(aim);
        let count = aim.count as usize;
        let in_place = tally.old == 0 && tally.moving == 0 && tally.own == count;
        // Where they stand makes no difference to who sends them requests.
        let full = tally.old == 0
            && tally.own + tally.moving >= count
            && tally.serving + tally.moving_serving >= count;
        let settled = in_place && tally.serving == count && tally.draining == 0;
        // Once settled, an instance that falls and rises again is its cell's business and no rollout.
        let was_settled = matches!(self.input.status.phase, RolloutPhase::Steady | RolloutPhase::Failed);
        let unmoved = self.actions.is_empty() && in_place && tally.draining == 0 && count > 0;
        let rests = was_settled && unmoved && self.input.status.serving == aim.version;
        self.status.serving = aim.version.filter(|_| count > 0 && (full || rests));
        if full && count > 0 {
            self.status.good = aim.version;
        }
        if settled {
            self.status.rollout_ms = None;
        }
        self.set_phase(aim, &tally, settled || rests);
        self.forget_settings();
        if !full || tally.moving > 0 || tally.draining > 0 {
            self.wake_soon();
        }
    }

    fn set_phase(&mut self, aim: &Aim, tally: &Tally, settled: bool) {
        let gave_up = self.status.failed == Some(self.input.target);
        let release_gone = self.input.release.is_none() && aim.count > 0;
        let status = &mut self.status;
        if gave_up {
            status.phase = if settled { RolloutPhase::Failed } else { RolloutPhase::RollingBack };
            return;
        }
        if release_gone && !settled {
            status.phase = RolloutPhase::Waiting;
            status.code = Some(ErrorCode::NotFound);
            status.message = format!("release {} is not there", self.input.target.release.short());
            return;
        }
        if let Some(why) = self.no_room.take() {
            status.phase = RolloutPhase::Waiting;
            status.code = Some(ErrorCode::NoRoom);
            status.message = why;
            return;
        }
        status.code = None;
        if settled {
            status.phase = RolloutPhase::Steady;
            status.message.clear();
        } else {
            status.phase = RolloutPhase::Rolling;
            let trouble = self.newest_trouble(aim);
            self.status.message = explain(aim, tally, trouble.as_deref());
        }
    }

    /// What ails the newest of the instances that are not well. One that starts has a reason when it was ended before, or when
    /// its cell sees what keeps it.
    fn newest_trouble(&self, aim: &Aim) -> Option<String> {
        let ill = |life: Life| {
            matches!(life, Life::Starting | Life::Unhealthy | Life::Backoff | Life::CrashLoop | Life::Failed)
        };
        let wanted = |assignment: &&Assignment| {
            assignment.wanted == Wanted::Run && Some(assignment.version) == aim.version
        };
        let mut newest: Vec<_> = self.status.assignments.iter().filter(wanted).collect();
        newest.sort_by_key(|assignment| std::cmp::Reverse(assignment.instance));
        let observed = newest.into_iter().filter_map(|a| report_of(self.input, a).map(|found| (a, found)));
        observed
            .filter(|(_, found)| ill(found.life) && !found.reason.is_empty())
            .map(|(a, found)| format!("instance {} {}", a.ordinal, found.reason))
            .next()
    }

    fn tally(&self, aim: &Aim) -> Tally {
        let running = self.running();
        let lost = running.iter().filter(|(_, standing)| *standing == Standing::Lost).count();
        let right = running
            .iter()
            .filter(|(a, standing)| Some(a.version) == aim.version && *standing != Standing::Lost);
        let (own, moving): (Vec<_>, Vec<_>) = right.partition(|(a, _)| self.is_in_place(a, aim.version));
        let serving =
            |of: &[&(_, Standing)]| of.iter().filter(|(_, standing)| *standing == Standing::Serving).count();
        Tally {
            own: own.len(),
            serving: serving(&own),
            moving: moving.len(),
            moving_serving: serving(&moving),
            old: running.len() - own.len() - moving.len() - lost,
            draining: self.status.assignments.iter().filter(|a| a.wanted == Wanted::Drain).count(),
        }
    }

    fn forget_settings(&mut self) {
        let status = &mut self.status;
        let versions: Vec<InstanceVersion> = status
            .assignments
            .iter()
            .map(|assignment| assignment.version)
            .chain(status.target)
            .chain(status.good)
            .collect();
        let used: BTreeSet<_> = versions.iter().map(|version| version.settings).collect();
        let releases: BTreeSet<_> = versions.iter().map(|version| version.release).collect();
        status.settings.retain(|digest, _| used.contains(digest));
        status.releases.retain(|digest, _| releases.contains(digest));
    }
}

/// For people: what is being waited for.
fn explain(aim: &Aim, tally: &Tally, trouble: Option<&str>) -> String {
    let mut parts = Vec::new();
    let serving = tally.serving + tally.moving_serving;
    if serving < aim.count as usize {
        parts.push(format!("{serving} of {} ready", aim.count));
    }
    if tally.moving > 0 {
        parts.push(format!("{} to move off draining cells", tally.moving));
    }
    if tally.old > 0 {
        parts.push(format!("{} old still there", tally.old));
    }
    if tally.draining > 0 {
        parts.push(format!("{} draining", tally.draining));
    }
    let said = parts.join(", ");
    match trouble {
        Some(trouble) => format!("{said}; {trouble}"),
        None => said,
    }
}
