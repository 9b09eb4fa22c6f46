use super::*;
use towpath_types::spec::GroupStatus;

fn cell() -> CellId {
    CellId::mint(1, [1; 10])
}

fn plan_of(instances: &[u8]) -> GroupPlan {
    let assign = |n: &u8| PlanAction::Assign {
        instance: InstanceId::mint(1, [*n; 10]),
        cell: cell(),
        replaces_lost: false,
        why: String::new(),
    };
    GroupPlan { status: GroupStatus::default(), actions: instances.iter().map(assign).collect(), wake_ms: 0 }
}

#[test]
fn a_plan_that_is_not_committed_gives_everything_back_and_one_that_is_still_starts() {
    let clock = Arc::new(Clock::start());
    let ledger = PlacingLedger::new(&RolloutPolicy::default(), clock);
    let first = ledger.begin().reserve(&plan_of(&[1, 2]));
    let second = ledger.begin().reserve(&plan_of(&[3]));
    assert_eq!(ledger.begin().starting(cell()), 3);
    drop(first);
    assert_eq!(ledger.begin().starting(cell()), 1);
    second.keep();
    assert_eq!(ledger.begin().starting(cell()), 1);
    ledger.started(cell(), InstanceId::mint(1, [3; 10]));
    let mut placing = ledger.begin();
    assert_eq!((placing.starting(cell()), placing.reserved(cell()).count), (0, 0));
    assert!(placing.inner.reserved.is_empty() && placing.inner.by_cell.is_empty());
}
