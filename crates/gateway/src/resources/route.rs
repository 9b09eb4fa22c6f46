//! A resolved route as a rule of the routing table.

use super::upstream::timeouts;
use crate::plugins::program::{About, Plugins, Program};
use std::sync::Arc;
use towpath_resources::{PathPattern, Resolved, Target};
use towpath_route::{Methods, Networks, Payload, RuleSpec};
use towpath_types::{AppRef, LaneName};

/// The rule; `Err` says what in the route cannot be used.
pub(super) fn compile(resolved: &Resolved, plugins: &Plugins) -> Result<RuleSpec, String> {
    let paths: Vec<String> = resolved.paths.iter().map(text_of).collect();
    let about = About {
        route: resolved.id.as_str().to_owned(),
        name: resolved.name.clone(),
        service: resolved.service.as_ref().map(|id| id.as_str().to_owned()),
        service_name: resolved.service_name.clone(),
        matched: paths.first().cloned(),
        host: resolved.hosts.first().map(|host| host.as_str().to_owned()),
    };
    let mut program = Program::compile(resolved.plugins.clone(), about, plugins);
    let (target, lane, upstream) = target_of(&resolved.target);
    program.upstream = upstream;
    program.timeouts = resolved.timeout.map(|timeout| timeouts(Some(timeout)));
    program.websocket = resolved.websocket;
    let methods: Vec<&str> = resolved.methods.iter().map(|method| method.as_str()).collect();
    let remote: Vec<String> = resolved.remote.iter().map(ToString::to_string).collect();
    Ok(RuleSpec {
        id: resolved.id.as_str().to_owned(),
        hosts: resolved.hosts.iter().map(|host| host.as_str().to_owned()).collect(),
        paths,
        methods: if methods.is_empty() { None } else { Some(Methods::parse(&methods)?) },
        remote: if remote.is_empty() { None } else { Some(Networks::parse(&remote)?) },
        vars: resolved.vars.clone(),
        priority: resolved.priority,
        target,
        lane,
        timeouts: program.timeouts,
        websocket: resolved.websocket,
        payload: Some(Payload(Arc::new(program))),
    })
}

fn target_of(target: &Target) -> (AppRef, Option<LaneName>, Option<Arc<str>>) {
    match target {
        Target::Upstream(key) => (AppRef::of_upstream(key.as_str()), None, Some(key.as_str().into())),
        Target::App { app, lane, upstream } => (app.clone(), lane.clone(), Some(upstream.as_str().into())),
        Target::Nowhere => (AppRef::of_upstream("none"), None, None),
    }
}

fn text_of(path: &PathPattern) -> String {
    match path {
        PathPattern::Exact(text) | PathPattern::Parameters(text) => text.clone(),
        PathPattern::Prefix(text) => format!("{text}*"),
    }
}
