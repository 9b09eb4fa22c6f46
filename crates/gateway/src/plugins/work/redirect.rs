//! `redirect`: the client is told to go elsewhere.

use super::substitute;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use http::Method;
use http::header::LOCATION;
use regex::bytes::Regex;
use std::sync::Arc;
use towpath_resources::plugins::redirect::Config;
use towpath_route::vars::{Name, Template};

/// See the module.
pub(in crate::plugins) struct Redirect {
    config: Arc<Config>,
    uri: Option<Template>,
    regex: Option<(Regex, String)>,
    https: Template,
}

impl Redirect {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let regex = match config.regex_uri.as_deref() {
            Some([regex, replacement]) => {
                substitute::pattern(regex, false).map(|regex| (regex, replacement.clone()))
            }
            _ => None,
        };
        Self {
            config: config.clone(),
            uri: config.uri.as_deref().map(Template::new),
            regex,
            https: Template::new("https://$host$request_uri"),
        }
    }

    /// Where to, and with which status.
    fn target(&self, request: &Request<'_>) -> Option<(String, u16)> {
        let vars = request.vars();
        if self.config.http_to_https {
            let told = request.headers.get("x-forwarded-proto").and_then(|value| value.to_str().ok());
            if told.unwrap_or(request.record.scheme()) == "https" {
                return None;
            }
            let safe = matches!(request.record.method, Method::GET | Method::HEAD);
            return Some((vars.fill(&self.https).0, if safe { 301 } else { 308 }));
        }
        let target = match (&self.uri, &self.regex) {
            (Some(uri), _) => vars.fill_escaped(uri, Name::is_path, substitute::safe_in_path),
            (None, Some((regex, replacement))) => {
                let path = request.record.matched_path();
                let escape = substitute::safe_in_path;
                let replaced = substitute::replace_escaped(regex, &path, replacement, false, escape)?;
                String::from_utf8_lossy(&replaced).into_owned()
            }
            (None, None) => return None,
        };
        Some((target, self.config.ret_code))
    }
}

impl Plugin for Redirect {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let Some((mut target, status)) = self.target(request) else { return Step::Next };
        if self.config.encode_uri {
            target = match target.split_once('?') {
                Some((path, query)) => format!("{}?{query}", substitute::safe(path.as_bytes())),
                None => substitute::safe(target.as_bytes()),
            };
        }
        if let Some(query) = request.record.uri.query().filter(|_| self.config.append_query_string) {
            target.push(if target.contains('?') { '&' } else { '?' });
            target.push_str(query);
        }
        // A line break from a capture or a variable must not become a header of its own.
        target.retain(|c| !c.is_control());
        Step::answer(
            Answer { status, headers: Vec::new(), body: Some(bytes::Bytes::new()) }
                .with_text(LOCATION, &target),
        )
    }
}
