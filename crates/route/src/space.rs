//! Spaces: how lane tags are read, and which lanes there are.

use crate::hash::hash_bytes;
use crate::index::Keyed;
use towpath_types::lane::LanePolicy;
use towpath_types::{LaneName, SpaceRef};

/// A space of the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct Space {
    /// Put by a change; else only apps speak of it, and the defaults hold.
    pub(crate) known: bool,
    pub(crate) policy: LanePolicy,
    /// Sorted.
    names: Box<[LaneName]>,
    /// Sorted.
    local: Box<[LaneName]>,
}

impl Space {
    pub(crate) fn new(policy: LanePolicy, names: Vec<LaneName>, local: Vec<LaneName>) -> Self {
        Self { known: true, policy, names: sorted(names), local: sorted(local) }
    }

    /// The one of upstreams, whose requests have no lanes.
    pub(crate) fn without_lanes() -> Self {
        let policy = LanePolicy {
            header: String::new(),
            cookie: String::new(),
            query: String::new(),
            host_label: false,
            ..LanePolicy::default()
        };
        Self { policy, ..Self::default() }
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

/// Where a space stands in the list of spaces.
#[derive(Debug, Clone)]
pub(crate) struct SpaceSlot {
    pub(crate) space: SpaceRef,
    pub(crate) slot: u32,
}

impl Keyed for SpaceSlot {
    fn hash(&self) -> u64 {
        hash(&self.space)
    }
}

/// Hash of a space's name.
pub(crate) fn hash(space: &SpaceRef) -> u64 {
    hash_bytes(hash_bytes(1, space.org.as_str().as_bytes()), space.space.as_str().as_bytes())
}
