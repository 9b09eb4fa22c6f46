//! What to do about the difference between what should run and what is looked after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use towpath_types::InstanceId;
use towpath_wire::cell::InstanceSpec;

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Step {
    /// Begin to look after it.
    Begin(Arc<InstanceSpec>),
    /// Its wish has changed.
    Change(Arc<InstanceSpec>),
    /// End it and forget it.
    End(InstanceId),
}

/// Steps from `now` to `desired`: ends first, so that they free what beginnings need. The same input gives the same steps; applied
/// steps leave none.
pub(crate) fn plan_steps(
    desired: &[InstanceSpec],
    now: &BTreeMap<InstanceId, Option<Arc<InstanceSpec>>>,
) -> Vec<Step> {
    let wanted: BTreeSet<InstanceId> = desired.iter().map(|spec| spec.instance).collect();
    let ends =
        now.iter().filter(|(id, spec)| spec.is_some() && !wanted.contains(id)).map(|(id, _)| Step::End(*id));
    let others = desired.iter().filter_map(|spec| match now.get(&spec.instance) {
        // Not known, or still ending: it begins (again).
        None | Some(None) => Some(Step::Begin(Arc::new(spec.clone()))),
        Some(Some(known)) if **known != *spec => Some(Step::Change(Arc::new(spec.clone()))),
        Some(Some(_)) => None,
    });
    ends.chain(others).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use towpath_types::health::HealthCheck;
    use towpath_types::spec::{Limits, Wanted};
    use towpath_types::upstream::Protocol;
    use towpath_types::{AppName, AppRef, Digest, LaneName, Millis, SpaceRef};

    /// A spec to vary.
    pub(crate) fn spec(n: u8) -> InstanceSpec {
        InstanceSpec {
            instance: InstanceId::mint(u64::from(n), [n; 10]),
            app: AppRef::new(&SpaceRef::first(), AppName::new("shop").unwrap()),
            lane: LaneName::base(),
            ordinal: 0,
            release: Digest::from_bytes([n; 32]),
            artifact: Digest::from_bytes([n; 32]),
            artifact_bytes: 1,
            command: "sleep 100".into(),
            env: BTreeMap::new(),
            secrets: BTreeSet::new(),
            limits: Limits::default(),
            health: HealthCheck::default(),
            protocol: Protocol::Http1,
            grace: Millis::secs(1),
            wanted: Wanted::Run,
        }
    }

    #[test]
    fn missing_begin_surplus_end_changed_change_and_equal_stay() {
        let drained = InstanceSpec { wanted: Wanted::Drain, ..spec(2) };
        let now = BTreeMap::from([
            (spec(1).instance, Some(Arc::new(spec(1)))),
            (spec(2).instance, Some(Arc::new(spec(2)))),
            (spec(3).instance, Some(Arc::new(spec(3)))),
            (spec(4).instance, None),
            (spec(6).instance, None),
        ]);
        let steps = plan_steps(&[spec(1), drained.clone(), spec(4), spec(5)], &now);
        assert_eq!(
            steps,
            [
                Step::End(spec(3).instance),
                Step::Change(Arc::new(drained)),
                Step::Begin(Arc::new(spec(4))),
                Step::Begin(Arc::new(spec(5))),
            ]
        );
        let settled = BTreeMap::from([(spec(1).instance, Some(Arc::new(spec(1))))]);
        assert_eq!(plan_steps(&[spec(1)], &settled), []);
    }
}
