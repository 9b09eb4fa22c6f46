//! Between managers.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use towpath_types::resource::Key;
use towpath_types::{Digest, Incarnation, ManagerId, OperationId, Revision};

/// What a manager tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Membership {
    /// It has registered.
    Joined,
    /// It hands over: it owns nothing from now on, and will remove its row.
    Leaving,
    /// It has removed its row.
    Left,
    /// It was silent for too long, and another evicted it.
    Evicted,
}

/// A manager joined or left: the others look at the table now instead of a little later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerEvent {
    /// Who.
    pub manager: ManagerId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// What happened.
    pub event: Membership,
}

/// To the owner of a resource: look at it. Says nothing about what changed, so losing or doubling it does no harm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activate {
    /// Epoch of the sender.
    pub epoch: u64,
    /// The resource.
    pub key: Key,
    /// How often it was forwarded already; at most [`MAX_HOPS`].
    pub hops: u8,
}

/// How often a message that found the wrong owner is forwarded.
pub const MAX_HOPS: u8 = 2;

/// What a manager says of itself, every two seconds. For people, for the eyes of other
/// managers, and for cells that look for one which serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerReport {
    /// Who.
    pub manager: ManagerId,
    /// Which start of it.
    pub incarnation: Incarnation,
    /// Epoch that it knows.
    pub epoch: u64,
    /// Its memory is complete up to here.
    pub revision: Revision,
    /// Revisions that the store has beyond that.
    pub lag: u64,
    /// Work that waits: groups to look at, and changes.
    pub queue: u64,
    /// Operations that it runs.
    pub operations: u64,
    /// Managers in its copy of the ring.
    pub ring: u64,
    /// URL at which others reach its API: cells get files there when those that their settings name do not serve. Empty: it does not say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
}

/// A request to the API, on its way to the owner of what it changes (`towpath.svc.api.<manager>`), or from a client
/// that speaks the bus (`towpath.api`). The answer is an [`ApiReply`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiCall {
    /// Epoch that the sender knows; a manager that joined later than that does not take it.
    pub epoch: u64,
    /// Follows the request through all logs.
    pub correlation: String,
    /// W3C trace context, if the client sent one.
    #[serde(default)]
    pub trace: Option<String>,
    /// Time that is left, milliseconds; nothing is begun after it.
    pub deadline_ms: u64,
    /// How often it was forwarded already; at most [`MAX_HOPS`].
    pub hops: u8,
    /// The manager that sends it on. Since version 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<ManagerId>,
    /// HTTP method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; JSON as text.
    pub body: String,
    /// The body, sealed with the managers' key, when it may hold secrets; `body` is empty then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed: Option<towpath_types::secret::Sealed>,
}

/// Answer to an [`ApiCall`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum ApiReply {
    /// The answer for the client.
    Answer {
        /// HTTP status.
        status: u16,
        /// Headers.
        headers: Vec<(String, String)>,
        /// Body.
        body: String,
    },
    /// Nothing was done: the receiver does not own it, or owns nothing at the moment.
    NotMine {
        /// Epoch that the receiver knows.
        epoch: u64,
    },
}

/// To the manager that runs an operation (`towpath.svc.operation.<manager>`): what has it told? The answer is an
/// [`OperationPage`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationQuery {
    /// Which.
    pub operation: OperationId,
    /// Events behind this number.
    pub after: u64,
    /// When there are none yet: wait for the next one so long, milliseconds.
    pub wait_ms: u64,
}

/// Something that is counted about logins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginCounter {
    /// Wrong passwords for a user.
    WrongByUser,
    /// Wrong passwords from an address.
    WrongBySource,
    /// Right passwords of a user.
    RightByUser,
}

/// What to do with a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginAct {
    /// Count one more.
    Note,
    /// Say whether one more would be too many.
    Look,
    /// Count one less: it was right.
    Forgive,
}

/// To the manager that keeps a counter of logins (`towpath.svc.login.<manager>`). The answer is a [`LoginVerdict`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginCount {
    /// Which.
    pub counter: LoginCounter,
    /// Of whom: the hash of a user's name or of an address.
    pub key: Digest,
    /// What to do.
    pub act: LoginAct,
}

/// What a counter says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginVerdict {
    /// It is one too many: come back after so many milliseconds.
    #[serde(default)]
    pub pause_ms: Option<u64>,
}

/// Some of what an operation told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationPage {
    /// Whether the receiver runs it, or ran it a moment ago.
    pub known: bool,
    /// Events in order.
    pub events: Vec<OperationEvent>,
    /// Whether these are the last ones.
    pub ended: bool,
    /// Its status now, as clients see it.
    pub status: serde_json::Value,
}

/// One event of an operation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OperationEvent {
    /// Number.
    pub number: u64,
    /// Name of the server-sent event.
    pub name: String,
    /// Its data.
    pub data: serde_json::Value,
}

impl WireMessage for ManagerReport {
    const NAME: &'static str = "manager.report";
}
impl WireMessage for ApiCall {
    const NAME: &'static str = "manager.api_call";
    const VERSION: u16 = 2;
    const SINCE: u16 = 2;

    fn to_version_before(&self) -> Option<Self> {
        Some(Self { from: None, ..self.clone() })
    }
}
impl WireMessage for ApiReply {
    const NAME: &'static str = "manager.api_reply";
}
impl WireMessage for OperationQuery {
    const NAME: &'static str = "manager.operation_query";
}
impl WireMessage for OperationPage {
    const NAME: &'static str = "manager.operation_page";
}
impl WireMessage for LoginCount {
    const NAME: &'static str = "manager.login_count";
}
impl WireMessage for LoginVerdict {
    const NAME: &'static str = "manager.login_verdict";
}
impl WireMessage for ManagerEvent {
    const NAME: &'static str = "manager.event";
}
impl WireMessage for Activate {
    const NAME: &'static str = "manager.activate";
}
