//! Releases: their id, their choice for a rollback, and which are kept.

use super::Failure;
use super::input::Push;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use towpath_types::spec::{GroupStatus, ReleaseSpec};
use towpath_types::{Digest, ErrorCode, LaneName, Record};

/// Releases of an app that are kept besides those in use.
pub(crate) const KEPT: usize = 5;

/// What is kept of a release besides its immutable spec.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub(crate) struct ReleaseStatus {
    /// Per lane: when it last was rolled out well, milliseconds since 1970.
    pub(crate) good_ms: BTreeMap<LaneName, u64>,
    /// When it was last pushed or rolled back to, milliseconds since 1970.
    pub(crate) used_ms: u64,
}

/// The id of the release that a push makes: what the build reads and what decides how instances run.
/// `env` is the environment of the build.
pub(crate) fn release_id(push: &Push, source: Digest, env: &BTreeMap<String, String>) -> Digest {
    // Maps are sorted and the fields stand in a fixed order, so the text is canonical.
    #[derive(Serialize)]
    struct Content<'a> {
        format: u32,
        source: Digest,
        builder: &'a Option<String>,
        command: &'a Option<String>,
        env: &'a BTreeMap<String, String>,
        health: &'a Option<towpath_types::health::HealthCheck>,
        protocol: towpath_types::upstream::Protocol,
        grace: Option<towpath_types::Millis>,
    }
    let content = Content {
        format: 1,
        source,
        builder: &push.builder,
        command: &push.command,
        env,
        health: &push.health,
        protocol: push.protocol,
        grace: push.grace,
    };
    let text = serde_json::to_vec(&content).unwrap_or_default();
    Digest::from_bytes(Sha256::digest(&text).into())
}

/// A release with its record.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    pub(crate) record: Record,
    pub(crate) spec: ReleaseSpec,
    pub(crate) status: ReleaseStatus,
}

/// Reads records of releases; unreadable ones are left out.
pub(crate) fn read(records: Vec<Record>) -> Vec<Kept> {
    records
        .into_iter()
        .filter_map(|record| {
            let spec = record.spec().ok()?;
            let status = record.status().unwrap_or_default();
            Some(Kept { record, spec, status })
        })
        .collect()
}

/// The releases that a group still needs.
pub(crate) fn in_use(wanted: Digest, status: &GroupStatus) -> BTreeSet<Digest> {
    let versions = [&status.target, &status.serving, &status.good].into_iter().flatten();
    let assigned = status.assignments.iter().map(|assignment| &assignment.version);
    versions.chain(assigned).map(|version| version.release).chain([wanted]).collect()
}

/// The releases to drop so that the newest `keep` and those in use stay.
pub(crate) fn plan_prune(releases: &[Kept], in_use: &BTreeSet<Digest>, keep: usize) -> Vec<Digest> {
    let mut by_age: Vec<&Kept> = releases.iter().collect();
    by_age.sort_by_key(|kept| {
        std::cmp::Reverse((kept.status.used_ms.max(kept.record.created_ms), kept.spec.release))
    });
    by_age
        .into_iter()
        .skip(keep)
        .map(|kept| kept.spec.release)
        .filter(|release| !in_use.contains(release))
        .collect()
}

