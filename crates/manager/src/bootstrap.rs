//! What a new installation needs: the default org, its default space, and the base lane of that.

use crate::core::{Core, keys};
use crate::error::CommitError;
use serde_json::json;
use towpath_store::{Expect, StoreError, Write};
use towpath_types::spec::{LaneKind, LaneSpec, SpaceSpec};
use towpath_types::{LaneName, SpaceRef};

/// Makes the default org, space and lane, unless they are there.
pub(crate) async fn apply(core: &Core) -> Result<(), CommitError> {
    let space = SpaceRef::first();
    let wanted = [
        (keys::org_key(&space.org), json!({})),
        (keys::space_key(&space), json!(SpaceSpec::default())),
        (keys::lane_key(&space, &LaneName::base()), json!(LaneSpec { kind: LaneKind::Base })),
    ];
    for (key, spec) in wanted {
        if core.cache.get(&key).is_some() {
            continue;
        }
        let id = core.mint_record_id();
        let write = Write::Put { key, id, expect: Expect::Absent, spec: Some(spec), status: None };
        match core.commit(vec![write]).await {
            Ok(_) | Err(CommitError::Store(StoreError::Conflict { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
