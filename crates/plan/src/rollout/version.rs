//! Versions of what an instance runs.

use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use towpath_types::spec::{GroupSpec, GroupStatus, InstanceSettings, InstanceVersion};
use towpath_types::{ByteSize, Digest};

/// Memory of an instance whose limits say nothing.
pub const DEFAULT_MEMORY: ByteSize = ByteSize::mib(512);

/// Digest of settings: equal content, equal digest.
pub fn settings_digest(settings: &InstanceSettings) -> Digest {
    let text = serde_json::to_vec(settings).unwrap_or_default();
    Digest::from_bytes(Sha256::digest(&text).into())
}

/// The version that a group's spec asks for, and the settings behind it.
pub fn find_version(
    spec: &GroupSpec,
    app_env: &BTreeMap<String, String>,
) -> (InstanceVersion, InstanceSettings) {
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