/// The release to go back to: the one named (a digest, or at least six of its first hex digits), else the one that last
/// ran well in the lane besides the present one.
pub(crate) fn choose(
    releases: &[Kept],
    lane: &LaneName,
    present: Option<Digest>,
    named: Option<&str>,
) -> Result<Digest, Failure> {
    let conflict = |text: String| Failure::new(ErrorCode::Conflict, text);
    let Some(named) = named else {
        return releases
            .iter()
            .filter(|kept| Some(kept.spec.release) != present)
            .filter_map(|kept| Some((*kept.status.good_ms.get(lane)?, kept.spec.release)))
            .max()
            .map(|(_, release)| release)
            .ok_or_else(|| {
                conflict(format!("no other release has run well in lane {lane}; nothing to go back to"))
            });
    };
    let hex = named.strip_prefix("sha256:").unwrap_or(named).to_ascii_lowercase();
    let mut found =
        releases.iter().map(|kept| kept.spec.release).filter(|release| release.hex().starts_with(&hex));
    match (hex.len() >= 6, found.next(), found.next()) {
        (true, Some(release), None) => Ok(release),
        (true, Some(_), Some(_)) => Err(conflict(format!("more than one release begins with {hex}"))),
        (true, None, _) => {
            Err(Failure::new(ErrorCode::NotFound, format!("there is no kept release {named}")))
        }
        (false, ..) => Err(Failure::new(
            ErrorCode::Invalid,
            "name a release by its digest or at least 6 of its hex digits",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::{Generation, Kind, Millis, Revision, resource::Key};

    fn kept(n: u8, created_ms: u64, good: Option<u64>) -> Kept {
        let release = Digest::from_bytes([n; 32]);
        let key = Key { kind: Kind::Release, org: None, space: None, name: release.hex() };
        let status = ReleaseStatus {
            good_ms: good.map(|at| (LaneName::base(), at)).into_iter().collect(),
            used_ms: created_ms,
        };
        let spec = ReleaseSpec {
            release,
            app: "a".parse().unwrap(),
            source: release,
            artifact: release,
            artifact_bytes: 1,
            builder: "static".into(),
            command: "x".into(),
            env: BTreeMap::new(),
            health: Default::default(),
            protocol: Default::default(),
            grace: Millis::secs(10),
            by: String::new(),
            note: String::new(),
        };
        let record = Record {
            id: n.to_string(),
            key,
            generation: Generation(1),
            revision: Revision(1),
            created_ms,
            updated_ms: created_ms,
            spec: serde_json::to_value(&spec).unwrap(),
            status: serde_json::Value::Null,
        };
        Kept { record, spec, status }
    }

    #[test]
    fn five_releases_and_those_in_use_are_kept() {
        let releases: Vec<_> = (1..=8).map(|n| kept(n, u64::from(n), None)).collect();
        let used = [Digest::from_bytes([1; 32])].into();
        assert_eq!(
            plan_prune(&releases, &used, KEPT),
            [Digest::from_bytes([3; 32]), Digest::from_bytes([2; 32])]
        );
    }

    #[test]
    fn rollback_goes_to_what_ran_well_before_or_to_what_is_named() {
        let releases =
            [kept(0xa1, 1, Some(10)), kept(0xa2, 2, Some(20)), kept(0xb3, 3, None), kept(0xb4, 4, Some(40))];
        let (base, id) = (LaneName::base(), |n: u8| Digest::from_bytes([n; 32]));
        assert_eq!(choose(&releases, &base, Some(id(0xb4)), None), Ok(id(0xa2)));
        assert_eq!(choose(&releases, &base, Some(id(0xb3)), None), Ok(id(0xb4)));
        assert_eq!(
            choose(&releases, &"x".parse().unwrap(), None, None).unwrap_err().code,
            ErrorCode::Conflict
        );
        assert_eq!(choose(&releases, &base, None, Some("a1a1a1")), Ok(id(0xa1)));
        assert_eq!(choose(&releases, &base, None, Some("a1")).unwrap_err().code, ErrorCode::Invalid);
        assert_eq!(choose(&releases, &base, None, Some("ffffff")).unwrap_err().code, ErrorCode::NotFound);
    }

    #[test]
    fn the_id_depends_on_all_that_makes_a_release_and_on_nothing_else() {
        let source = Digest::from_bytes([1; 32]);
        let push = Push { command: Some("run".into()), ..Push::default() };
        let env = BTreeMap::new();
        let id = release_id(&push, source, &env);
        let noted = Push { note: "n".into(), instances: Some(3), ..push.clone() };
        assert_eq!(id, release_id(&noted, source, &env));
        assert_ne!(id, release_id(&Push { command: None, ..push.clone() }, source, &env));
        assert_ne!(id, release_id(&push, source, &[("A".to_owned(), "1".to_owned())].into()));
        assert_ne!(id, release_id(&push, Digest::from_bytes([2; 32]), &env));
    }
}
