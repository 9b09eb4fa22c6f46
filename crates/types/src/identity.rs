//! Who there is, and what they may use: orgs with quotas, users, members, sessions, and the audit log.

use crate::spec::Role;
use crate::{ByteSize, OperationId, OrgName, Revision, SpaceName, UserName};
use serde::{Deserialize, Serialize};

/// Spec of an org.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub struct OrgSpec {
    /// What its spaces may use together.
    #[serde(skip_serializing_if = "Quota::is_unlimited")]
    pub quota: Quota,
}

/// The most that an org may want; what is absent is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    /// Memory limits of all wanted instances together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// Wanted instances.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<u64>,
    /// Routes, automatic ones too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routes: Option<u64>,
    /// Lanes beside the base lanes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lanes: Option<u64>,
}

impl Quota {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }
}

/// Spec of a user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct UserSpec {
    /// Argon2id hash of the password in PHC text form; `None` = cannot log in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// May do everything on the platform.
    pub operator: bool,
    /// May do nothing for the time being.
    pub disabled: bool,
    /// Sessions of earlier epochs are void: it rises with every new password.
    pub epoch: u64,
}

impl std::fmt::Debug for UserSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserSpec")
            .field("password", &self.password.is_some())
            .field("operator", &self.operator)
            .field("disabled", &self.disabled)
            .field("epoch", &self.epoch)
            .finish()
    }
}

/// Spec of a membership; its key names org and user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemberSpec {
    /// Id of the user's record: a later user of the same name is another one.
    pub user: String,
    /// Owner, developer or viewer.
    pub role: Role,
}

/// Spec of a session; its key names the hash of its token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionSpec {
    /// Whose.
    pub user: UserName,
    /// Id of the user's record.
    pub id: String,
    /// The user's epoch at the login.
    pub epoch: u64,
    /// End, store clock, milliseconds since 1970.
    pub expires_ms: u64,
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Actor {
    /// A user who logged in.
    User {
        /// The name.
        name: String,
    },
    /// A token.
    Token {
        /// Its name.
        name: String,
        /// Its org; absent = the platform's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        org: Option<OrgName>,
    },
}

/// One field that a change set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AuditField {
    /// Path in the resource, for example `limits.memory`.
    pub field: String,
    /// Value before; `null` = none. Secrets are shown as `(secret)`.
    #[schema(value_type = Object)]
    pub from: serde_json::Value,
    /// Value after; `null` = none.
    #[schema(value_type = Object)]
    pub to: serde_json::Value,
}

/// One change, as the audit log keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditSpec {
    /// Who.
    pub by: Actor,
    /// What was done, for example `group.change`.
    pub action: String,
    /// Org of the resource, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub org: Option<OrgName>,
    /// Space of the resource, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceName>,
    /// Kind of the resource.
    pub kind: String,
    /// Name of the resource.
    pub name: String,
    /// Revision of the resource before; absent = it was not there. The one after is the record's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Revision>,
    /// What became different; of an operation: what was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<AuditField>,
    /// The operation that carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<OperationId>,
    /// Id of the request.
    pub request: String,
    /// Address of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}
