//! From a token to who sent it and what they hold; and from a request to the resource that it is about.

use super::ApiState;
use super::access::{Grant, Reach, Scope, Target};
use super::auth::Caller;
use super::problem::Outcome;
use super::query::{first_org, first_space};
use crate::core::{Core, keys};
use http::Uri;
use std::str::FromStr;
use subtle::ConstantTimeEq;
use towpath_store::Query;
use towpath_types::identity::{Actor, MemberSpec, SessionSpec, UserSpec};
use towpath_types::spec::{OperationSpec, Role, TokenSpec};
use towpath_types::{Digest, Kind, OperationId, OrgName, Record, SpaceRef, UserName};

impl ApiState {
    /// Who has this token; `None` = nobody, or no more.
    pub(crate) async fn authenticate(&self, presented: Digest) -> Outcome<Option<Caller>> {
        let core = &self.core;
        // Tokens come from memory, so that reads go on without a store. One that was made a moment ago by another manager
        // may not have arrived here yet: then the store is asked.
        if let Some(record) = core.cache.token(&presented) {
            return Ok(of_token(core, &record, &presented));
        }
        let session = keys::session_key(presented);
        if let Some(record) = core.cache.get(&session) {
            return Ok(of_session(core, &record, presented));
        }
        if core.cache.revision() == *core.store.watch().borrow() {
            return Ok(None);
        }
        if let Some(record) = core.store.get(&session).await? {
            core.wait_cache(record.revision, std::time::Duration::from_secs(2)).await;
            return Ok(of_session(core, &record, presented));
        }
        let page = core.store.list(&Query { kind: Some(Kind::Token), ..Query::default() }).await?;
        Ok(page.records.iter().find_map(|record| of_token(core, record, &presented)))
    }

    /// The resource of a request.
    pub(crate) async fn target_of(&self, scope: Scope, pattern: &str, uri: &Uri) -> Outcome<Target> {
        let query = |name: &str| {
            let pairs = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
            pairs.into_iter().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
        };
        let org = || read("org", query("org").as_deref()).map(|org| org.unwrap_or_else(first_org));
        let part = |name| segment(pattern, uri.path(), name);
        Ok(match scope {
            Scope::Platform => Target::Platform,
            Scope::Org => Target::Org(org()?),
            Scope::Space => {
                let space = read("space", query("space").as_deref())?.unwrap_or_else(first_space);
                Target::Space(SpaceRef { org: org()?, space })
            }
            Scope::OrgPath => {
                part("{org}").and_then(|text| text.parse().ok()).map_or(Target::Unknown, Target::Org)
            }
            Scope::Operation => match part("{id}").and_then(|text| text.parse::<OperationId>().ok()) {
                Some(id) => self.space_of(id).await?.map_or(Target::Unknown, Target::Space),
                None => Target::Unknown,
            },
        })
    }

    /// The space that an operation works in.
    async fn space_of(&self, id: OperationId) -> Outcome<Option<SpaceRef>> {
        let key = keys::operation_key(id);
        let space = |record: &Record| {
            let spec = record.spec::<OperationSpec>().ok()?;
            // One of the platform itself is for operators.
            (spec.verb != crate::operations::ROTATION).then(|| spec.app.space_ref())
        };
        if let Some(record) = self.core.cache.get(&key) {
            return Ok(space(&record));
        }
        Ok(self.core.store.get(&key).await?.and_then(|record| space(&record)))
    }
}

fn read<T: FromStr>(field: &str, text: Option<&str>) -> Outcome<Option<T>>
where
    T::Err: std::fmt::Display,
{
    text.map(|text| super::query::name(field, text)).transpose()
}

/// The segment of a path that stands where the pattern has this name.
fn segment<'a>(pattern: &str, path: &'a str, name: &str) -> Option<&'a str> {
    let place = pattern.split('/').position(|segment| segment == name)?;
    path.split('/').nth(place)
}

/// The org and space in which a token is of use; `None` = the whole platform.
pub(crate) fn place_of(record: &Record, spec: &TokenSpec) -> Option<OrgName> {
    match spec.role {
        Role::Operator | Role::Cell | Role::Gateway => None,
        // One of an earlier version, when there was no other org.
        _ => Some(spec.org.clone().or_else(|| record.key.org.clone()).unwrap_or_else(first_org)),
    }
}

fn of_token(core: &Core, record: &Record, presented: &Digest) -> Option<Caller> {
    let spec: TokenSpec = record.spec().ok()?;
    let same: bool = spec.hash.as_bytes().ct_eq(presented.as_bytes()).into();
    if !same || spec.expires_ms.is_some_and(|end| end <= core.now_ms()) {
        return None;
    }
    let org = place_of(record, &spec);
    let reach = match (spec.role, &org) {
        (Role::Operator, _) => Reach::Operator,
        (Role::Cell, _) => Reach::Cell,
        // Of use on the bus alone.
        (Role::Gateway, _) => Reach::Orgs(Vec::new()),
        (role, Some(org)) => Reach::Orgs(vec![Grant { org: org.clone(), space: spec.space.clone(), role }]),
        (_, None) => return None,
    };
    let name = record.key.name.clone();
    Some(Caller {
        actor: Actor::Token { name: name.clone(), org: record.key.org.clone() },
        name,
        reach,
        role: spec.role,
        session: None,
        expires_ms: spec.expires_ms,
    })
}

fn of_session(core: &Core, record: &Record, presented: Digest) -> Option<Caller> {
    let session: SessionSpec = record.spec().ok()?;
    let user = core.cache.get(&keys::user_key(&session.user))?;
    let spec: UserSpec = user.spec().ok()?;
    let void = user.id != session.id || spec.epoch != session.epoch || spec.disabled;
    if void || session.expires_ms <= core.now_ms() {
        return None;
    }
    let reach = match spec.operator {
        true => Reach::Operator,
        false => Reach::Orgs(grants_of(core, &session.user, &user.id)),
    };
    Some(Caller {
        name: session.user.to_string(),
        actor: Actor::User { name: session.user.to_string() },
        role: if spec.operator { Role::Operator } else { Role::Viewer },
        reach,
        session: Some(presented),
        expires_ms: Some(session.expires_ms),
    })
}

/// The roles of a user.
pub(crate) fn grants_of(core: &Core, user: &UserName, id: &str) -> Vec<Grant> {
    let members = core.cache.orgs_of(user);
    let grant = |record: &std::sync::Arc<Record>| {
        let spec: MemberSpec = record.spec().ok()?;
        let org = record.key.org.clone()?;
        (spec.user == id).then_some(Grant { org, space: None, role: spec.role })
    };
    members.iter().filter_map(grant).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_found_by_the_pattern() {
        let pattern = "/v1/orgs/{org}/members/{user}";
        assert_eq!(segment(pattern, "/v1/orgs/acme/members/ann", "{org}"), Some("acme"));
        assert_eq!(segment(pattern, "/v1/orgs/acme/members/ann", "{user}"), Some("ann"));
        assert_eq!(segment(pattern, "/v1/orgs/acme/members/ann", "{id}"), None);
    }
}
