//! Between managers.

use crate::WireMessage;
use serde::{Deserialize, Serialize};
use towpath_types::resource::Key;
use towpath_types::{Incarnation, ManagerId};

/// What a manager tells of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Membership {
    /// It has registered.
    Joined,
    /// It has removed its row.
    Left,
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

impl WireMessage for ManagerEvent {
    const NAME: &'static str = "manager.event";
}
impl WireMessage for Activate {
    const NAME: &'static str = "manager.activate";
}
