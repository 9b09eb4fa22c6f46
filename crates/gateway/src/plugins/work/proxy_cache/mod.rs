//! `proxy-cache`: responses are kept and given again (RFC 9111).
//!
//! It looks into the cache after all other plugins have let the request pass, and before an upstream is chosen: what is kept is
//! given only to who may have it. What it finds passes the response phases like an upstream's answer; what it keeps is the
//! upstream's own answer, before any plugin has changed it.

mod filling;
mod given;
mod plan;

use crate::cache::control::{Control, of_request};
use crate::cache::store::Loaded;
use crate::cache::{Digest, Entry, Store, Turn};
use crate::clock;
use crate::plugins::exchange::{Exchange, UpstreamHead, Verdict};
use crate::plugins::{Answer, Phase, Phases, Plugin, Reply, Request, Resume, Running, Step};
use crate::request::choice;
use filling::{Filling, Stale};
use given::Conditions;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, EXPIRES, HeaderName, HeaderValue, IF_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};
use plan::Plan;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};
use towpath_resources::plugins::proxy_cache::{Config, Method, Strategy};

/// How long a request waits for another one that fetches the same.
const PATIENCE: Duration = Duration::from_secs(5);

static STATUS: HeaderName = HeaderName::from_static("apisix-cache-status");

/// See the module.
pub(in crate::plugins) struct ProxyCache(Arc<Plan>);

/// What a request asks the cache.
pub(super) struct Asked {
    plan: Arc<Plan>,
    store: Arc<Store>,
    key: Digest,
    /// What the request says of freshness, where that counts.
    control: Option<Control>,
    conditions: Conditions,
    head: bool,
    /// It says who asks, and the key does not: only what is public is kept.
    shared_by_many: bool,
    /// Until then it may wait for others.
    until: Instant,
}

/// What is done with an entry once it is loaded.
enum Use {
    Give(&'static str),
    Renew(crate::cache::store::FillTurn),
}

fn say(running: &mut Running, status: &'static str) {
    running.set_reply_header(STATUS.clone(), HeaderValue::from_static(status));
}

impl ProxyCache {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        Self(Arc::new(Plan::of(config)))
    }

    /// Whether the request goes past the cache.
    fn passes_by(&self, request: &Request<'_>, control: Option<&Control>) -> bool {
        let listed = match request.record.method.as_str() {
            "GET" => self.0.config.cache_method.contains(&Method::Get),
            "HEAD" => self.0.config.cache_method.contains(&Method::Head),
            "POST" => self.0.config.cache_method.contains(&Method::Post),
            _ => false,
        };
        let of_part =
            [RANGE, IF_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| request.headers.contains_key(name));
        let has_body = request.body.is_some() && request.record.method != http::Method::POST;
        !listed
            || of_part
            || has_body
            || request.record.asks_upgrade
            || control.is_some_and(|control| control.no_store || control.no_cache)
            || self.0.bypasses(&request.vars())
    }

    /// Whether the request says who asks and the key does not. No key tells users of `openid-connect` apart.
    fn is_shared_by_many(&self, request: &mut Request<'_>) -> bool {
        let authorization = request.headers.contains_key(AUTHORIZATION);
        let running = request.running();
        running.user.is_some() || (authorization && !self.0.knows_who(running.consumer.is_some()))
    }

    fn store(&self, request: &Request<'_>) -> Arc<Store> {
        let cache = &request.record.conn.worker.cache;
        match self.0.config.cache_strategy {
            Strategy::Memory => cache.memory().clone(),
            Strategy::Disk => cache.disk().clone(),
        }
    }
}

impl Plugin for ProxyCache {
    fn phases(&self) -> Phases {
        Phases::of([Phase::BeforeProxy, Phase::ResponseHead])
    }

    fn before_proxy(&self, request: &mut Request<'_>) -> Step {
        if request.running().exchange.is_some() {
            return Step::Next;
        }
        let lane = choice::asked_lane(request.record, request.headers).unwrap_or_default();
        let method = request.record.method.clone();
        if method.as_str() == "PURGE" {
            let store = self.store(request);
            let keys = ["GET", "POST"].map(|class| self.0.key(&request.vars(), &lane, class));
            let some = keys.iter().fold(false, |some, key| store.purge(key) | some);
            return Step::answer(Answer::status(if some { 200 } else { 404 }));
        }
        let control = self.0.config.cache_control.then(|| of_request(request.headers));
        if self.passes_by(request, control.as_ref()) {
            if !method.is_safe() {
                let (store, key) = (self.store(request), self.0.key(&request.vars(), &lane, "GET"));
                request.running().exchange = Some(Box::new(Forget { store, key }));
            }
            say(request.running(), "BYPASS");
            return Step::Next;
        }
        let class = if method == http::Method::POST { "POST" } else { "GET" };
        let asked = Asked {
            store: self.store(request),
            key: self.0.key(&request.vars(), &lane, class),
            control,
            conditions: Conditions::take(request.headers),
            head: method == http::Method::HEAD,
            shared_by_many: self.is_shared_by_many(request),
            until: Instant::now() + PATIENCE,
            plan: self.0.clone(),
        };
        look(asked, request)
    }

