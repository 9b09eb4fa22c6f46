//! Versioned bus messages and their subjects.
//!
//! Invariants: every payload is JSON `{"v": <version>, "m": "<name>", "b": <body>}`; a reader takes its own version and
//! the one before, ignores unknown fields, and refuses anything else by name. Golden fixtures in `fixtures/` hold one
//! example of each message; a change that breaks one needs a new version.
//!
//! Must not: do I/O, decide anything.

pub mod cell;
pub mod envelope;
pub mod gateway;
pub mod limits;
pub mod log;
pub mod manager;
pub mod protocol;
pub mod staging;
pub mod subject;

pub use envelope::{DecodeError, WireMessage, decode, decode_at, encode, encode_at};
