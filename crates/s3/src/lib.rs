//! What a gateway knows of Amazon's S3 protocol: which operation a request is, who signed it, what its body says about itself,
//! how refusals are worded, and in which order requests wait.
//!
//! Invariants: everything here is a function of its arguments (time, secrets and heads are arguments); whatever bytes come from
//! outside, the end is a value or an error, in memory that is bounded by what is said here.
//!
//! It must not open connections, read clocks or keep tasks: that is the gateway's part.

pub mod admission;
pub mod checksum;
pub mod chunked;
pub mod encode;
pub mod error;
pub mod operation;
pub mod pattern;
pub mod recognise;
pub mod sigv4;

pub use error::{ErrorCode, S3Error};
pub use operation::{Group, Operation};
pub use recognise::{Seen, Unclear, recognise};
