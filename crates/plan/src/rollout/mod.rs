//! Rollout of one group: which instances should exist, where, and which of them take requests.

mod input;
mod policy;
mod version;

pub use input::{GatewayView, GroupInput, GroupPlan, Life, Observed, PlanAction};
pub use policy::RolloutPolicy;
pub use version::{DEFAULT_MEMORY, find_version, memory_of, settings_digest};
