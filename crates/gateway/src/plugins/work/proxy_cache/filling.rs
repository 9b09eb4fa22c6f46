//! A request whose response is kept, or says that a kept one is still good.

use super::given::{Conditions, given};
use super::plan::Plan;
use super::{Asked, say};
use crate::cache::control::{self, Control};
use crate::cache::keep::Draft;
use crate::cache::store::{FillTurn, Loaded, Store};
use crate::cache::writer::{Commit, Job};
use crate::cache::{Body, Entry, Head};
use crate::clock;
use crate::plugins::exchange::{Exchange, Given, UpstreamHead, Verdict};
use crate::plugins::{Request, Running};
use http::StatusCode;
use http::header::{
    AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, SET_COOKIE, TRANSFER_ENCODING,
};
use std::sync::Arc;
use towpath_resources::plugins::proxy_cache::Strategy;

/// A kept response that is not fresh any more.
pub(super) struct Stale {
    pub(super) entry: Entry,
    pub(super) loaded: Loaded,
}

/// See the module.
pub(super) struct Filling {
    plan: Arc<Plan>,
    store: Arc<Store>,
    turn: FillTurn,
    stale: Option<Stale>,
    conditions: Conditions,
    shared_by_many: bool,
    /// Something in the request says that the response is not to be kept.
    not_kept: bool,
    /// The upstream was asked if the kept one is still good.
    asks: bool,
}

impl Filling {
    /// The request goes on to an upstream.
    pub(super) fn begin(asked: Asked, turn: FillTurn, stale: Option<Stale>, request: &mut Request<'_>) {
        request.record.conn.worker.metrics.cache_misses.add(1);
        let mut asks = false;
        for (name, value) in stale.iter().flat_map(|stale| stale.loaded.head.validators()) {
            request.headers.insert(name, value);
            asks = true;
        }
        let not_kept = asked.plan.is_not_kept(&request.vars());
        let running = request.running();
        say(running, if stale.is_some() { "EXPIRED" } else { "MISS" });
        running.exchange = Some(Box::new(Self {
            plan: asked.plan,
            store: asked.store,
            turn,
            stale,
            conditions: asked.conditions,
            shared_by_many: asked.shared_by_many,
            not_kept,
            asks,
        }));
    }

    /// Whether a response is for the one alone who asked.
    fn is_personal(&self, control: &Control) -> bool {
        self.shared_by_many && !(control.public || control.must_revalidate || control.s_maxage.is_some())
    }

    fn keeps_cookies(&self) -> bool {
        self.plan.config.cache_set_cookie && self.plan.config.cache_strategy == Strategy::Memory
    }

    /// Why a response is not kept, if it is not.
    fn objection(&self, head: &UpstreamHead<'_>, control: &Control) -> Option<Objection> {
        let config = &self.plan.config;
        if self.not_kept {
            return Some(Objection::OfRequest);
        }
        let cookie = head.headers.contains_key(SET_COOKIE) && !self.keeps_cookies();
        let personal = self.is_personal(control);
        let kind = head.headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let events = kind.get(..17).is_some_and(|kind| kind.eq_ignore_ascii_case(b"text/event-stream"));
        let bad = !head.may_have_body
            || !config.cache_http_status.contains(&head.status.as_u16())
            || matches!(head.status.as_u16(), 206 | 304)
            || control.no_store
            || control.no_cache
            || control.private
            || cookie
            || personal
            || events;
        bad.then_some(Objection::OfResponse)
    }

