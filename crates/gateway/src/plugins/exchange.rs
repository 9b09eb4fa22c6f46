//! What stands between a request and its upstream: a cache. It sees the upstream's own answer before anything is changed in it,
//! and may give another one in its place.

use super::{Answer, BodyFilter, Running};
use crate::cache::disk::FileBody;
use http::{HeaderMap, StatusCode};

/// An answer's head, as the upstream sent it.
pub(crate) struct UpstreamHead<'a> {
    pub(crate) status: StatusCode,
    pub(crate) headers: &'a HeaderMap,
    /// The request's headers, as they went out.
    pub(crate) request: &'a HeaderMap,
    /// Whether a body may follow.
    pub(crate) may_have_body: bool,
}

/// What becomes of it.
pub(crate) enum Verdict {
    /// It goes on as it is.
    Pass,
    /// Its body passes through this first.
    Through(Box<dyn BodyFilter>),
    /// The client gets this instead.
    Instead(Box<Given>),
}

/// An answer that is not the upstream's.
pub(crate) struct Given {
    pub(crate) answer: Answer,
    /// Its body, if that is in a file.
    pub(crate) file: Option<Box<FileBody>>,
}

/// See the module.
pub(crate) trait Exchange {
    /// An upstream has answered.
    fn answered(self: Box<Self>, head: &UpstreamHead<'_>, running: &mut Running) -> Verdict;

    /// None has, and none will.
    fn failed(self: Box<Self>, running: &mut Running) -> Option<Given>;
}
