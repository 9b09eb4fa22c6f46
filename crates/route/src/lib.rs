//! Which instance gets a request: the routing table, lanes, tiers and balancing of `docs/` "routing", as pure code.
//!
//! Invariants:
//! - [`Table`] is immutable. [`Table::apply`] makes a new one that shares all that did not change; a change that cannot
//!   be used is refused by name while the rest (and its own older version) keeps serving.
//! - What a gateway learns about an endpoint at run time lives in [`EndpointState`], beside the table, keyed by instance
//!   and start, and survives every swap.
//! - Everything that runs per request ([`Table::find`], [`Table::lane`], [`Table::pick`], [`InFlight`]) neither
//!   allocates nor takes a lock.
//! - A request in one feature lane never reaches an endpoint of another.
//!
//! Must not: read a clock or randomness (times and random numbers are arguments), do I/O, or know of an async runtime or
//! an HTTP library. `now` is always nanoseconds of one monotonic clock of the process.

mod affinity;
mod app;
mod balance;
pub mod breaker;
mod budget;
mod calm;
mod change;
pub mod check;
mod edit;
mod eject;
mod endpoint;
mod entry;
mod explain;
mod hash;
mod header;
pub mod health;
mod host;
mod index;
mod inflight;
mod lane;
mod latency;
pub mod limit;
mod load;
mod net;
mod nodes;
mod path;
mod pick;
mod pool;
mod request;
mod routes;
mod rule;
mod rules;
mod source;
mod space;
mod status;
mod sticky;
mod table;
mod tag;
pub mod vars;
mod window;

pub use budget::RetryBudget;
pub use change::{Address, Change, EndpointSpec, Refused, ReportedLoad, Source};
pub use endpoint::{Endpoint, EndpointState};
pub use explain::Explained;
pub use header::header_passes;
pub use host::host_forms;
pub use inflight::{Finished, InFlight, Outcome};
pub use lane::{Asked, LaneChoice, LaneReason, LaneSource};
pub use net::Networks;
pub use nodes::{StaticNode, node_id, static_upstream};
pub use pick::{Draw, NoPick, Pick, TriedSet};
pub use request::RequestView;
pub use routes::{Route, route_key};
pub use rule::{Methods, Payload, RuleSpec};
pub use rules::Rule;
pub use status::Statuses;
pub use table::{Counts, Match, Table, matched_form};
pub use tag::Tag;

/// Nanoseconds in a millisecond.
pub(crate) const MS: u64 = 1_000_000;
