//! Changes of resources: checked as gateways check them, with what they refer to in place.

use super::answer::{Answered, Failed, item};
use super::find::{Query, key_of};
use crate::api::ApiState;
use crate::api::problem::{Outcome, Problem};
use crate::api::writing::{Conditions, first};
use crate::core::keys;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use towpath_resources::{Id, Key, Kind, has_secret, names, patched, read};
use towpath_store::{Expect, Write};
use towpath_types::{ErrorCode, Record};

impl ApiState {
    /// Makes or replaces a resource.
    pub(super) async fn put_resource(
        &self,
        key: Key,
        body: Value,
        conditions: &Conditions,
        query: &Query,
    ) -> Answered<Response> {
        refuse_times(&body)?;
        let (plain, there) = self.checked(&key, &body).await?;
        let stored = keys::resource_key(&key);
        let mut created = false;
        let commit = self
            .change(&stored, conditions, |present, expect| {
                created = present.is_none();
                self.writes(&key, &plain, present, expect, &there)
            })
            .await?;
        self.written(&key, &commit, conditions.made(created), query).await
    }

    /// Makes a resource with a new id.
    pub(super) async fn post_resource(
        &self,
        kind: Kind,
        body: Value,
        conditions: &Conditions,
        query: &Query,
    ) -> Answered<Response> {
        let numbered = matches!(
            kind,
            Kind::Route
                | Kind::Service
                | Kind::Upstream
                | Kind::Ssl
                | Kind::StreamRoute
                | Kind::Proto
                | Kind::Listener
        );
        if !numbered {
            return Err(Failed::new(
                StatusCode::METHOD_NOT_ALLOWED,
                format!("not supported `POST` method for {}", kind.noun()),
            ));
        }
        if body.get("id").is_some() {
            let message =
                format!("wrong {} id, do not need it: POST makes one, PUT takes yours", kind.noun());
            return Err(Failed::new(StatusCode::BAD_REQUEST, message));
        }
        let id = Id::new(kind, &self.core.mint_record_id())
            .map_err(|fault| Problem::new(ErrorCode::Internal, fault.message))?;
        self.put_resource(Key::new(kind, id), body, conditions, query).await
    }

    /// Merges a patch into a resource, or replaces what stands at a path in it.
    pub(super) async fn patch_resource(
        &self,
        key: Key,
        path: &str,
        patch: &Value,
        conditions: &Conditions,
        query: &Query,
    ) -> Answered<Response> {
        if matches!(key.kind, Kind::Consumer | Kind::Credential | Kind::PluginMetadata) {
            let message = format!("not supported `PATCH` method for {}", key.kind.noun());
            return Err(Failed::new(StatusCode::METHOD_NOT_ALLOWED, message));
        }
        let stored = keys::resource_key(&key);
        // What a patch makes of a resource depends on what is there, and is checked before the change: again, if somebody was faster.
        for _ in 0..12 {
            let present =
                self.core.store.get(&stored).await.map_err(Problem::from)?.ok_or_else(Failed::not_found)?;
            let whole = patched(&present.spec, path, patch)
                .map_err(|fault| Failed::new(StatusCode::BAD_REQUEST, fault.to_string()))?;
            let (plain, there) = self.checked(&key, &whole).await?;
            let revision = present.revision;
            let mut moved = false;
            let commit = self
                .change(&stored, conditions, |present, expect| {
                    moved = false;
                    match present {
                        Some(record) if record.revision == revision => {
                            self.writes(&key, &plain, present, expect, &there)
                        }
                        _ => {
                            moved = true;
                            Err(Problem::conflict("it was changed at the same time; try again"))
                        }
                    }
                })
                .await;
            match commit {
                Err(_) if moved && !conditions.is_strict() => {}
                Err(problem) => return Err(problem.into()),
                Ok(commit) => return self.written(&key, &commit, false, query).await,
            }
        }
        Err(Problem::conflict("it kept being changed by others at the same time; try again").into())
    }

    /// Deletes a resource, and with a consumer its credentials.
    pub(super) async fn delete_resource(
        &self,
        key: Key,
        conditions: &Conditions,
        query: &Query,
    ) -> Answered<Response> {
        if !query.force
            && let Some(user) = self.user_of(&key).await?
        {
            let message = format!(
                "can not delete this {}, {} [{}] is still using it now; force=true deletes it nevertheless",
                key.kind.noun(),
                user.kind.noun(),
                user.id
            );
            return Err(Failed::new(StatusCode::BAD_REQUEST, message));
        }
        let credentials =
            if key.kind == Kind::Consumer { self.credentials_of(&key).await? } else { Vec::new() };
        let stored = keys::resource_key(&key);
        let commit = self
            .change(&stored, conditions, |present, expect| {
                present.ok_or_else(|| {
                    Problem::not_found(format!("{} {:?}", key.kind.noun(), key.id.as_str()))
                })?;
                let own = Write::Delete { key: stored.clone(), expect };
                let more = credentials
                    .iter()
                    .map(|record| Write::Delete { key: record.key.clone(), expect: Expect::Any });
                Ok(std::iter::once(own).chain(more).collect())
            })
            .await?;
        let response = Json(json!({"key": format!("/apisix/{key}"), "deleted": "1"})).into_response();
        Ok(self.changed(response, commit.revision, query.wait, query.wait_timeout).await)
    }

