//! The keys that secrets are sealed with, and changing them.

use super::ApiState;
use super::auth::Caller;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::NoQuery;
use super::view::OperationView;
use super::writing::Conditions;
use crate::core::keys;
use crate::operations::{Input, NewOperation, platform};
use crate::vault;
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::Serialize;
use std::collections::BTreeSet;
use towpath_secrets::Key;
use towpath_types::secret::{KeyId, KeyringStatus, RotationProgress, RotationSpec};
use towpath_types::{ErrorCode, LaneName};

/// A key.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = SecretsKey)]
pub(crate) struct KeyView {
    /// Its fingerprint.
    id: KeyId,
    /// New values are sealed with it.
    active: bool,
    /// The manager that answers has it.
    here: bool,
    /// Managers that have it.
    managers: Vec<String>,
    /// Values that are sealed with it.
    values: u64,
    /// Values of operations that have not made their change yet.
    waiting: u64,
    /// Nothing is sealed with it any more, and it may be taken out of the key file.
    removable: bool,
    /// Apps, and resources of the gateway, with values that the answering manager cannot open, since it lacks this key.
    closed: Vec<String>,
}

/// How secrets are sealed.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = SecretsStatus)]
pub(crate) struct SecretsView {
    /// Secrets can be set by way of the manager that answers.
    ready: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
    /// Newest first, as in the key file; then those that are not in it.
    keys: Vec<KeyView>,
    /// The last rotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    rotation: Option<RotationSpec>,
    /// How far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<RotationProgress>,
}

/// The keys, what is sealed with each, and how far the last rotation is.
#[utoipa::path(get, path = "/v1/secrets", tag = "platform",
    responses((status = 200, body = SecretsView), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_secrets(
    State(state): State<ApiState>,
    _query: NoQuery,
) -> Outcome<Json<SecretsView>> {
    Ok(Json(state.secrets_view()))
}

/// Seals everything with the newest key: an operation, which can be followed like any other. Where the platform has one manager, that
/// key is made now; with several, it has to be in the key file of all of them.
#[utoipa::path(post, path = "/v1/secrets/rotate", tag = "platform",
    responses((status = 202, body = OperationView), (status = "default", body = ProblemBody)))]
pub(crate) async fn rotate_secrets(
    State(state): State<ApiState>,
    caller: Caller,
    _query: NoQuery,
    conditions: Conditions,
) -> Outcome<Response> {
    if let Some(before) = state.accepted_before(&conditions, None, None).await? {
        return Ok(before);
    }
    if let Some(why) = state.core.sealing_trouble() {
        return Err(Problem::new(ErrorCode::SecretsUnavailable, why));
    }
    let to = state.next_key().await?.id().clone();
    let app = platform().map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    let input = Input::RotateSecrets { to };
    let new = NewOperation { app, lane: LaneName::base(), input, expected: None, by: caller.name };
    state.accept_of_platform(new, &keys::keyring_key(), &conditions).await
}

impl ApiState {
    /// The key that is to seal next: every manager has it.
    async fn next_key(&self) -> Outcome<Key> {
        let core = &self.core;
        let active = core.keyring().map(|spec| spec.active);
        let mut ring = core.vault.ring();
        if core.settings.make_secrets_key && ring.newest().map(Key::id) == active.as_ref() {
            let added = vault::add_key(core).await;
            ring = added.map_err(|why| Problem::new(ErrorCode::SecretsUnavailable, why))?;
        }
        let newest = ring.newest().ok_or_else(|| Problem::not_found("key"))?;
        if Some(newest.id()) == active.as_ref() {
            let what = "the newest key of the key file is active already; add a new one before the others: `towpath secrets new-key FILE`";
            return Err(Problem::conflict(what));
        }
        let status = self.keyring_status();
        let has = |manager: &str| status.managers.get(manager).is_some_and(|keys| keys.contains(newest.id()));
        let me = core.manager.to_string();
        let lacking: Vec<String> = core
            .ownership
            .ring()
            .members()
            .iter()
            .map(ToString::to_string)
            .filter(|manager| *manager != me && !has(manager))
            .collect();
        if !lacking.is_empty() {
            let what = format!(
                "key {} is not on these managers yet: {}; copy the key file to them, which they read within seconds",
                newest.id(),
                lacking.join(", ")
            );
            return Err(Problem::conflict(what));
        }
        Ok(newest.clone())
    }

    fn keyring_status(&self) -> KeyringStatus {
        let record = self.core.cache.get(&keys::keyring_key());
        record.and_then(|record| record.status().ok()).unwrap_or_default()
    }

    fn secrets_view(&self) -> SecretsView {
        let core = &self.core;
        let (spec, status) = (core.keyring(), self.keyring_status());
        let (ring, tally) = (core.vault.ring(), vault::tally(core));
        let active = spec.as_ref().map(|spec| spec.active.clone());
        let mut ids: Vec<KeyId> = ring.keys().iter().map(|key| key.id().clone()).collect();
        let others: BTreeSet<&KeyId> =
            active.iter().chain(tally.values.keys()).chain(tally.waiting.keys()).collect();
        for id in others {
            if !ids.contains(id) {
                ids.push(id.clone());
            }
        }
        let view = |id: KeyId| {
            let count = |of: &std::collections::BTreeMap<KeyId, u64>| of.get(&id).copied().unwrap_or(0);
            let (values, waiting) = (count(&tally.values), count(&tally.waiting));
            let active = Some(&id) == active.as_ref();
            let here = ring.find(&id).is_some();
            let managers = status.managers.iter().filter(|(_, keys)| keys.contains(&id));
            KeyView {
                active,
                here,
                managers: managers.map(|(manager, _)| manager.clone()).collect(),
                values,
                waiting,
                removable: here && !active && values == 0 && waiting == 0,
                closed: tally.closed.get(&id).cloned().unwrap_or_default(),
                id,
            }
        };
        let trouble = core.sealing_trouble();
        SecretsView {
            ready: trouble.is_none(),
            trouble,
            keys: ids.into_iter().map(view).collect(),
            rotation: spec.and_then(|spec| spec.rotation),
            progress: status.progress,
        }
    }
}
