//! `response-rewrite`: the client gets another status, other headers, another body.

use super::headers::HeaderEdits;
use super::{compression, substitute};
use crate::plugins::filter::{BodyFilter, Replace, Whole};
use crate::plugins::{Phase, Phases, Plugin, Reply};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, ETAG, LAST_MODIFIED};
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::response_rewrite::{Config, Headers, Scope};
use towpath_route::vars::Expr;

/// See the module.
pub(in crate::plugins) struct ResponseRewrite {
    status: Option<StatusCode>,
    body: Option<Bytes>,
    headers: Option<HeaderEdits>,
    vars: Option<Expr>,
    filters: Arc<Vec<(Regex, String, bool)>>,
    most: usize,
}

impl ResponseRewrite {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let body = config.body.as_ref().map(|body| {
            let decoded = config.body_base64.then(|| STANDARD.decode(body.trim()).ok()).flatten();
            decoded.map_or_else(|| Bytes::from(body.clone()), Bytes::from)
        });
        let filters = config.filters.iter().flatten().filter_map(|filter| {
            let regex = substitute::pattern(&filter.regex, filter.options.contains('i'))?;
            Some((regex, filter.replace.clone(), filter.scope == Scope::Global))
        });
        Self {
            status: config.status_code.and_then(|status| StatusCode::from_u16(status).ok()),
            body,
            headers: config.headers.as_ref().map(edits),
            vars: config
                .vars
                .as_ref()
                .and_then(|vars| Expr::parse(&serde_json::Value::Array(vars.clone())).ok()),
            filters: Arc::new(filters.collect()),
            most: usize::try_from(config.max_resp_body_size).unwrap_or(usize::MAX),
        }
    }
}

fn edits(headers: &Headers) -> HeaderEdits {
    let mut edits = HeaderEdits::default();
    match headers {
        Headers::Set(map) => {
            map.iter().for_each(|(name, value)| edits.set(name, &[value.to_string()]));
        }
        Headers::Verbs(verbs) => {
            for line in verbs.add.iter().flatten() {
                if let Some((name, value)) = line.split_once(':') {
                    edits.add(name, value.trim());
                }
            }
            for (name, value) in verbs.set.iter().flatten() {
                edits.set(name, &[value.to_string()]);
            }
            verbs.remove.iter().flatten().for_each(|name| edits.remove(name));
        }
    }
    edits
}

/// Kept from the head to the body.
struct Matched {
    /// The body is compressed, so that nothing can be found in it.
    coded: bool,
}

impl Plugin for ResponseRewrite {
    fn phases(&self) -> Phases {
        Phases::of([Phase::ResponseHead, Phase::ResponseBody])
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        if self.vars.as_ref().is_some_and(|vars| !vars.holds(&reply.vars())) {
            return;
        }
        let ours = compression::is_ours(reply.record);
        let coded = reply.headers.contains_key(CONTENT_ENCODING) && !ours;
        if let Some(status) = self.status {
            *reply.status = status;
        }
        if self.body.is_some() || (!self.filters.is_empty() && !coded) {
            for name in [CONTENT_LENGTH, LAST_MODIFIED, ETAG] {
                reply.headers.remove(name);
            }
            if !ours {
                reply.headers.remove(CONTENT_ENCODING);
            }
        }
        if let Some(edits) = &self.headers {
            let filled = edits.fill(&reply.vars());
            filled.apply(reply.headers);
        }
        reply.record.running.get_or_insert_default().note(self, Matched { coded });
    }

    fn response_body(&self, reply: &mut Reply<'_>) -> Option<Box<dyn BodyFilter>> {
        let running = reply.record.running.get_or_insert_default();
        let coded = running.noted::<Self, Matched>(self)?.coded;
        if let Some(body) = &self.body {
            return Some(Box::new(Replace(Some(body.clone()))));
        }
        if self.filters.is_empty() || coded {
            return None;
        }
        let filters = self.filters.clone();
        Some(Box::new(Whole::new(self.most, move |mut body| {
            for (regex, replacement, all) in filters.iter() {
                if let Some(changed) = substitute::replace(regex, &body, replacement, *all) {
                    body = changed;
                }
            }
            body
        })))
    }
}
