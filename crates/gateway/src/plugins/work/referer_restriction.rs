//! `referer-restriction`: which pages may lead here.

use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use http::Uri;
use http::header::REFERER;
use std::sync::Arc;
use towpath_resources::model::Host;
use towpath_resources::plugins::referer_restriction::Config;

/// See the module.
pub(in crate::plugins) struct RefererRestriction(Arc<Config>);

impl RefererRestriction {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(config.clone())
    }
}

/// `*.a.test` and `*a.test` are all that end so.
fn is_in(hosts: &[Host], host: &str) -> bool {
    hosts.iter().any(|known| match known.as_str().strip_prefix('*') {
        Some(end) => host.ends_with(&end.to_ascii_lowercase()),
        None => known.as_str().eq_ignore_ascii_case(host),
    })
}

impl Plugin for RefererRestriction {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let referer = request.headers.get(REFERER).and_then(|value| value.to_str().ok());
        let host = referer
            .and_then(|text| text.parse::<Uri>().ok())
            .filter(|uri| uri.scheme().is_some())
            .and_then(|uri| uri.host().map(str::to_ascii_lowercase));
        let passes = match (&host, &self.0.whitelist, &self.0.blacklist) {
            (None, _, _) => self.0.bypass_missing,
            (Some(host), Some(only), _) => is_in(only, host),
            (Some(host), None, Some(not)) => !is_in(not, host),
            (Some(_), None, None) => true,
        };
        if passes { Step::Next } else { Step::answer(Answer::message(403, &self.0.message)) }
    }
}
