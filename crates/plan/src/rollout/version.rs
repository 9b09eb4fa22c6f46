//! Versions of what an instance runs.

use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use towpath_types::secret::Env;
use towpath_types::spec::{Assignment, GroupSpec, GroupStatus, InstanceSettings, InstanceVersion, Wanted};
use towpath_types::{ByteSize, Digest};

/// Memory of an instance whose limits say nothing.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::mib(512);

/// Digest of settings: equal content, equal digest. What is absent or empty does not count, so that a setting that a later
/// release of the platform adds, absent by default, makes no new version of everything that runs.
///
/// Of a secret its version counts, and not with which key it is sealed: a rotation of keys replaces nothing that runs.
pub fn settings_digest(settings: &InstanceSettings) -> Digest {
    let mut text = String::new();
    let env = settings.env.iter().map(|(name, value)| (name.clone(), value.without_seal())).collect();
    let settings = InstanceSettings { env, ..settings.clone() };
    write_canonical(&serde_json::to_value(settings).unwrap_or_default(), &mut text);
    Digest::from_bytes(Sha256::digest(text.as_bytes()).into())
}

/// Writes JSON with sorted keys and without nulls and empty collections in objects.
fn write_canonical(value: &Value, to: &mut String) {
    let Value::Object(fields) = value else { return to.push_str(&value.to_string()) };
    let counts = |value: &Value| match value {
        Value::Null => false,
        Value::Object(fields) => !fields.values().all(Value::is_null),
        Value::Array(items) => !items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    };
    let sorted: BTreeMap<&String, &Value> = fields.iter().filter(|(_, value)| counts(value)).collect();
    to.push('{');
    for (index, (name, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            to.push(',');
        }
        to.push_str(&Value::from(name.as_str()).to_string());
        to.push(':');
        write_canonical(value, to);
    }
    to.push('}');
}

/// The version that a group's spec asks for, and the settings behind it.
pub fn find_version(spec: &GroupSpec, app_env: &Env) -> (InstanceVersion, InstanceSettings) {
    let mut env = app_env.clone();
    env.extend(spec.env.iter().map(|(name, value)| (name.clone(), value.clone())));
    let settings = InstanceSettings {
        env,
        limits: spec.limits.clone(),
        health: spec.health.clone(),
        restart: spec.restart,
    };
    (InstanceVersion { release: spec.release, settings: settings_digest(&settings) }, settings)
}

/// Bytes of memory that one instance of a version is promised.
pub fn memory_of(status: &GroupStatus, version: &InstanceVersion) -> u64 {
    status
        .settings
        .get(&version.settings)
        .and_then(|settings| settings.limits.memory)
        .unwrap_or(DEFAULT_MEMORY)
        .0
}

/// The version that a group's instances should be of, as far as its status knows; `None` = the only one has failed.
pub fn aim_of(status: &GroupStatus) -> Option<InstanceVersion> {
    if status.failed.is_some() && status.failed == status.target { status.good } else { status.target }
}

/// Whether an instance is there to stay: neither draining nor of a version that another one takes the place of.
pub fn stays(status: &GroupStatus, assignment: &Assignment) -> bool {
    assignment.wanted == Wanted::Run && Some(assignment.version) == aim_of(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::health::HealthCheck;
    use towpath_types::spec::Limits;

    #[test]
    fn digests_tell_content_apart_and_stay_the_same_over_releases_of_the_platform() {
        let digest = |settings: InstanceSettings| settings_digest(&settings);
        let env = |pairs: &[(&str, &str)]| InstanceSettings {
            env: pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).into())).collect(),
            ..InstanceSettings::default()
        };
        let limits = || Limits { memory: Some(ByteSize::mib(1)), ..Limits::default() };
        let limited = InstanceSettings { limits: limits(), ..InstanceSettings::default() };
        let all = [
            digest(env(&[])),
            digest(env(&[("A", "")])),
            digest(env(&[("A", "1")])),
            digest(InstanceSettings { restart: 1, ..InstanceSettings::default() }),
            digest(limited),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        // A change here rolls every group of every installation at an upgrade.
        let whole =
            InstanceSettings { health: Some(HealthCheck::default()), limits: limits(), ..env(&[("A", "1")]) };
        assert_eq!(
            digest(whole).to_string(),
            "sha256:77dea42e59791bc187a90dc7923712169c95f7eafc71628cef497523fc8723f3"
        );
    }
}
