//! `opentelemetry`: a request is a span of a trace. Its context goes to the upstream; the span goes to a collector when the
//! request has ended, once: what holds it is kept with the request, and dropped with that if nobody has ended it before.

mod context;
mod export;

use super::delivery::Delivery;
use super::logger;
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::vars::Vars;
use crate::plugins::{Phase, Phases, Plugin, Request, Step};
use crate::worker::Worker;
use context::{Context, Parent};
use export::{Exporter, Span, Value};
use http::header::{HeaderMap, USER_AGENT};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use towpath_resources::plugins::opentelemetry::{Config, RootName, SamplerName, TraceIdSource};
use towpath_route::vars::Name;

/// See the module.
pub(in crate::plugins) struct OpenTelemetry {
    config: Arc<Config>,
    /// Variables that are attributes.
    variables: Vec<Name>,
    exporter: Option<Arc<Exporter>>,
}

/// A span that has begun.
struct Open {
    span: Cell<Option<Box<Span>>>,
    exporter: Arc<Exporter>,
    worker: Rc<Worker>,
}

impl Open {
    fn end(&self, finish: impl FnOnce(&mut Span)) {
        let Some(mut span) = self.span.take() else { return };
        span.end_ns = unix_ns();
        finish(&mut span);
        if !self.exporter.put(*span) {
            self.worker.metrics.spans_dropped.add(1);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(|_| {});
    }
}

fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a share takes this trace: all who look at its id decide the same.
fn is_in_share(trace: &[u8; 16], fraction: f64) -> bool {
    let low = trace.last_chunk::<8>().copied().map(u64::from_be_bytes).unwrap_or_default();
    fraction >= 1.0 || ((low >> 1) as f64) < fraction * (1_u64 << 63) as f64
}

impl OpenTelemetry {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let metadata = logger::metadata!(scope, "opentelemetry", Opentelemetry);
        let exporter = metadata.map(|metadata| {
            let name = format!("opentelemetry {:p}", Arc::as_ptr(&metadata));
            let delivery = Delivery::of(&scope.plugins.states);
            scope.plugins.states.get(&name, || Exporter::new(&delivery, metadata))
        });
        Self {
            variables: config.additional_attributes.iter().flatten().map(|name| Name::new(name)).collect(),
            config: config.clone(),
            exporter,
        }
    }

    fn samples(&self, parent: Option<&Parent>, trace: &[u8; 16]) -> bool {
        let sampler = &self.config.sampler;
        let root = &sampler.options.root;
        match sampler.name {
            SamplerName::AlwaysOn => true,
            SamplerName::AlwaysOff => false,
            SamplerName::TraceIdRatio => is_in_share(trace, sampler.options.fraction),
            SamplerName::ParentBase => match (parent.and_then(|parent| parent.sampled), root.name) {
                (Some(sampled), _) => sampled,
                (None, RootName::AlwaysOn) => true,
                (None, RootName::AlwaysOff) => false,
                (None, RootName::TraceIdRatio) => is_in_share(trace, root.options.fraction),
            },
        }
    }

    fn trace_id(&self, request: &Request<'_>, exporter: &Exporter) -> [u8; 16] {
        if exporter.metadata.trace_id_source == TraceIdSource::RequestId
            && let Some(id) = context::hex::<16>(request.record.id.as_bytes())
        {
            return id;
        }
        let worker = &request.record.conn.worker;
        (u128::from(worker.random()) << 64 | u128::from(worker.random() | 1)).to_be_bytes()
    }

    /// Attributes of headers that were asked for.
    fn of_headers(&self, headers: &HeaderMap, attributes: &mut Vec<(String, Value)>) {
        for wanted in self.config.additional_header_prefix_attributes.iter().flatten() {
            let wanted = wanted.to_ascii_lowercase();
            for (name, value) in headers {
                let matches = match wanted.strip_suffix('*') {
                    Some(start) => name.as_str().starts_with(start),
                    None => name.as_str() == wanted,
                };
                if matches {
                    let text = String::from_utf8_lossy(value.as_bytes()).into_owned();
                    attributes.push((name.as_str().to_owned(), Value::Text(text)));
                }
            }
        }
    }

