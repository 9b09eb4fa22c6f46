//! `fault-injection`: requests are answered with an error, or delayed, on purpose.

use super::headers::value;
use crate::plugins::vars::Vars;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use bytes::Bytes;
use http::header::HeaderName;
use std::sync::Arc;
use std::time::Duration;
use towpath_resources::plugins::fault_injection::Config;
use towpath_route::vars::{Expr, Template};

/// See the module.
pub(in crate::plugins) struct FaultInjection {
    config: Arc<Config>,
    abort_when: Option<Vec<Expr>>,
    delay_when: Option<Vec<Expr>>,
}

impl FaultInjection {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let exprs = |vars: Option<&Vec<Vec<serde_json::Value>>>| {
            let parse =
                |one: &Vec<serde_json::Value>| Expr::parse(&serde_json::Value::Array(one.clone())).ok();
            vars.map(|vars| vars.iter().filter_map(parse).collect())
        };
        Self {
            abort_when: exprs(config.abort.as_ref().and_then(|abort| abort.vars.as_ref())),
            delay_when: exprs(config.delay.as_ref().and_then(|delay| delay.vars.as_ref())),
            config: config.clone(),
        }
    }
}

fn hits(request: &Request<'_>, percentage: Option<u8>, when: Option<&Vec<Expr>>) -> bool {
    let vars = request.vars();
    let met = when.is_none_or(|exprs| exprs.iter().any(|expr| expr.holds(&vars)));
    let drawn = |share: u8| request.record.conn.worker.random() % 100 < u64::from(share);
    met && percentage.is_none_or(drawn)
}

fn abort(config: &Config, vars: &Vars<'_>) -> Option<Answer> {
    let abort = config.abort.as_ref()?;
    let body = abort.body.as_ref().map(|body| Bytes::from(vars.fill(&Template::new(body)).0));
    let mut answer = match body {
        Some(body) => Answer::text(abort.http_status, body),
        None => Answer::status(abort.http_status),
    };
    for (name, text) in abort.headers.iter().flatten() {
        let text = vars.fill(&Template::new(&text.to_string())).0;
        if let (Ok(name), Some(value)) = (HeaderName::from_bytes(name.as_bytes()), value(&text)) {
            answer.headers.retain(|(known, _)| *known != name);
            answer.headers.push((name, value));
        }
    }
    Some(answer)
}

impl Plugin for FaultInjection {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Rewrite])
    }

    fn rewrite(&self, request: &mut Request<'_>) -> Step {
        let aborts = self
            .config
            .abort
            .as_ref()
            .is_some_and(|abort| hits(request, abort.percentage, self.abort_when.as_ref()));
        let delay = self
            .config
            .delay
            .as_ref()
            .filter(|delay| hits(request, delay.percentage, self.delay_when.as_ref()));
        let config = self.config.clone();
        let then = move |request: &mut Request<'_>| match aborts.then(|| abort(&config, &request.vars())) {
            Some(Some(answer)) => Step::answer(answer),
            _ => Step::Next,
        };
        match delay.and_then(|delay| Duration::try_from_secs_f64(delay.duration).ok()) {
            Some(time) if !time.is_zero() => Step::Wait(Box::pin(async move {
                tokio::time::sleep(time).await;
                Box::new(then) as Resume
            })),
            _ => then(request),
        }
    }
}
