//! Rollout of one group: which instances should exist, where, and which of them take requests.
//!
//! The rules, in the order in which a plan applies them:
//! 1. The spec asks for a *target* version. Another target than before begins a rollout; it goes straight to the newest.
//! 2. Draining instances leave the set when all gateways have heard and no request is in flight, or time is over.
//! 3. Instances on lost cells leave the set as others take their places (a cell that returns stops what is not in it);
//!    where there is no place for others they stay in it, should their cell return.
//! 4. A target that was never good fails when one of its instances does. Then what was *good* before is wanted again, and
//!    the target is not tried any more until the spec asks for another.
//! 5. Too many or wrong instances are drained, but never so many that fewer than the wanted count take requests. One on a
//!    draining cell is wrong like one of another version: it goes when another one has taken its place.
//! 6. Missing ones are added, up to count + surge, and at a bounded rate.
//!
//! An instance counts as *serving* only when it is ready and every live gateway has heard so.

mod conclude;
mod drains;
mod grow;
mod input;
mod plan;
mod policy;
mod retire;
mod standing;
mod take_back;
mod verdict;
mod version;

pub use input::{GroupInput, GroupPlan, Life, Observed, PlanAction};
pub use plan::plan_group;
pub use policy::RolloutPolicy;
pub use version::{DEFAULT_MEMORY, aim_of, find_version, memory_of, settings_digest, stays};

#[cfg(test)]
mod tests;
