//! `s3-admission`: so many requests at a time, and GET first.

use super::slots::{Arrival, ByValue, Slots};
use super::{recognise, refused};
use crate::clock;
use crate::plugins::make::Scope;
use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Resume, Step};
use http::Method;
use http::header::RETRY_AFTER;
use std::sync::Arc;
use towpath_resources::plugins::s3_admission::{Config, KeyType};
use towpath_route::vars::{Name, Template};
use towpath_s3::admission::{Class, Rules, Share};
use towpath_s3::operation::Kind;
use towpath_s3::{ErrorCode, S3Error};

/// See the module.
pub(in crate::plugins) struct S3Admission {
    config: Arc<Config>,
    rules: Rules,
    key: Key,
}

/// Whose slots.
enum Key {
    /// Everybody's.
    Constant(Arc<Slots>),
    Var(Name, Arc<ByValue>),
    Combination(Template, Arc<ByValue>),
}

fn rules(config: &Config) -> Rules {
    let share = |share: &towpath_resources::plugins::s3_admission::Share| Share {
        weight: share.weight,
        queue: share.queue,
        wait_ns: (share.max_wait * 1e9) as u64,
        most: u32::try_from((u64::from(config.concurrency) * u64::from(share.max_share)).div_ceil(100))
            .unwrap_or(u32::MAX)
            .max(1),
    };
    let shares = [&config.read, &config.write, &config.delete, &config.list].map(share);
    Rules { slots: config.concurrency, shares }
}

impl S3Admission {
    pub(in crate::plugins) fn new(config: &Arc<Config>, scope: &Scope<'_>) -> Self {
        let (states, rules, now) = (&scope.plugins.states, rules(config), clock::now_ns());
        let by_value = || states.kept(&format!("{}/s3-admission", scope.from), now, ByValue::default);
        let key = match config.key_type {
            // Whichever route names them: they are the gateway's.
            KeyType::Constant => {
                let name = format!("s3-admission/{}", config.key);
                Key::Constant(states.kept(&name, now, || Slots::free(rules)))
            }
            KeyType::Var => Key::Var(Name::new(&config.key), by_value()),
            KeyType::VarCombination => Key::Combination(Template::new(&config.key), by_value()),
        };
        Self { config: config.clone(), rules, key }
    }

    fn slots(&self, request: &Request<'_>) -> Arc<Slots> {
        match &self.key {
            Key::Constant(slots) => slots.clone(),
            Key::Var(name, all) => all.of(&request.vars().text(name).unwrap_or_default(), self.rules),
            Key::Combination(template, all) => all.of(&request.vars().fill(template).0, self.rules),
        }
    }

    fn class(&self, request: &Request<'_>) -> Class {
        let seen = recognise(request.record, request.headers, &self.config.base_domains);
        let operation = seen.ok().and_then(|seen| seen.operation);
        match (operation.map(towpath_s3::Operation::kind), &request.record.method) {
            (Some(Kind::List), _) => Class::List,
            (Some(Kind::Delete), _) | (None, &Method::DELETE) => Class::Delete,
            // An operation that reads although its method is POST waits with its like.
            (_, &Method::GET | &Method::HEAD | &Method::OPTIONS) => Class::Read,
            _ => Class::Write,
        }
    }
}

fn slow_down(request: &Request<'_>, retry_after: u32) -> Answer {
    request.record.conn.worker.metrics.s3_turned_away.add(1);
    let error = S3Error::new(ErrorCode::SlowDown, "Please reduce your request rate.");
    refused(&error, request).with_text(RETRY_AFTER, &retry_after.to_string())
}

impl Plugin for S3Admission {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let class = self.class(request);
        let place = match self.slots(request).enter(class, self.rules, clock::now_ns) {
            Arrival::Go(slot) => {
                request.hold(slot);
                return Step::Next;
            }
            Arrival::Full => return Step::answer(slow_down(request, self.config.retry_after)),
            Arrival::Wait(place) => place,
        };
        request.record.conn.worker.metrics.s3_waited.add(1);
        let retry_after = self.config.retry_after;
        Step::Wait(Box::pin(async move {
            let slot = place.slot(clock::now_ns()).await;
            Box::new(move |request: &mut Request<'_>| match slot {
                Some(slot) => {
                    request.hold(slot);
                    Step::Next
                }
                None => Step::answer(slow_down(request, retry_after)),
            }) as Resume
        }))
    }
}
