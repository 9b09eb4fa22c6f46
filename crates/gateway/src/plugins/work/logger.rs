//! What the loggers among the plugins share: what they tell of a request, its bodies included.

use super::delivery::{Batching, WAITING};
use super::entry::Form;
use crate::plugins::filter::{BodyFilter, Pieces};
use crate::plugins::vars::Vars;
use crate::plugins::{Phase, Phases, Reply, Request};
use crate::upstream::request_body::NotedBody;
use bytes::Bytes;
use serde_json::Value;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use towpath_resources::plugins::logs::{Batch, Format, Told};

/// See the module.
pub(super) struct Teller {
    told: Told,
    form: Form,
}

/// The beginning of a body.
#[derive(Default)]
pub(super) struct Beginning {
    pub(super) bytes: RefCell<Vec<u8>>,
}

/// Kept in the request.
struct RequestBody(NotedBody);
struct ResponseBody(Rc<Beginning>);

impl Teller {
    /// For a use of a logger, and what its metadata says.
    pub(super) fn new(told: &Told, format: Option<&Format>, extra: Option<&Format>) -> Self {
        let form = Form::of(told.log_format.as_ref().or(format), told.log_format_extra.as_ref().or(extra));
        Self { told: told.clone(), form }
    }

    /// The phases in which it acts.
    pub(super) fn phases(&self) -> Phases {
        let mut phases = Phases::of([Phase::Log]);
        if self.wants_request() {
            phases = phases.and(Phases::of([Phase::BeforeProxy]));
        }
        if self.wants_response() {
            phases = phases.and(Phases::of([Phase::ResponseBody]));
        }
        phases
    }

    fn wants_request(&self) -> bool {
        self.told.include_req_body || self.form.names_request_body()
    }

    fn wants_response(&self) -> bool {
        self.told.include_resp_body || self.form.names_response_body()
    }

    /// Notes the request's body while it goes by.
    pub(super) fn watch_request(&self, request: &mut Request<'_>) {
        if self.told.include_req_body_expr.as_ref().is_some_and(|only| !only.0.holds(&request.vars())) {
            return;
        }
        let Some(body) = request.body.take() else { return };
        let (body, noted) = body.noted(self.told.max_req_body_bytes);
        *request.body = Some(body);
        request.running().note(self, RequestBody(noted));
    }

    /// Notes the response's body while it goes by.
    pub(super) fn watch_response(&self, reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        if self.told.include_resp_body_expr.as_ref().is_some_and(|only| !only.0.holds(&reply.vars())) {
            return None;
        }
        let beginning = Rc::new(Beginning::default());
        reply.record.running.get_or_insert_default().note(self, ResponseBody(beginning.clone()));
        Some(Box::new(Noting { beginning, most: self.told.max_resp_body_bytes }))
    }

    /// The entry of a request.
    pub(super) fn entry(&self, vars: &Vars<'_>) -> Value {
        let running = vars.record.running.as_deref();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let request = running.and_then(|running| running.noted_ref::<Self, RequestBody>(self));
        let request = request.map(|body| body.0.with(text));
        let response = running.and_then(|running| running.noted_ref::<Self, ResponseBody>(self));
        let response = response.map(|body| text(&body.0.bytes.borrow()));
        self.form.entry(vars, request, response)
    }
}

struct Noting {
    beginning: Rc<Beginning>,
    most: usize,
}

impl BodyFilter for Noting {
    fn push(&mut self, piece: Bytes, out: &mut Pieces) {
        let mut noted = self.beginning.bytes.borrow_mut();
        let room = self.most.saturating_sub(noted.len());
        noted.extend_from_slice(piece.get(..room).unwrap_or(&piece));
        out.push_back(piece);
    }

    fn end(&mut self, _: &mut Pieces) {}

    fn keeps_length(&self) -> bool {
        true
    }
}

/// How a logger sends.
pub(super) fn batching(batch: &Batch, timeout: Duration, waiting: Option<usize>) -> Batching {
    Batching {
        most: batch.batch_max_size,
        quiet: Duration::from_secs(batch.inactive_timeout),
        longest: Duration::from_secs(batch.buffer_duration),
        retries: batch.max_retry_count,
        retry_delay: Duration::from_secs(batch.retry_delay),
        timeout,
        waiting: waiting.unwrap_or(WAITING),
    }
}

/// The metadata of a logger.
macro_rules! metadata {
    ($scope:expr, $name:literal, $variant:ident) => {
        match $scope.plugins.metadata.get($name) {
            Some(towpath_resources::plugins::PluginMetadata::$variant(metadata)) => Some(metadata.clone()),
            _ => None,
        }
    };
}
pub(super) use metadata;

/// The phases of a logger that tells by `self.teller`.
macro_rules! watches {
    () => {
        fn phases(&self) -> crate::plugins::Phases {
            self.teller.phases()
        }

        fn before_proxy(&self, request: &mut crate::plugins::Request<'_>) -> crate::plugins::Step {
            self.teller.watch_request(request);
            crate::plugins::Step::Next
        }

        fn response_body(
            &self,
            reply: &mut crate::plugins::Reply<'_>,
        ) -> Option<Box<dyn crate::plugins::BodyFilter>> {
            self.teller.watch_response(reply)
        }
    };
}
pub(super) use watches;
