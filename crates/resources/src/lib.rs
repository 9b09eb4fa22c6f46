//! The resources of the dynamic gateway: what routes, services, upstreams, consumers and the configurations of plugins may say, in
//! the public format of Apache APISIX.
//!
//! Gateway, manager and command line judge a document here, with the same words. A document becomes a typed [`Document`] by
//! [`read`], which reports every fault with the path of its field; a [`Set`] of documents resolves each route with its
//! service, plugin configuration and upstream, and tells what a change made different.
//!
//! Invariants: the published JSON Schema of a kind is derived from the type that is read, and the check walks that
//! schema; what is unknown is refused by name; a document that did not change, and whose references did not, is not
//! resolved again.
//!
//! Must not: touch files, sockets or the clock, or know how a plugin does its work.

mod certificate;
mod document;
mod fault;
mod file;
mod kind;
pub mod model;
mod patch;
pub mod plugins;
mod resolved;
pub mod schema;
mod secrets;
mod set;

pub use certificate::{Validity, validity_of};
pub use document::{Body, Document, finder, names, read, refused_field, refused_fields, schema_of, unserved};
pub use fault::Fault;
pub use file::{FileFault, Format, read_file};
pub use kind::{Id, Key, Kind};
pub use patch::patched;
pub use resolved::{
    Merged, PathPattern, PluginUse, Resolved, ResolvedConsumer, ResolvedRule, ResolvedStream,
    ResolvedUpstream, Serves, Source, Target, UpstreamKey, merge,
};
pub use secrets::{each_secret, has_secret, is_sealed, sealed_text, sealed_value};
pub use set::{Changed, Refused, Set};
