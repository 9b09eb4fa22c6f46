//! What each source says: kept so that the next saying can be compared with it.

use crate::app::Member;
use crate::change::Source;
use crate::hash::hash_bytes;
use crate::index::Keyed;
use std::sync::Arc;

/// A source with all that it named last.
#[derive(Debug, Clone)]
pub(crate) struct SourceEntry {
    pub(crate) source: Arc<Source>,
    pub(crate) stale: bool,
    pub(crate) members: Vec<Member>,
}

impl Keyed for SourceEntry {
    fn hash(&self) -> u64 {
        hash(&self.source)
    }
}

/// Hash of a source's name.
pub(crate) fn hash(source: &Source) -> u64 {
    match source {
        Source::Cell(cell) => hash_bytes(2, cell.0.as_bytes()),
        Source::Group(app, lane) => hash_bytes(crate::table::app_hash(app), lane.as_str().as_bytes()),
    }
}
