//! Quotas: what an org wants together, and the claim that goes with each change that wants more.
//!
//! What is wanted is counted, not kept in a counter: from the groups, lanes and routes in memory, from the operations
//! that are accepted but not ended, each as if it came to its full effect, and from instances that are to go but still run. A change that wants more of what is limited
//! writes to the org's record under the condition that this is as it was when memory was complete up to it; so of two such
//! changes at the same moment, by however many managers, one comes first and the other counts again with it.

mod wants;

pub(crate) use wants::has_ended;

use super::ApiState;
use super::problem::{FieldError, Outcome, Problem};
use crate::core::keys;
use crate::operations::NewOperation;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::OwnedMutexGuard;
use towpath_store::{Expect, Write};
use towpath_types::identity::{OrgSpec, Quota};
use towpath_types::{ByteSize, ErrorCode, LaneName, OrgName, Record, SpaceRef};
use wants::Wants;

/// Longest wait for memory to know the org as it was read.
const CACHE: Duration = Duration::from_secs(5);
/// Orgs whose turns are remembered when nobody waits.
const TURNS: usize = 1024;

/// A change that wants something.
#[derive(Debug, Clone)]
pub(crate) enum Ask {
    /// Whatever the operation comes to.
    Operation(Box<NewOperation>),
    /// A lane.
    Lane(SpaceRef, LaneName),
    /// A route of the org, by its key's name.
    Route(OrgName, String),
}

impl Ask {
    fn org(&self) -> &OrgName {
        match self {
            Ask::Operation(new) => &new.app.org,
            Ask::Lane(space, _) => &space.org,
            Ask::Route(org, _) => org,
        }
    }
}

/// The right to make a change before other changes of the org, once.
pub(crate) struct Claim {
    /// Has to be in the change's transaction.
    pub(crate) write: Write,
    _turn: OwnedMutexGuard<()>,
}

/// One at a time of each org: those who wait do not fail each other's transactions.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    by_org: Mutex<HashMap<OrgName, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    async fn begin(&self, org: &OrgName) -> OwnedMutexGuard<()> {
        let turn = {
            let mut map = self.by_org.lock().unwrap_or_else(PoisonError::into_inner);
            if map.len() > TURNS {
                map.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            map.entry(org.clone()).or_default().clone()
        };
        turn.lock_owned().await
    }
}

/// What an org uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub(crate) struct Usage {
    /// Bytes.
    pub(crate) memory: ByteSize,
    pub(crate) instances: u64,
    pub(crate) routes: u64,
    /// Beside the base lanes.
    pub(crate) lanes: u64,
}

/// Refuses what goes beyond, naming each limit; what does not want more of it passes even when a limit was lowered.
fn check(org: &OrgName, quota: &Quota, before: Usage, after: Usage) -> Outcome<()> {
    let plain = |n: u64| n.to_string();
    let bytes = |n: u64| ByteSize(n).to_string();
    type Shown = fn(u64) -> String;
    let rows: [(&str, Option<u64>, u64, u64, Shown); 4] = [
        ("memory", quota.memory.map(|memory| memory.0), before.memory.0, after.memory.0, bytes),
        ("instances", quota.instances, before.instances, after.instances, plain),
        ("routes", quota.routes, before.routes, after.routes, plain),
        ("lanes", quota.lanes, before.lanes, after.lanes, plain),
    ];
    let errors: Vec<FieldError> = rows
        .into_iter()
        .filter_map(|(what, limit, used, wanted, shown)| {
            let limit = limit.filter(|limit| wanted > used && wanted > *limit)?;
            let (used, more, limit) = (shown(used), shown(wanted - used), shown(limit));
            let message = format!("used {used}, asked for {more} more, limit {limit}");
            Some(FieldError::new(format!("quota.{what}"), message))
        })
        .collect();
    if errors.is_empty() {
        return Ok(());
    }
    let told: Vec<String> = errors
        .iter()
        .map(|error| format!("{}: {}", error.field.trim_start_matches("quota."), error.message))
        .collect();
    let detail = format!("org {org}: {}", told.join("; "));
    Err(Problem { errors, ..Problem::new(ErrorCode::QuotaExceeded, detail) })
}

impl ApiState {
    /// What an org uses now.
    pub(crate) fn usage_of(&self, org: &OrgName) -> Usage {
        Wants::load(&self.core, org).usage()
    }

    /// Checks a change against its org's quota. `None` = nothing that it wants is limited.
    pub(crate) async fn claim(&self, ask: &Ask) -> Outcome<Option<Claim>> {
        let org = ask.org();
        let key = keys::org_key(org);
        let quota_of = |record: &Record| record.spec::<OrgSpec>().map(|spec| spec.quota).unwrap_or_default();
        // A quota that was set this moment holds for what comes after it.
        if self.core.cache.get(&key).is_none_or(|record| quota_of(&record).is_unlimited()) {
            return Ok(None);
        }
        let turn = self.turns.begin(org).await;
        let Some(record) = self.core.store.get(&key).await? else { return Ok(None) };
        if !self.core.wait_cache(record.revision, CACHE).await {
            return Err(Problem::new(ErrorCode::StoreUnavailable, "the change feed is behind; try again")
                .retry_after(Duration::from_secs(1)));
        }
        let mut wants = Wants::load(&self.core, org);
        let before = wants.usage();
        wants.add(&self.core, ask);
        let after = wants.usage();
        check(org, &quota_of(&record), before, after)?;
        if after == before {
            return Ok(None);
        }
        let claimed = serde_json::json!({"claim": self.core.mint_record_id()});
        let write = Write::Put {
            key,
            id: record.id.clone(),
            expect: Expect::At(record.revision),
            spec: None,
            status: Some(claimed),
        };
        Ok(Some(Claim { write, _turn: turn }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(memory: u64, instances: u64) -> Usage {
        Usage { memory: ByteSize(memory), instances, routes: 0, lanes: 0 }
    }

    #[test]
    fn a_refusal_names_used_asked_and_limit() {
        let org: OrgName = "acme".parse().unwrap();
        let quota = Quota { instances: Some(10), memory: Some(ByteSize::mib(64)), ..Quota::default() };
        let mib = ByteSize::mib(1).0;
        assert!(check(&org, &quota, usage(0, 8), usage(64 * mib, 10)).is_ok());
        assert!(check(&org, &quota, usage(0, 12), usage(0, 11)).is_ok(), "less is always permitted");
        let problem = check(&org, &quota, usage(32 * mib, 8), usage(96 * mib, 12)).unwrap_err();
        assert_eq!(problem.code, ErrorCode::QuotaExceeded);
        assert_eq!(
            problem.detail,
            "org acme: memory: used 32M, asked for 64M more, limit 64M; instances: used 8, asked for 4 more, limit 10"
        );
    }
}