    fn attributes(&self, request: &Request<'_>) -> Vec<(String, Value)> {
        let record = &request.record;
        let vars = request.vars();
        let target = record.uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str);
        let agent = request.headers.get(USER_AGENT).map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        let agent = agent.unwrap_or_default().into_owned();
        let mut attributes = Vec::with_capacity(16);
        let mut put = |name: &str, text: String| attributes.push((name.to_owned(), Value::Text(text)));
        put("net.host.name", String::from_utf8_lossy(record.host()).into_owned());
        put("http.method", record.method.to_string());
        put("http.scheme", record.scheme().to_owned());
        put("http.target", target.to_owned());
        put("http.user_agent", agent.clone());
        put("http.request.method", record.method.to_string());
        put("url.scheme", record.scheme().to_owned());
        put("url.path", record.uri.path().to_owned());
        put("user_agent.original", agent);
        for (name, var) in [
            ("apisix.route_id", "route_id"),
            ("apisix.route_name", "route_name"),
            ("http.route", "matched_uri"),
            ("apisix.service_id", "service_id"),
            ("apisix.service_name", "service_name"),
        ] {
            vars.other(var).into_iter().for_each(|value| put(name, value.into_owned()));
        }
        attributes
    }
}

impl Plugin for OpenTelemetry {
    fn phases(&self) -> Phases {
        if self.exporter.is_none() { Phases::default() } else { Phases::of([Phase::Rewrite, Phase::Log]) }
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let Some(exporter) = self.exporter.clone() else { return Step::Next };
        let (parent, form) = context::read(request.headers);
        let trace = parent.as_ref().map_or_else(|| self.trace_id(request, &exporter), |parent| parent.trace);
        let worker = request.record.conn.worker.clone();
        let sampled = self.samples(parent.as_ref(), &trace);
        let span_id = (worker.random() | 1).to_be_bytes();
        let context =
            Context { trace, span: span_id, parent: parent.as_ref().map(|parent| parent.span), sampled };
        context.write(request.headers, form);
        if exporter.metadata.set_ngx_var {
            let running = request.running();
            running.set_var("opentelemetry_trace_id", context::text(&trace));
            running.set_var("opentelemetry_span_id", context::text(&span_id));
            running.set_var("opentelemetry_context_traceparent", context.traceparent());
        }
        if !sampled {
            return Step::Next;
        }
        let mut attributes = self.attributes(request);
        self.of_headers(request.headers, &mut attributes);
        let path = request.vars().other("matched_uri").unwrap_or_default().into_owned();
        let method = request.record.method.as_str();
        let taken_ns = clock::now_ns().saturating_sub(request.record.started_ns());
        let span = Span {
            trace,
            span: span_id,
            parent: context.parent,
            name: if path.is_empty() { method.to_owned() } else { format!("{method} {path}") },
            start_ns: unix_ns().saturating_sub(taken_ns),
            end_ns: 0,
            attributes,
            failed: false,
        };
        let open = Open { span: Cell::new(Some(Box::new(span))), exporter, worker };
        request.running().note(self, open);
        Step::Next
    }

    fn log(&self, vars: &Vars<'_>) {
        let running = vars.record.running.as_deref();
        let Some(open) = running.and_then(|running| running.noted_ref::<Self, Open>(self)) else { return };
        let status = vars.record.status;
        open.end(|span| {
            for name in ["http.status_code", "http.response.status_code"] {
                span.attributes.push((name.to_owned(), Value::Number(i64::from(status))));
            }
            if let Some(chosen) = &vars.record.chosen {
                let address = chosen.endpoint.address().to_string();
                span.attributes.push(("upstream.address".to_owned(), Value::Text(address)));
            }
            for name in &self.variables {
                if let Some(value) = vars.text(name) {
                    span.attributes.push((name.as_str().to_owned(), Value::Text(value)));
                }
            }
            span.failed = status == 0 || status >= 500;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_traces_is_about_as_large_as_it_says() {
        let mut random = fastrand::Rng::with_seed(1);
        let taken = (0..10_000).filter(|_| is_in_share(&random.u128(..).to_be_bytes(), 0.25)).count();
        assert!((2300..2700).contains(&taken), "{taken}");
        assert!(is_in_share(&[255; 16], 1.0) && !is_in_share(&[0; 16], 0.0));
    }
}
