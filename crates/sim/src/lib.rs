//! Simulations in virtual time, seeded and therefore repeatable.
//!
//! [`balance`] studies how the balancers of `towpath-route` do: the real table, the real choice and the real state of
//! endpoints, with instances and clients made of random numbers.
//! [`cluster`] runs whole clusters: the real managers, with cells and gateways that only talk, under faults.
//!
//! Must not: read a clock, or contain rules of its own about routing; those are what is studied.

pub mod balance;
pub mod cluster;
pub mod scenario;
