//! `proxy-rewrite`: the request goes to the upstream with another path, host, method, other headers.

use super::headers::HeaderEdits;
use super::substitute;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use http::header::{HOST, HeaderName};
use http::{HeaderValue, Method};
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::proxy_rewrite::{Config, Headers};
use towpath_route::vars::Template;

/// See the module.
pub(in crate::plugins) struct ProxyRewrite {
    uri: Option<Template>,
    regex_uri: Vec<(Regex, String)>,
    method: Option<Method>,
    host: Option<String>,
    headers: Option<HeaderEdits>,
}

impl ProxyRewrite {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let regex_uri = pairs(config.regex_uri.iter().flatten());
        Self {
            uri: config.uri.as_deref().map(Template::new),
            regex_uri,
            method: config.method.and_then(|method| Method::from_bytes(method.as_str().as_bytes()).ok()),
            host: config.host.clone(),
            headers: config.headers.as_ref().map(edits),
        }
    }

    /// Path and query that go out; the query is the configuration's own part of it.
    fn target(&self, request: &mut Request<'_>) -> Option<String> {
        if let Some(uri) = &self.uri {
            return Some(request.vars().fill_escaped(uri, |_| true, substitute::no_query));
        }
        let path = request.record.matched_path().into_owned();
        let found = self
            .regex_uri
            .iter()
            .find_map(|(regex, replacement)| Some((regex.captures(&path)?, regex, replacement)));
        let (captures, regex, replacement) = found?;
        for (n, group) in captures.iter().enumerate() {
            let text = group
                .map_or_else(String::new, |group| String::from_utf8_lossy(group.as_bytes()).into_owned());
            request.running().set_var(n.to_string(), text);
        }
        let replaced = substitute::replace_escaped(regex, &path, replacement, false, substitute::no_query)?;
        Some(String::from_utf8_lossy(&replaced).into_owned())
    }
}

/// Pairs of an expression and its replacement.
fn pairs<'a>(mut texts: impl Iterator<Item = &'a String>) -> Vec<(Regex, String)> {
    let mut pairs = Vec::new();
    while let (Some(regex), Some(replacement)) = (texts.next(), texts.next()) {
        pairs.extend(substitute::pattern(regex, false).map(|regex| (regex, replacement.clone())));
    }
    pairs
}

fn edits(headers: &Headers) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    match headers {
        Headers::Set(map) => map.iter().for_each(|(name, values)| edits.set(name, &values.texts())),
        Headers::Verbs(verbs) => {
            for (name, values) in verbs.add.iter().flatten() {
                values.texts().iter().for_each(|text| edits.add(name, text));
            }
            for (name, values) in verbs.set.iter().flatten() {
                edits.set(name, &values.texts());
            }
            verbs.remove.iter().flatten().for_each(|name| edits.remove(name));
        }
    }
    edits
}

impl Plugin for ProxyRewrite {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        if let Some(target) = self.target(request) {
            if !target.starts_with('/') {
                return Step::answer(Answer::error_msg(500, "the rewritten path does not begin with /"));
            }
            let query = request.record.client_query().map(str::to_owned);
            let (path, own) = match target.split_once('?') {
                Some((path, own)) => (path, Some(substitute::safe(own.as_bytes()))),
                None => (target.as_str(), None),
            };
            let rewritten = &mut request.running().rewritten;
            rewritten.path = Some(substitute::safe(path.as_bytes()).replace('?', "%3F"));
            rewritten.query = match (own, query) {
                (Some(own), Some(query)) => Some(format!("{own}&{query}")),
                (Some(own), None) => Some(own),
                // Something in it may be hidden.
                (None, _) => rewritten.args.clone(),
            };
        }
        if let Some(method) = &self.method {
            request.running().rewritten.method = Some(method.clone());
        }
        if let Some(host) = &self.host {
            request.running().rewritten.host = Some(host.clone());
        }
        if let Some(edits) = &self.headers {
            let mut filled = edits.fill(&request.vars());
            // The host goes out from elsewhere.
            let host = |value: &HeaderValue| value.to_str().ok().map(str::to_owned);
            filled.set.retain(|(name, values)| {
                if *name == HOST {
                    request.running().rewritten.host = values.first().and_then(host);
                }
                *name != HOST
            });
            let ours = |name: &HeaderName| name.as_str().starts_with("x-forwarded-") || name == "x-real-ip";
            let set = filled.set.iter().map(|(name, _)| name).chain(filled.add.iter().map(|(name, _)| name));
            let forced: Vec<_> = set.filter(|name| ours(name)).cloned().collect();
            // What the client says of these is not believed: only the plugin's word goes out.
            forced.iter().for_each(|name| drop(request.headers.remove(name)));
            request.running().forced.extend(forced);
            request.running().written.extend(filled.names().cloned());
            filled.apply(request.headers);
        }
        Step::Next
    }
}
