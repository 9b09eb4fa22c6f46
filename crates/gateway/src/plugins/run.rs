//! Runs the phases of a request.

use super::program::{Entry, Program};
use super::running::{FilterMemo, Running};
use super::{Answer, BodyFilter, Phase, Reply, Request, Step, vars};
use crate::request::head;
use crate::request::present::Present;
use crate::request::record::Record;
use crate::request::view::View;
use crate::upstream::request_body::ClientBody;
use http::{HeaderMap, StatusCode};
use std::sync::Arc;

/// Which program of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    Global,
    Route,
}

impl Which {
    fn memo_of(self, running: &Running) -> FilterMemo {
        match self {
            Self::Global => running.filtered.global,
            Self::Route => running.filtered.route,
        }
    }

    fn memo(self, running: &mut Running) -> &mut FilterMemo {
        match self {
            Self::Global => &mut running.filtered.global,
            Self::Route => &mut running.filtered.route,
        }
    }
}

/// Finds out whether plugins run for this request, and which. Costs a look at the view where there are none.
pub(crate) fn find(record: &mut Record, headers: &HeaderMap) {
    let worker = record.conn.worker.clone();
    worker.table.choose(|view| {
        let Some(plugins) = &view.plugins else { return };
        let request = View { record, headers, client: record.client(), inside: false };
        let matched = view.table.find_for(record.host(), record.uri.path().as_bytes(), &request);
        let rule = matched.as_ref().and_then(|matched| matched.rule());
        let program = rule.and_then(|rule| Program::of(rule.spec.payload.as_ref()?));
        let rule = rule.cloned();
        let path = record.uri.path().as_bytes();
        let params = matched.as_ref().into_iter().flat_map(|matched| {
            matched.params().filter_map(|name| {
                let value = matched.param(name, path)?;
                Some((format!("uri_param_{name}"), String::from_utf8_lossy(&value).into_owned()))
            })
        });
        let params: Vec<_> = params.collect();
        if rule.is_none() && plugins.global.is_none() {
            return;
        }
        let running = record.running.get_or_insert_default();
        running.rule = rule;
        params.into_iter().for_each(|(name, value)| running.set_var(name, value));
        running.upstream =
            program.as_ref().and_then(|program| plugins.upstreams.get(program.upstream.as_deref()?)).cloned();
        running.program = program;
        running.plugins = Some(plugins.clone());
    });
}

/// The phases before an upstream is asked: an answer, if a plugin gives one.
pub(crate) async fn before(
    record: &mut Record,
    headers: &mut HeaderMap,
    body: &mut Option<ClientBody>,
) -> Option<Answer> {
    let running = record.running.as_ref()?;
    let global = running.plugins.as_ref().and_then(|plugins| plugins.global.clone());
    let route = running.program.clone();
    if !record.trusted {
        head::remove_identity(headers);
    }
    let mut request = Request { record, headers, body };
    if let Some(global) = &global {
        for phase in [Phase::Rewrite, Phase::Access] {
            if let Some(answer) = run(global, Which::Global, phase, &mut request, |_| true).await {
                return Some(answer);
            }
        }
    }
    let mut route = route;
    if let Some(program) = &route {
        if let Some(answer) = run(program, Which::Route, Phase::Rewrite, &mut request, |_| true).await {
            return Some(answer);
        }
        if let Some(merged) = merged(program, &mut request) {
            let added = |entry: &Entry| entry.from_consumer;
            if let Some(answer) = run(&merged, Which::Route, Phase::Rewrite, &mut request, added).await {
                return Some(answer);
            }
            route = Some(merged);
        }
    }
    if let Some(program) = &route
        && let Some(answer) = run(program, Which::Route, Phase::Access, &mut request, |_| true).await
    {
        return Some(answer);
    }
    if let Some(running) = &request.record.running {
        head::remove_imitations(request.headers, &running.written);
    }
    for (program, which) in [(&global, Which::Global), (&route, Which::Route)] {
        if let Some(program) = program
            && let Some(answer) = run(program, which, Phase::BeforeProxy, &mut request, |_| true).await
        {
            return Some(answer);
        }
    }
    request.record.present = Present::of(request.headers);
    None
}

/// The program with the consumer's plugins in it, if a consumer was found who has any.
fn merged(program: &Arc<Program>, request: &mut Request<'_>) -> Option<Arc<Program>> {
    let running = request.record.running.as_mut()?;
    let consumer = running.consumer.as_ref()?;
    let merged = request.record.conn.worker.merges.get(program, consumer, running.plugins.as_ref()?)?;
    running.program = Some(merged.clone());
    running.filtered.route = FilterMemo::default();
    Some(merged)
}

