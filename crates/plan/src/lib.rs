//! Decisions of the control plane as pure functions: state in, new state and actions out.
//!
//! Invariants: no I/O, no clock, no randomness: time, ids and load are arguments, so that every decision can be replayed.
//! The functions are level-triggered: called again with the same state they decide the same, and nothing depends on
//! having seen every step in between.
//!
//! Must not: depend on tokio, on the bus, the store or any adapter.

pub mod placement;
pub mod ring;
pub mod rollout;
