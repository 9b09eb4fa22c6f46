//! Spaces: how lane tags are read, and which lanes there are.

use crate::hash::hash_bytes;
use towpath_types::lane::LanePolicy;
use towpath_types::{LaneName, SpaceRef};

/// A space of the table.
#[derive(Debug)]
pub(crate) struct Space {
    pub(crate) space: SpaceRef,
    pub(crate) policy: LanePolicy,
    /// Sorted.
    names: Box<[LaneName]>,
    /// Sorted.
    local: Box<[LaneName]>,
}

impl Space {
    pub(crate) fn new(
        space: SpaceRef,
        policy: LanePolicy,
        names: Vec<LaneName>,
        local: Vec<LaneName>,
    ) -> Self {
        Self { space, policy, names: sorted(names), local: sorted(local) }
    }

    pub(crate) fn has_lane(&self, name: &str) -> bool {
        name == LaneName::BASE || contains(&self.names, name) || contains(&self.local, name)
    }

    pub(crate) fn is_local(&self, name: &str) -> bool {
        contains(&self.local, name)
    }
}

/// Sorted and without doubles.
pub(crate) fn sorted(mut names: Vec<LaneName>) -> Box<[LaneName]> {
    names.sort_unstable();
    names.dedup();
    names.into()
}

fn contains(names: &[LaneName], name: &str) -> bool {
    names.binary_search_by(|other| other.as_str().cmp(name)).is_ok()
}

/// Hash of a space's name.
pub(crate) fn hash(space: &SpaceRef) -> u64 {
    hash_bytes(hash_bytes(1, space.org.as_str().as_bytes()), space.space.as_str().as_bytes())
}
