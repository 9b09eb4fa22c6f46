//! Stamps of instances: what tells their specs apart, without making them.
//!
//! A cell says which stamps it has; what it has already is not told again. A stamp is made of what the spec is made of, so no
//! history is needed for it, and every manager of a version makes the same one.

use super::secrets::secrets_of;
use crate::core::cache::CellInstance;
use towpath_plan::ring::hash;
use towpath_types::spec::Wanted;

/// Another version may make another spec of the same.
const MADE_BY: &str = env!("CARGO_PKG_VERSION");
/// Rises with every change of what `find_instance` makes of the same records: builds of one version may differ in that.
const FORM: u32 = 1;

/// The stamp of an instance's spec. `None` = it has none: what has secrets is told in full each time, since only so does the
/// parcel of each answer hold all that the cell needs.
pub(super) fn find_stamp(found: &CellInstance) -> Option<u64> {
    let status = &found.group.status;
    let assignment = status.assignments.get(found.at).filter(|a| a.instance == found.instance)?;
    let version = &assignment.version;
    let settings = status.settings.get(&version.settings)?;
    if secrets_of(settings).next().is_some() {
        return None;
    }
    let artifact = status.releases.get(&version.release)?.artifact;
    let mut text = MADE_BY.as_bytes().to_vec();
    text.extend_from_slice(&FORM.to_le_bytes());
    for digest in [&version.release, &version.settings, &artifact] {
        text.extend_from_slice(digest.as_bytes());
    }
    text.extend_from_slice(&assignment.ordinal.to_le_bytes());
    text.push(match assignment.wanted {
        Wanted::Run => 0,
        Wanted::Drain => 1,
    });
    Some(hash(&text))
}
