//! The words of Towpath as types: names, ids, resources, load, limits, error codes.
//!
//! Invariants: every name and unit is validated when it is made, so code that holds one need not check it again.
//! This crate does no I/O, reads no clock and no randomness (ids are minted by the caller's `now`).

pub mod cell;
pub mod digest;
pub mod error_code;
pub mod explained;
pub mod health;
pub mod id;
pub mod identity;
pub mod kind;
pub mod lane;
pub mod load;
pub mod name;
pub mod net_block;
pub mod place;
pub mod resource;
pub mod secret;
pub mod spec;
pub mod units;
pub mod upstream;

pub use digest::Digest;
pub use error_code::ErrorCode;
pub use id::{CellId, GatewayId, GroupId, Incarnation, InstanceId, ManagerId, OperationId};
pub use kind::Kind;
pub use name::{AppName, AppRef, LaneName, NameError, OrgName, SpaceName, SpaceRef, UserName};
pub use net_block::{NetBlock, NetBlockError};
pub use place::Place;
pub use resource::{Generation, Record, Revision};
pub use units::{ByteSize, Millis};