    /// The upstream says that the kept response is still good. What it says beside that may be for this client alone.
    fn renewed(self, head: &UpstreamHead<'_>, stale: Stale, running: &mut Running) -> Verdict {
        let now = clock::unix_ms();
        let mut renewed = Head::renewed(&stale.loaded.head, head.headers);
        let control = renewed.control();
        let mut said = renewed.headers.clone();
        if let Some(age) = head.headers.get(AGE) {
            said.insert(AGE, age.clone());
        }
        let times = control::times(&said, &control, self.plan.config.cache_ttl, now);
        let vary = control::vary(&renewed.headers);
        // What varies by something else now would stand where others find it.
        let vary = vary.filter(|vary| control::vary(&stale.loaded.head.headers).as_ref() == Some(vary));
        say(running, "REVALIDATED");
        let answer = given(&self.conditions, &renewed, stale.loaded.body, &times, now);
        let refused = self.not_kept || control.private || control.no_store || control.no_cache;
        let vary = match vary {
            Some(vary) if !refused && !self.is_personal(&control) => vary,
            _ => {
                self.store.purge(&self.turn.key);
                return Verdict::Instead(Box::new(answer));
            }
        };
        if !self.keeps_cookies() {
            renewed.headers.remove(SET_COOKIE);
        }
        match stale.entry.body {
            Body::Memory(_, bytes) => {
                let size = renewed.size() + bytes.len() as u64;
                let body = Body::Memory(Arc::new(renewed), bytes);
                let entry = Entry { body, length: stale.entry.length, size, times };
                self.store.put(self.turn.key, self.turn.variant, &vary, entry);
            }
            Body::Disk(name) => {
                let length = stale.entry.length;
                let commit = Commit { name, vary, head: renewed, length, times, turn: self.turn };
                if let Some(writer) = self.store.writer() {
                    writer.send(Job::Renew(Box::new(commit)));
                }
            }
        }
        Verdict::Instead(Box::new(answer))
    }

    fn give_stale(conditions: &Conditions, stale: Stale, running: &mut Running) -> Given {
        say(running, "STALE");
        given(conditions, &stale.loaded.head, stale.loaded.body, &stale.entry.times, clock::unix_ms())
    }
}

enum Objection {
    OfRequest,
    OfResponse,
}

fn serves_on_error(stale: Option<&Stale>) -> bool {
    stale.is_some_and(|stale| stale.entry.times.serves_on_error(clock::unix_ms()))
}

fn length_of(headers: &HeaderMap) -> Option<u64> {
    if headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

impl Exchange for Filling {
    fn answered(mut self: Box<Self>, head: &UpstreamHead<'_>, running: &mut Running) -> Verdict {
        if head.status == StatusCode::NOT_MODIFIED
            && self.asks
            && let Some(stale) = self.stale.take()
        {
            return self.renewed(head, stale, running);
        }
        if matches!(head.status.as_u16(), 500 | 502..=504)
            && serves_on_error(self.stale.as_ref())
            && let Some(stale) = self.stale.take()
        {
            return Verdict::Instead(Box::new(Self::give_stale(&self.conditions, stale, running)));
        }
        let control = Control::of(head.headers.get_all(CACHE_CONTROL).iter());
        let config = &self.plan.config;
        let otherwise = if config.cache_control { 0 } else { config.cache_ttl };
        let times = control::times(head.headers, &control, otherwise, clock::unix_ms());
        let vary = control::vary(head.headers);
        let objection = self.objection(head, &control).or_else(|| {
            let lives = times.life > times.age || times.while_fetched > 0 || times.if_error > 0;
            (vary.is_none() || !lives).then_some(Objection::OfResponse)
        });
        let vary = match (objection, vary) {
            (None, Some(vary)) => vary,
            (Some(Objection::OfRequest), _) => return Verdict::Pass,
            _ => {
                self.store.pass(self.turn.key);
                return Verdict::Pass;
            }
        };
        let kept = Head::of(head.status.as_u16(), head.headers);
        let mut turn = self.turn;
        turn.variant = crate::cache::index::variant(&vary, head.request);
        let most = config.max_resp_body_size.min(self.store.largest());
        let draft = Draft { turn, vary, head: kept, times, length: length_of(head.headers), most };
        draft.keep().map_or(Verdict::Pass, Verdict::Through)
    }

    fn failed(mut self: Box<Self>, running: &mut Running) -> Option<Given> {
        let stale = self.stale.take_if(|stale| serves_on_error(Some(stale)))?;
        Some(Self::give_stale(&self.conditions, stale, running))
    }
}
