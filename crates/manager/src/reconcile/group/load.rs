//! Gathers what a plan is made from. Reads memory only.

use crate::core::Core;
use crate::core::cache::CachedGroup;
use crate::core::keys::GroupRef;
use crate::core::soft::InstanceNews;
use std::collections::{BTreeMap, BTreeSet};
use towpath_plan::placement::starts::StartBudget;
use towpath_plan::placement::{CellIndex, CellView};
use towpath_plan::rollout::{GroupInput, Life, Observed, find_version};
use towpath_types::spec::{InstanceSettings, InstanceVersion, ReleaseSpec};
use towpath_types::{CellId, Generation, InstanceId};
use towpath_wire::cell::InstanceState;

/// All of one group.
pub(super) struct Loaded {
    pub(super) group: CachedGroup,
    app_generation: Generation,
    target: InstanceVersion,
    settings: InstanceSettings,
    release: Option<ReleaseSpec>,
    observed: BTreeMap<InstanceId, Observed>,
    now_ms: u64,
}

/// Gathers; `None` = there is no such group.
pub(super) fn load(core: &Core, name: &GroupRef) -> Option<Loaded> {
    let group = core.cache.group(name)?;
    let app = core.cache.app(&name.app);
    let no_env = BTreeMap::new();
    let env = app.as_ref().map_or(&no_env, |app| &app.spec.env);
    let (target, settings) = find_version(&group.spec, env);
    // A release that runs already is known from the status, should it no longer be kept.
    let kept = core.cache.release(&name.app, target.release).map(|release| release.spec.clone());
    let release = kept.or_else(|| group.status.releases.get(&target.release).cloned());
    let ids = group.status.assignments.iter().map(|assignment| assignment.instance);
    let observe = |news: InstanceNews<'_>| {
        let report = news.report;
        let observed = Observed {
            cell: news.cell,
            life: life_of(report.state),
            state_ms: report.state_ms.saturating_add(news.silent_ms),
            restarts: report.restarts,
            reason: report.reason.clone(),
            heard: news.heard,
            in_flight: news.in_flight,
        };
        (report.instance, observed)
    };
    let observed = core.soft.read_instances(ids, observe).into_iter().collect();
    Some(Loaded {
        app_generation: app.map_or(Generation(0), |app| app.record.generation),
        group,
        target,
        settings,
        release,
        observed,
        now_ms: core.now_ms(),
    })
}

impl Loaded {
    /// As the planner takes it.
    pub(super) fn input<'a>(
        &'a self,
        core: &'a Core,
        cells: &'a CellIndex,
        concerns: &'a Concerns,
        budget: StartBudget,
    ) -> GroupInput<'a> {
        GroupInput {
            now_ms: self.now_ms,
            listening_ms: core.soft.listening_ms(),
            spec: &self.group.spec,
            generation: self.group.record.generation,
            app_generation: self.app_generation,
            target: self.target,
            settings: &self.settings,
            release: self.release.as_ref(),
            status: &self.group.status,
            observed: &self.observed,
            cells,
            mates: &concerns.mates,
            overpromised: &concerns.overpromised,
            policy: &core.settings.rollout,
            budget,
            entropy: u128::from(fastrand::u64(..)) << 64 | u128::from(fastrand::u64(..)),
        }
    }
}

/// What other groups mean for this one.
pub(super) struct Concerns {
    mates: BTreeMap<CellId, u32>,
    overpromised: BTreeSet<InstanceId>,
}

/// Gathers what other groups mean for this one.
pub(super) fn load_concerns(core: &Core, name: &GroupRef, loaded: &Loaded, cells: &CellIndex) -> Concerns {
    let mine: BTreeSet<CellId> = loaded.group.status.assignments.iter().map(|a| a.cell).collect();
    let limit = |view: &CellView| view.limit_bytes(cells.overcommit());
    let overpromised = mine
        .into_iter()
        .filter_map(|cell| cells.get(cell))
        .filter(|view| view.promised_bytes > limit(view))
        .flat_map(|view| core.cache.overpromised(view.cell, limit(view)))
        .collect();
    Concerns { mates: core.cache.lane_mates(name), overpromised }
}

fn life_of(state: InstanceState) -> Life {
    match state {
        InstanceState::Starting => Life::Starting,
        InstanceState::Ready => Life::Ready,
        InstanceState::Unhealthy => Life::Unhealthy,
        InstanceState::Draining => Life::Draining,
        InstanceState::Stopping => Life::Stopping,
        InstanceState::Backoff => Life::Backoff,
        InstanceState::CrashLoop => Life::CrashLoop,
        InstanceState::Failed => Life::Failed,
    }
}
