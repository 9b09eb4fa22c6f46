//! Keys of the stored kinds, in one place.

use towpath_types::resource::Key;
use towpath_types::{
    AppName, AppRef, CellId, Digest, Kind, LaneName, OperationId, OrgName, SpaceRef, UserName,
};

/// A group: the copies of an app in a lane of a region (empty = the only region).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupRef {
    /// The app.
    pub app: AppRef,
    /// The lane.
    pub lane: LaneName,
    /// The region; empty = the only one.
    pub region: String,
}

impl GroupRef {
    /// The group of `app` in `lane`, in the only region.
    pub fn new(app: AppRef, lane: LaneName) -> Self {
        Self { app, lane, region: String::new() }
    }

    /// Its key.
    pub fn key(&self) -> Key {
        group_key(&self.app, &self.lane, &self.region)
    }

    /// The group that a key names; `None` for keys of other kinds and malformed names.
    pub fn of_key(key: &Key) -> Option<Self> {
        let (Kind::Group, Some(org), Some(space)) = (key.kind, &key.org, &key.space) else { return None };
        let mut parts = key.name.splitn(3, ':');
        let app = AppName::new(parts.next()?).ok()?;
        let lane = LaneName::new(parts.next()?).ok()?;
        let region = parts.next().unwrap_or_default().to_owned();
        Some(Self { app: AppRef { org: org.clone(), space: space.clone(), app }, lane, region })
    }
}

impl std::fmt::Display for GroupRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.app, self.lane)?;
        if self.region.is_empty() { Ok(()) } else { write!(f, ":{}", self.region) }
    }
}

fn in_space(kind: Kind, space: &SpaceRef, name: String) -> Key {
    Key { kind, org: Some(space.org.clone()), space: Some(space.space.clone()), name }
}

fn above(kind: Kind, name: String) -> Key {
    Key { kind, org: None, space: None, name }
}

/// Key of the keyring, of which there is one.
pub fn keyring_key() -> Key {
    above(Kind::Keyring, "keyring".to_owned())
}

/// Key of an org.
pub fn org_key(org: &OrgName) -> Key {
    above(Kind::Org, org.to_string())
}

/// Key of a space.
pub fn space_key(space: &SpaceRef) -> Key {
    Key { kind: Kind::Space, org: Some(space.org.clone()), space: None, name: space.space.to_string() }
}

/// Key of a lane.
pub fn lane_key(space: &SpaceRef, lane: &LaneName) -> Key {
    in_space(Kind::Lane, space, lane.to_string())
}

/// Key of an app.
pub fn app_key(app: &AppRef) -> Key {
    in_space(Kind::App, &app.space_ref(), app.app.to_string())
}

/// Key of a group: named `app:lane:region`.
pub fn group_key(app: &AppRef, lane: &LaneName, region: &str) -> Key {
    in_space(Kind::Group, &app.space_ref(), format!("{}:{lane}:{region}", app.app))
}

/// Key of a release: named `app:<hex>`.
pub fn release_key(app: &AppRef, release: Digest) -> Key {
    in_space(Kind::Release, &app.space_ref(), format!("{}:{}", app.app, release.hex()))
}

/// Key of a route: named `host/path`, in no space. `path` begins with `/`.
pub fn route_key(host: &str, path: &str) -> Key {
    above(Kind::Route, format!("{host}{path}"))
}

/// Key of one of the platform's tokens.
pub fn token_key(name: &str) -> Key {
    above(Kind::Token, name.to_owned())
}

/// Key of one of an org's tokens.
pub fn org_token_key(org: &OrgName, name: &str) -> Key {
    Key { kind: Kind::Token, org: Some(org.clone()), space: None, name: name.to_owned() }
}

/// Key of the keys of gateways.
pub fn gateway_keys_key() -> Key {
    above(Kind::Keyring, "gateways".to_owned())
}

/// Key of a user.
pub fn user_key(user: &UserName) -> Key {
    above(Kind::User, user.to_string())
}

/// Key of a user's role in an org.
pub fn member_key(org: &OrgName, user: &UserName) -> Key {
    Key { kind: Kind::Member, org: Some(org.clone()), space: None, name: user.to_string() }
}

/// Key of a session, by the hash of its token.
pub fn session_key(token: Digest) -> Key {
    above(Kind::Session, token.hex())
}

/// Key of a resource of the dynamic gateway: named `routes/<id>`.
pub fn resource_key(resource: &towpath_resources::Key) -> Key {
    resource_name(format!("{}/{}", resource.kind, resource.id))
}

/// Key of the resource of this name.
pub fn resource_name(name: String) -> Key {
    above(Kind::Resource, name)
}

/// Key of what is wanted of a cell.
pub fn cell_key(cell: CellId) -> Key {
    above(Kind::Cell, cell.to_string())
}

/// Key of an operation.
pub fn operation_key(operation: OperationId) -> Key {
    above(Kind::Operation, operation.to_string())
}
