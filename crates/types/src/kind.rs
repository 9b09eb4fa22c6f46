//! The kinds of resources.

use serde::{Deserialize, Serialize};

/// What a resource is. The text form is the one in the store and in API paths (singular).
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A tenant; name: org; spec [`crate::identity::OrgSpec`].
    Org,
    /// An environment class; name: space; spec [`crate::spec::SpaceSpec`].
    Space,
    /// A lane; name: lane; spec [`crate::spec::LaneSpec`].
    Lane,
    /// An app; name: app; spec [`crate::spec::AppSpec`].
    App,
    /// A group; name: `app:lane:region`; spec [`crate::spec::GroupSpec`].
    Group,
    /// A release; name: `app:<release digest hex>`; spec [`crate::spec::ReleaseSpec`].
    Release,
    /// A route; name: `host/path`, in no space, so that two spaces cannot claim one address; spec [`crate::spec::RouteSpec`].
    Route,
    /// An API token, of an org or the platform; name: chosen; spec [`crate::spec::TokenSpec`].
    Token,
    /// What is wanted of a cell; name: its id; spec [`crate::cell::CellSpec`].
    Cell,
    /// A long operation; name: its id; spec [`crate::spec::OperationSpec`].
    Operation,
    /// A person; name: chosen; spec [`crate::identity::UserSpec`].
    User,
    /// A user's role in an org; name: the user's; spec [`crate::identity::MemberSpec`].
    Member,
    /// A login; name: hash of its token; spec [`crate::identity::SessionSpec`].
    Session,
    /// What secrets are sealed with; name: `keyring`, the only one; spec [`crate::secret::KeyringSpec`].
    Keyring,
    /// A resource of the dynamic gateway; name: `routes/<id>`, of the platform; spec: the document, as `towpath-resources` reads it.
    Resource,
    /// An entry of the audit log; name: sorts the newest first; spec [`crate::identity::AuditSpec`]. Stays the last kind: it
    /// is not kept in memory, and loading stops before it.
    Audit,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 16] = [
        Kind::Org,
        Kind::Space,
        Kind::Lane,
        Kind::App,
        Kind::Group,
        Kind::Release,
        Kind::Route,
        Kind::Token,
        Kind::Cell,
        Kind::Operation,
        Kind::User,
        Kind::Member,
        Kind::Session,
        Kind::Keyring,
        Kind::Resource,
        Kind::Audit,
    ];

    /// The stable text form.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Org => "org",
            Kind::Space => "space",
            Kind::Lane => "lane",
            Kind::App => "app",
            Kind::Group => "group",
            Kind::Release => "release",
            Kind::Route => "route",
            Kind::Token => "token",
            Kind::Cell => "cell",
            Kind::Operation => "operation",
            Kind::User => "user",
            Kind::Member => "member",
            Kind::Session => "session",
            Kind::Keyring => "keyring",
            Kind::Resource => "resource",
            Kind::Audit => "audit",
        }
    }
}

impl std::str::FromStr for Kind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| format!("no kind {text:?}"))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