    fn response_head(&self, reply: &mut Reply<'_>) {
        if self.0.config.hide_cache_headers {
            reply.headers.remove(CACHE_CONTROL);
            reply.headers.remove(EXPIRES);
        }
    }
}

/// What a write has changed is not given any more.
struct Forget {
    store: Arc<Store>,
    key: Digest,
}

impl Exchange for Forget {
    fn answered(self: Box<Self>, head: &UpstreamHead<'_>, _: &mut Running) -> Verdict {
        if head.status.is_success() || head.status.is_redirection() {
            self.store.purge(&self.key);
        }
        Verdict::Pass
    }

    fn failed(self: Box<Self>, _: &mut Running) -> Option<crate::plugins::exchange::Given> {
        None
    }
}

impl Asked {
    /// Whether the request takes something of this age.
    fn takes(&self, entry: &Entry, now: u64) -> bool {
        let age = entry.times.age_at(now);
        let Some(control) = &self.control else { return entry.times.is_fresh(now) };
        if control.max_age.is_some_and(|most| age > most * 1000) {
            return false;
        }
        let life = match control.max_stale {
            None => entry.times.life,
            Some(None) => u64::MAX,
            Some(Some(seconds)) => entry.times.life.saturating_add(seconds * 1000),
        };
        age.saturating_add(control.min_fresh.unwrap_or_default() * 1000) < life
    }

    fn only_if_cached(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.only_if_cached)
    }
}

/// Looks what there is; who finds nothing fetches it, or waits for who does.
fn look(asked: Asked, request: &mut Request<'_>) -> Step {
    let (variant, entry) = asked.store.find(&asked.key, request.headers);
    let now = clock::unix_ms();
    if let Some(entry) = &entry
        && asked.takes(entry, now)
    {
        let status = if entry.times.is_fresh(now) { "HIT" } else { "STALE" };
        return load(asked, variant, entry.clone(), Use::Give(status), request);
    }
    if asked.only_if_cached() {
        return Step::answer(Answer::status(504));
    }
    let status = if entry.is_some() { "EXPIRED" } else { "MISS" };
    let turn = if asked.head { Turn::Pass } else { asked.store.turn(asked.key, variant) };
    match (turn, entry) {
        (Turn::Wait(_) | Turn::Late, Some(entry)) if entry.times.serves_meanwhile(now) => {
            load(asked, variant, entry, Use::Give("UPDATING"), request)
        }
        (Turn::Wait(done), _) if Instant::now() < asked.until => wait(asked, done),
        (Turn::Fill(turn), Some(entry)) => load(asked, variant, entry, Use::Renew(turn), request),
        (Turn::Fill(turn), None) => {
            Filling::begin(asked, turn, None, request);
            Step::Next
        }
        (Turn::Wait(_) | Turn::Late | Turn::Pass, _) => {
            request.record.conn.worker.metrics.cache_misses.add(1);
            asked.conditions.give_back(request.headers);
            say(request.running(), status);
            Step::Next
        }
    }
}

fn wait(asked: Asked, done: Arc<Semaphore>) -> Step {
    Step::Wait(Box::pin(async move {
        // Nobody ever gets a permit: this ends when the turn does.
        let _ = timeout_at(asked.until, done.acquire()).await;
        Box::new(move |request: &mut Request<'_>| look(asked, request)) as Resume
    }))
}

/// Loads an entry, at once from memory, and does with it what is to be done.
fn load(asked: Asked, variant: Digest, entry: Entry, then: Use, request: &mut Request<'_>) -> Step {
    use crate::cache::{Body, store::LoadedBody};
    if let Body::Memory(head, bytes) = &entry.body {
        let loaded = Loaded { head: head.clone(), body: LoadedBody::Whole(bytes.clone()) };
        return use_it(asked, entry, loaded, then, request);
    }
    Step::Wait(Box::pin(async move {
        let loaded = asked.store.clone().load(asked.key, variant, entry.body.clone()).await;
        Box::new(move |request: &mut Request<'_>| match (loaded, then) {
            (Some(loaded), then) => use_it(asked, entry, loaded, then, request),
            // It is gone from the store now.
            (None, Use::Give(_)) => look(asked, request),
            (None, Use::Renew(turn)) => {
                Filling::begin(asked, turn, None, request);
                Step::Next
            }
        }) as Resume
    }))
}

fn use_it(asked: Asked, entry: Entry, loaded: Loaded, then: Use, request: &mut Request<'_>) -> Step {
    match then {
        Use::Give(status) => {
            request.record.conn.worker.metrics.cache_hits.add(1);
            say(request.running(), status);
            let given =
                given::given(&asked.conditions, &loaded.head, loaded.body, &entry.times, clock::unix_ms());
            request.running().file = given.file;
            Step::answer(given.answer)
        }
        Use::Renew(turn) => {
            Filling::begin(asked, turn, Some(Stale { entry, loaded }), request);
            Step::Next
        }
    }
}
