//! Towards instances: connections, the pool of them, and one attempt of a request.
//!
//! HTTP/1.1 has a codec of our own here, HTTP/2 is hyper's (see ADRs 0030 and 0036): a request head is written from the client's
//! header map without taking it apart, so that another attempt can send it again; how many bytes went out is known
//! exactly; and no task or channel stands between a client's connection and its upstream connection.

mod awaited;
pub(crate) mod checked_body;
pub(crate) mod fault;
pub(crate) mod h1;
pub(crate) mod h2;
mod opening;
pub(crate) mod pool;
pub(crate) mod request_body;
pub(crate) mod stream;
mod trial;

pub(crate) use fault::{AttemptFault, BodyFault, Resend};
