//! Plugins: what routes, services, consumers and global rules do to requests beside forwarding them.
//!
//! A request passes these phases: `rewrite` → `access` → `before_proxy` → (attempts) → `response_head` → `response_body` →
//! `log`. In the first three a plugin says *go on*, *answer this*, or *wait for this future*; an answer passes the response
//! phases like an upstream's. Global rules run first in each phase, then the route's program, which is the merged
//! configuration of consumer, consumer group, route, plugin configuration and service, ordered by priority.
//!
//! Invariants: what a plugin holds for a request (a slot of a limiter) is a guard in the request's [`Running`], given back by its
//! `Drop` on every exit; what outlives a configuration (counters) is found by resource and plugin in [`states::States`];
//! requests without plugins pay for the look at one `Option`.

pub(crate) mod answer;
pub(crate) mod exchange;
pub(crate) mod filter;
pub(crate) mod make;
pub(crate) mod merges;
pub(crate) mod phase;
pub(crate) mod program;
pub(crate) mod run;
pub(crate) mod running;
pub(crate) mod shares;
pub(crate) mod states;
pub(crate) mod vars;
mod work;

pub(crate) use answer::Answer;
pub(crate) use filter::BodyFilter;
pub(crate) use phase::{Phase, Phases};
pub(crate) use running::Running;
pub(crate) use work::entry::Form as EntryForm;

use crate::request::record::Record;
use crate::upstream::request_body::ClientBody;
use http::{HeaderMap, StatusCode};
use std::any::Any;
use std::pin::Pin;

/// What a phase comes to.
pub(crate) enum Step {
    /// Go on.
    Next,
    /// Answer this instead of forwarding the request.
    Answer(Box<Answer>),
    /// Wait, then do this.
    Wait(Pin<Box<dyn Future<Output = Resume>>>),
}

/// What follows a wait.
pub(crate) type Resume = Box<dyn FnOnce(&mut Request<'_>) -> Step>;

impl Step {
    /// An answer.
    pub(crate) fn answer(answer: Answer) -> Self {
        Self::Answer(Box::new(answer))
    }

    /// Waits for a moment, then goes on.
    pub(crate) fn pause(time: std::time::Duration) -> Self {
        Self::Wait(Box::pin(async move {
            tokio::time::sleep(time).await;
            Box::new(|_: &mut Request<'_>| Step::Next) as Resume
        }))
    }
}

/// A request on its way to an upstream, as plugins see and change it.
pub(crate) struct Request<'a> {
    /// What is known of it.
    pub(crate) record: &'a mut Record,
    /// Its headers; what is changed here is what goes out.
    pub(crate) headers: &'a mut HeaderMap,
    /// Its body, while nobody has read it.
    pub(crate) body: &'a mut Option<ClientBody>,
}

impl Request<'_> {
    /// What plugins keep for this request.
    pub(crate) fn running(&mut self) -> &mut Running {
        self.record.running.get_or_insert_default()
    }

    /// Keeps a guard until the request has ended.
    pub(crate) fn hold(&mut self, guard: impl Any) {
        self.running().guards.push(Box::new(guard));
    }

    /// The variables of the request.
    pub(crate) fn vars(&self) -> vars::Vars<'_> {
        vars::Vars { record: self.record, headers: self.headers, reply: None }
    }
}

/// A response on its way to the client, an upstream's or a plugin's.
pub(crate) struct Reply<'a> {
    /// What is known of the request.
    pub(crate) record: &'a mut Record,
    /// Headers of the request as they went out.
    pub(crate) request_headers: &'a HeaderMap,
    /// Its status.
    pub(crate) status: &'a mut StatusCode,
    /// Its headers.
    pub(crate) headers: &'a mut HeaderMap,
}

impl Reply<'_> {
    /// The variables of request and response.
    pub(crate) fn vars(&self) -> vars::Vars<'_> {
        vars::Vars { record: self.record, headers: self.request_headers, reply: Some(self.headers) }
    }
}

/// One plugin with one configuration. What it does not do in a phase it leaves to these defaults, and to [`Plugin::phases`].
pub(crate) trait Plugin: Send + Sync + 'static {
    /// The phases in which it does something.
    fn phases(&self) -> Phases;

    /// First: who is it, and what does it want.
    fn rewrite(&self, _request: &mut Request<'_>) -> Step {
        Step::Next
    }

    /// Is it permitted.
    fn access(&self, _request: &mut Request<'_>) -> Step {
        Step::Next
    }

    /// Just before an endpoint is chosen.
    fn before_proxy(&self, _request: &mut Request<'_>) -> Step {
        Step::Next
    }

    /// A response head is there.
    fn response_head(&self, _reply: &mut Reply<'_>) {}

    /// What its body passes through, if anything. A filter may change the body's length: the head says no length then.
    fn response_body(&self, _reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        None
    }

    /// The request has ended.
    fn log(&self, _vars: &vars::Vars<'_>) {}
}
