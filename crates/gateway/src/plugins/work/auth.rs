//! What authentication plugins have in common.

use super::headers::value;
use crate::plugins::program::Consumer;
use crate::plugins::{Answer, Request};
use http::header::{HeaderName, WWW_AUTHENTICATE};
use std::sync::Arc;
use subtle::ConstantTimeEq;

/// The request is this consumer's from now on, and the upstream is told so.
pub(super) fn attach(request: &mut Request<'_>, consumer: Arc<Consumer>, credential: Option<Arc<str>>) {
    let told = [
        ("x-consumer-username", Some(consumer.name.as_str())),
        ("x-credential-identifier", credential.as_deref()),
        ("x-consumer-custom-id", consumer.custom_id.as_deref()),
    ];
    for (name, text) in told {
        let name = HeaderName::from_static(name);
        request.running().written.push(name.clone());
        match text.and_then(value) {
            Some(value) => request.headers.insert(name, value),
            None => request.headers.remove(name),
        };
    }
    let running = request.running();
    running.consumer = Some(consumer);
    running.credential = credential;
}

/// The consumer of requests that do not say who they are.
pub(super) fn anonymous(request: &mut Request<'_>, name: Option<&str>) -> Option<Arc<Consumer>> {
    let plugins = request.running().plugins.clone()?;
    plugins.consumers.by_name.get(name?).cloned()
}

/// A refusal that says how to do it better.
pub(super) fn refuse(message: &str, challenge: &str) -> Answer {
    Answer::message(401, message).with_text(WWW_AUTHENTICATE, challenge)
}

/// Whether both are the same, in a time that does not tell where they differ.
pub(super) fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// A query without an argument.
pub(super) fn without_argument(query: &str, name: &str) -> String {
    let kept = query
        .split('&')
        .filter(|pair| crate::plugins::vars::decoded(pair.split('=').next().unwrap_or_default()) != name);
    kept.collect::<Vec<_>>().join("&")
}