    /// Checks a document, and that what it refers to is there. Answers with its secrets opened, and with what must still be there when
    /// it is written.
    async fn checked(&self, key: &Key, body: &Value) -> Answered<(Value, Vec<Key>)> {
        let plain = self.core.opened_resource(key, body)?;
        let document = read(key.kind, &key.id, &plain).map_err(Failed::faults)?;
        // Before anything is stored, and not only when it is: what cannot be sealed is refused.
        if has_secret(key, &plain) {
            self.core.gateway_ring()?;
        }
        let references = document.references();
        let mut faults = Vec::new();
        for used in &references {
            if self.core.store.get(&keys::resource_key(used)).await.map_err(Problem::from)?.is_none() {
                if used.kind == Kind::Consumer {
                    return Err(Failed::new(StatusCode::NOT_FOUND, "consumer not found"));
                }
                faults.push(document.no_such(used));
            }
        }
        if faults.is_empty() { Ok((plain, references)) } else { Err(Failed::faults(faults)) }
    }

    fn writes(
        &self,
        key: &Key,
        plain: &Value,
        present: Option<&Record>,
        expect: Expect,
        there: &[Key],
    ) -> Outcome<Vec<Write>> {
        let body = self.core.sealed_resource(key, plain, present.map(|record| &record.spec))?;
        let created_index = self.core.cache.revision().0 + 1;
        let own = Write::Put {
            key: keys::resource_key(key),
            id: self.core.mint_record_id(),
            expect,
            spec: Some(stamped(key, body, present, self.core.now_ms() / 1000)),
            status: present.is_none().then(|| json!({"created_index": created_index})),
        };
        let used = there.iter().map(|used| Write::Put {
            key: keys::resource_key(used),
            id: self.core.mint_record_id(),
            expect: Expect::Present,
            spec: None,
            status: None,
        });
        Ok(std::iter::once(own).chain(used).collect())
    }

    async fn written(
        &self,
        key: &Key,
        commit: &towpath_store::Commit,
        created: bool,
        query: &Query,
    ) -> Answered<Response> {
        let record = first(commit)?;
        let status = if created { StatusCode::CREATED } else { StatusCode::OK };
        let response = (status, Json(item(key, record))).into_response();
        Ok(self.changed(response, commit.revision, query.wait, query.wait_timeout).await)
    }

    /// Somebody who refers to a resource. Credentials go with their consumer.
    async fn user_of(&self, key: &Key) -> Answered<Option<Key>> {
        let kinds: &[Kind] = match key.kind {
            Kind::Upstream => &[
                Kind::Route,
                Kind::Service,
                Kind::StreamRoute,
                Kind::PluginConfig,
                Kind::GlobalRule,
                Kind::Consumer,
                Kind::ConsumerGroup,
            ],
            Kind::Service => &[Kind::Route, Kind::StreamRoute],
            Kind::PluginConfig => &[Kind::Route],
            Kind::ConsumerGroup => &[Kind::Consumer],
            Kind::Ssl => &[
                Kind::Upstream,
                Kind::Route,
                Kind::Service,
                Kind::StreamRoute,
                Kind::PluginConfig,
                Kind::GlobalRule,
                Kind::Consumer,
                Kind::ConsumerGroup,
            ],
            _ => &[],
        };
        for kind in kinds {
            let found = self.resources_of(*kind).await?;
            if let Some(user) = found.iter().find(|record| names(&record.spec, key)) {
                return Ok(key_of(user));
            }
        }
        Ok(None)
    }

    async fn credentials_of(&self, consumer: &Key) -> Answered<Vec<Arc<Record>>> {
        let start = format!("{}/{}/credentials/", Kind::Credential, consumer.id);
        let mut found = self.resources_of(Kind::Credential).await?;
        found.retain(|record| record.key.name.starts_with(&start));
        Ok(found)
    }
}

/// The document with its id and times: made when it was first, changed now unless nothing of it is different.
fn stamped(key: &Key, mut body: Value, present: Option<&Record>, now: u64) -> Value {
    let Some(fields) = body.as_object_mut() else { return body };
    if !matches!(key.kind, Kind::Consumer) {
        let id = key.id.as_str();
        let own = if key.kind == Kind::Credential { id.rsplit('/').next().unwrap_or(id) } else { id };
        fields.insert("id".into(), own.into());
    }
    let before = |field: &str| present.and_then(|record| record.spec.get(field)).and_then(Value::as_u64);
    fields.insert("create_time".into(), before("create_time").unwrap_or(now).into());
    fields.insert("update_time".into(), before("update_time").unwrap_or(now).into());
    if present.is_none_or(|record| record.spec != body)
        && let Some(fields) = body.as_object_mut()
    {
        fields.insert("update_time".into(), now.into());
    }
    body
}

fn refuse_times(body: &Value) -> Answered<()> {
    match ["create_time", "update_time"].into_iter().find(|field| body.get(field).is_some()) {
        Some(field) => {
            Err(Failed::new(StatusCode::BAD_REQUEST, format!("the property is forbidden: {field}")))
        }
        None => Ok(()),
    }
}