async fn run(
    program: &Arc<Program>,
    which: Which,
    phase: Phase,
    request: &mut Request<'_>,
    wanted: impl Fn(&Entry) -> bool,
) -> Option<Answer> {
    if !program.phases.has(phase) {
        return None;
    }
    for entry in &program.entries {
        if !entry.phases.has(phase) || !wanted(entry) || !passes(entry, which, request) {
            continue;
        }
        let mut step = match phase {
            Phase::Rewrite => entry.plugin.rewrite(request),
            Phase::Access => entry.plugin.access(request),
            _ => entry.plugin.before_proxy(request),
        };
        loop {
            match step {
                Step::Next => break,
                Step::Answer(answer) => {
                    request.running().answered = Some(entry.name);
                    return Some(entry.shaped(*answer));
                }
                Step::Wait(future) => step = (future.await)(request),
            }
        }
    }
    None
}

/// Whether the entry's `_meta.filter` lets the request in; decided once.
fn passes(entry: &Entry, which: Which, request: &mut Request<'_>) -> bool {
    let Some((n, filter)) = &entry.filter else { return true };
    decide(request.record, request.headers, None, which, *n, filter)
}

fn decide(
    record: &mut Record,
    headers: &HeaderMap,
    reply: Option<&HeaderMap>,
    which: Which,
    n: u32,
    filter: &towpath_route::vars::Expr,
) -> bool {
    let Some(running) = &record.running else { return true };
    let mut memo = which.memo_of(running);
    let passed = memo.passes(n, || filter.holds(&vars::Vars { record, headers, reply }));
    if let Some(running) = &mut record.running {
        *which.memo(running) = memo;
    }
    passed
}

/// The response phases: changes the head, and says what the body passes through, nearest to the upstream first.
pub(crate) fn reply(
    record: &mut Record,
    status: &mut StatusCode,
    headers: &mut HeaderMap,
    may_have_body: bool,
) -> Vec<Box<dyn BodyFilter>> {
    let Some(running) = &mut record.running else { return Vec::new() };
    let global = running.plugins.as_ref().and_then(|plugins| plugins.global.clone());
    let route = running.program.clone();
    let request_headers = std::mem::take(&mut running.headers);
    let mut filters: Vec<Box<dyn BodyFilter>> = Vec::new();
    for (name, value) in std::mem::take(&mut running.reply_headers) {
        headers.insert(name, value);
    }
    for (program, which) in [(&global, Which::Global), (&route, Which::Route)] {
        let Some(program) = program else { continue };
        if !program.phases.has(Phase::ResponseHead) && !program.phases.has(Phase::ResponseBody) {
            continue;
        }
        for entry in &program.entries {
            let wanted = entry.phases.has(Phase::ResponseHead) || entry.phases.has(Phase::ResponseBody);
            let passes = wanted
                && entry.filter.as_ref().is_none_or(|(n, filter)| {
                    decide(record, &request_headers, Some(headers), which, *n, filter)
                });
            if !passes {
                continue;
            }
            let mut reply = Reply { record, request_headers: &request_headers, status, headers };
            if entry.phases.has(Phase::ResponseHead) {
                entry.plugin.response_head(&mut reply);
            }
            if may_have_body && entry.phases.has(Phase::ResponseBody) {
                filters.extend(entry.plugin.response_body(&mut reply));
            }
        }
    }
    filters.sort_by_key(|filter| filter.comes_last());
    if filters.iter().any(|filter| !filter.keeps_length()) {
        headers.remove(http::header::CONTENT_LENGTH);
    }
    record.status = status.as_u16();
    let logs = [&global, &route].into_iter().flatten().any(|program| program.phases.has(Phase::Log));
    let logs = logs || record.conn.worker.access_form.is_some();
    if let Some(running) = &mut record.running {
        running.headers = request_headers;
        if logs {
            running.reply = headers.clone();
        }
    }
    filters
}

/// The last phase.
pub(crate) fn log(record: &Record) {
    let Some(running) = &record.running else { return };
    let vars = vars::Vars { record, headers: &running.headers, reply: Some(&running.reply) };
    let global = running.plugins.as_ref().and_then(|plugins| plugins.global.as_ref());
    for (program, which) in [(global, Which::Global), (running.program.as_ref(), Which::Route)] {
        let Some(program) = program.filter(|program| program.phases.has(Phase::Log)) else { continue };
        for entry in program.entries.iter().filter(|entry| entry.phases.has(Phase::Log)) {
            let passes = entry.filter.as_ref().is_none_or(|(n, filter)| {
                let mut memo = which.memo_of(running);
                memo.passes(*n, || filter.holds(&vars))
            });
            if passes {
                entry.plugin.log(&vars);
            }
        }
    }
}
