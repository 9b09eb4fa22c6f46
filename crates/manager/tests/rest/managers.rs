//! Two managers on one store and bus: requests that go to their owner, and operations that change hands.

use crate::client::{Answer, Client, Platform, push_of};
use crate::fleet::{FaultyStore, LooseBus, app, settings, until, until_async};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use towpath_bus::Bus;
use towpath_manager::Manager;
use towpath_manager::core::keys;
use towpath_store::{Query, Store};
use towpath_types::{Kind, ManagerId};
use towpath_wire::manager::{ApiCall, ApiReply, MAX_HOPS};
use towpath_wire::{decode, encode, subject};

/// A platform, and a second manager with a bus and a store of its own that can be taken away.
pub(crate) struct Pair {
    pub(crate) platform: Platform,
    pub(crate) second: Manager,
    bus: LooseBus,
    pub(crate) store: Arc<FaultyStore>,
    dir: tempfile::TempDir,
}

impl Pair {
    async fn start() -> Self {
        Self::start_with(false, false).await
    }

    /// With a key for secrets, or without: the first, and the second.
    pub(crate) async fn start_with(first: bool, own: bool) -> Self {
        let platform = Platform::start_with(|settings| {
            settings.evict_after_ms = 3_000;
            if first {
                crate::sealed::with_key(settings);
            }
        })
        .await;
        let dir = tempfile::tempdir().unwrap();
        let store = FaultyStore::new(platform.store.clone());
        let bus = LooseBus::new(platform.fleet.bus.clone());
        let mut settings = settings(dir.path());
        settings.evict_after_ms = 3_000;
        settings.cell_token_file = Some(dir.path().join("cell-token"));
        std::fs::write(dir.path().join("cell-token"), &platform.cell_token).unwrap();
        let key = dir.path().join("secrets.key");
        if first && own {
            std::fs::copy(platform.fleet.dir.path().join("secrets.key"), &key).unwrap();
        }
        settings.secrets_key_file = own.then_some(key);
        settings.make_secrets_key = own && !first;
        let second = Manager::start(settings, store.clone(), Arc::new(bus.clone())).await.unwrap();
        let pair = Self { platform, second, bus, store, dir };
        until("they know each other", || {
            let first = pair.platform.fleet.core().ownership.ring();
            first.members().len() == 2 && *first == *pair.second.core().ownership.ring()
        })
        .await;
        pair
    }

    /// The second manager's keys.
    pub(crate) fn key_file(&self) -> std::path::PathBuf {
        self.dir.path().join("secrets.key")
    }

    /// A client of the second manager.
    pub(crate) fn api(&self) -> Client {
        Client { address: self.second.api_address(), ..self.platform.api() }
    }

    fn first(&self) -> ManagerId {
        self.platform.fleet.core().manager
    }

    /// The name of an app that this manager owns.
    fn app_of(&self, owner: ManagerId) -> String {
        let owns =
            |name: &String| self.second.core().ownership.owner(&format!("default/default/{name}")) == owner;
        (0..1000).map(|n| format!("app-{n}")).find(owns).unwrap()
    }

    /// Sends a call as another manager, or a client of the bus, would.
    async fn call(&self, to: &str, call: ApiCall) -> ApiReply {
        let answer = self.platform.fleet.bus.request(to, encode(&call).into(), Duration::from_secs(10)).await;
        decode(&answer.unwrap()).unwrap()
    }

    fn put_app(&self, name: &str) -> ApiCall {
        ApiCall {
            epoch: self.platform.fleet.core().epoch(),
            correlation: "r1".into(),
            trace: None,
            deadline_ms: 5_000,
            hops: 1,
            from: None,
            method: "PUT".into(),
            target: format!("/v1/apps/{name}"),
            headers: vec![("authorization".into(), format!("Bearer {}", self.platform.token))],
            body: "{}".into(),
            sealed: None,
        }
    }

    async fn is_there(&self, name: &str) -> bool {
        self.platform.store.get(&keys::app_key(&app(name))).await.unwrap().is_some()
    }

    /// What the second manager can reach is gone, without anybody being told.
    fn cut_second(&self, cut: bool) {
        self.bus.cut(cut);
        self.store.set_down(cut);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_whose_answer_is_lost_is_sent_again_and_made_once() {
    let pair = Pair::start().await;
    let name = pair.app_of(pair.first());
    let path = format!("/v1/apps/{name}");
    let made = pair.api().put(&path, json!({})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    // The first try takes effect, so its condition does not hold any more when it is sent again.
    pair.bus.lose_answers(1);
    let change = json!({"env": {"A": "1"}});
    let changed = pair.api().with("if-match", &made.etag()).patch(&path, change).await;
    assert_eq!(pair.bus.answers_to_lose(), 0);
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    let record = pair.platform.store.get(&keys::app_key(&app(&name))).await.unwrap().unwrap();
    assert_eq!(record.generation.0, 2, "it was done once");
    assert_eq!(changed.etag(), format!("\"{}\"", record.revision));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_owner_did_before_it_went_is_not_done_again_by_the_next_one() {
    let mut pair = Pair::start().await;
    while pair.second.core().ownership.owner("tokens") != pair.first() {
        pair = Pair::start().await;
    }
    let name = pair.app_of(pair.first());
    let path = format!("/v1/apps/{name}");
    let made = pair.api().put(&path, json!({})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let store = pair.platform.store.clone();
    let count = |kind| {
        let store = store.clone();
        async move { store.list(&Query { kind: Some(kind), ..Query::default() }).await.unwrap().records.len() }
    };
    let tokens_before = count(Kind::Token).await;
    // None of these has a key of its client's.
    pair.bus.lose_answers(3);
    let (app_path, env_path, conditional) =
        (path.clone(), format!("{path}/env"), pair.api().with("if-match", &made.etag()));
    let (plain, tokens) = (pair.api(), pair.api());
    let changing =
        tokio::spawn(async move { conditional.patch(&app_path, json!({"env": {"A": "1"}})).await });
    let minting =
        tokio::spawn(
            async move { tokens.post("/v1/tokens", json!({"name": "t", "role": "developer"})).await },
        );
    let generation = || async { store.get(&keys::app_key(&app(&name))).await.unwrap().unwrap().generation.0 };
    until_async("the change is made", || async { generation().await == 2 }).await;
    let setting = tokio::spawn(async move { plain.patch(&env_path, json!({"B": "1"})).await });
    until_async("everything is made", || async {
        generation().await == 3
            && count(Kind::Operation).await == 1
            && count(Kind::Token).await > tokens_before
    })
    .await;
    let client = pair.api();
    pair.platform.fleet.stop().await;
    let (changed, minted, set) = (changing.await.unwrap(), minting.await.unwrap(), setting.await.unwrap());
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    assert_eq!(set.status, StatusCode::ACCEPTED, "{}", set.text());
    assert_eq!(minted.status, StatusCode::CREATED, "{}", minted.text());
    let own = Client { token: Some(minted.json()["token"].as_str().unwrap().to_owned()), ..client };
    assert_eq!(own.get("/v1/whoami").await.json()["name"], "t");
    assert_eq!((generation().await, count(Kind::Operation).await), (3, 1));
}

/// How many managers say that they have the active key.
async fn holders(pair: &Pair) -> usize {
    let record = pair.platform.store.get(&keys::keyring_key()).await.unwrap();
    let Some(record) = record else { return 0 };
    let managers = record.status["managers"].as_object().cloned().unwrap_or_default();
    managers.values().filter(|keys| keys.as_array().unwrap().contains(&record.spec["active"])).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_that_may_be_secret_goes_to_its_owner_sealed_however_it_is_written() {
    let pair = Pair::start_with(true, true).await;
    until_async("both have the key", async || holders(&pair).await == 2).await;
    let name = pair.app_of(pair.first());
    let path = format!("/v1/apps/{name}");
    assert_eq!(pair.api().put(&path, json!({})).await.status, StatusCode::CREATED);
    let mut seen = pair.platform.fleet.bus.subscribe(&subject::service("api", pair.first())).await.unwrap();
    for body in
        [json!({"TOKEN": {"secret": "hunter2"}}), json!({"TOKEN": "hunter2-2"}), json!({"A": "hunter2"})]
    {
        let answer = pair.api().patch(&format!("{path}/env"), body).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
        pair.platform.end_of(&answer).await;
        let payload = seen.next().await.unwrap().payload;
        assert!(!String::from_utf8_lossy(&payload).contains("hunter2"));
        let call: ApiCall = decode(&payload).unwrap();
        assert!(call.sealed.is_some() && call.body.is_empty(), "{call:?}");
    }
    let env = pair.platform.api().get(&format!("{path}/env")).await.json();
    assert_eq!((&env["env"]["A"], &env["secrets"]["TOKEN"]["secret"]), (&json!("hunter2"), &json!(true)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_its_owner_has_no_key_for_is_done_where_it_came() {
    let pair = Pair::start_with(false, true).await;
    until_async("the second has a key", async || holders(&pair).await == 1).await;
    let path = format!("/v1/apps/{}", pair.app_of(pair.first()));
    let mut seen = pair.platform.fleet.bus.subscribe(&subject::service("api", pair.first())).await.unwrap();
    // The second may not have read what the store says yet; with it known there is no other way for a secret.
    until_async("secrets can be set", async || {
        pair.api().get("/v1/secrets").await.json()["ready"] == json!(true)
    })
    .await;
    assert_eq!(pair.api().put(&path, json!({"env": {"A": "hunter2"}})).await.status, StatusCode::CREATED);
    let answer = pair.api().patch(&format!("{path}/env"), json!({"TOKEN": {"secret": "hunter2"}})).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text());
    let env = until_set(&pair, &format!("{path}/env")).await;
    assert_eq!(env["env"]["A"], "hunter2");
    let sent = tokio::time::timeout(Duration::from_millis(200), seen.next()).await;
    assert!(sent.is_err(), "nothing went to the owner");
}

async fn until_set(pair: &Pair, path: &str) -> Value {
    until_async("the secret is set", async || {
        pair.api().get(path).await.json()["secrets"]["TOKEN"]["secret"] == json!(true)
    })
    .await;
    pair.api().get(path).await.json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_has_one_owner_however_it_is_written() {
    let pair = Pair::start().await;
    let name = pair.app_of(pair.first());
    let mut seen = pair.platform.fleet.bus.subscribe(&subject::service("api", pair.first())).await.unwrap();
    let coded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let answer = pair.api().put(&format!("/v1/apps/{coded}?org=%64efault"), json!({})).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text());
    let call: ApiCall = decode(&seen.next().await.unwrap().payload).unwrap();
    assert!(call.target.contains(&coded), "{call:?}");
    assert!(pair.is_there(&name).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_too_late_or_was_sent_on_too_often_is_not_begun() {
    let pair = Pair::start().await;
    let second = pair.second.core().manager;
    let (own, other) = (pair.app_of(second), pair.app_of(pair.first()));
    let to = subject::service("api", second);
    let not_mine = |reply: ApiReply| matches!(reply, ApiReply::NotMine { .. });
    // It owns this, but it is too late.
    assert!(not_mine(pair.call(&to, ApiCall { deadline_ms: 0, ..pair.put_app(&own) }).await));
    // It does not own this, and it has come far enough.
    assert!(not_mine(pair.call(&to, ApiCall { hops: MAX_HOPS, ..pair.put_app(&other) }).await));
    // It is from before this manager joined.
    assert!(not_mine(pair.call(&to, ApiCall { epoch: 0, ..pair.put_app(&own) }).await));
    assert!(!pair.is_there(&own).await && !pair.is_there(&other).await);
    // One that found the wrong owner early enough is sent on.
    let ApiReply::Answer { status, .. } = pair.call(&to, pair.put_app(&other)).await else { panic!() };
    assert_eq!(status, 201);
    assert!(pair.is_there(&other).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_the_bus_are_served_by_any_manager_through_one_queue_group() {
    let pair = Pair::start().await;
    for n in 0..12 {
        let name = format!("bus-{n}");
        // A client of the bus knows no epoch.
        let call = ApiCall { epoch: 0, hops: 0, ..pair.put_app(&name) };
        let ApiReply::Answer { status, body, .. } = pair.call(subject::API, call).await else { panic!() };
        assert_eq!(status, 201, "{body}");
        assert!(pair.is_there(&name).await);
    }
    let nobody = ApiCall { headers: Vec::new(), ..pair.put_app("bus-x") };
    let ApiReply::Answer { status, .. } = pair.call(subject::API, nobody).await else { panic!() };
    assert_eq!(status, 401, "the bus gives no rights");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_is_cancelled_through_any_manager() {
    let pair = Pair::start().await;
    let source = pair.platform.upload("one").await;
    pair.platform.stager.hold(true);
    let name = pair.app_of(pair.first());
    let accepted = pair.api().post(&format!("/v1/apps/{name}/releases"), push_of(source)).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text());
    until("it is being built", || pair.platform.stager.jobs().len() == 1).await;
    let path = format!("/v1/operations/{}", accepted.json()["id"].as_str().unwrap());
    let cancelled = pair.api().send(Method::POST, &format!("{path}/cancel"), "").await;
    assert_eq!(cancelled.status, StatusCode::ACCEPTED, "{}", cancelled.text());
    let end = pair.platform.end_of(&accepted).await;
    assert_eq!(end["phase"], "failed", "{end}");
    until("the build is ended", || pair.platform.stager.cancelled() == 1).await;
    assert!(!pair.is_there(&name).await);
}

/// The manager that runs an operation is gone while it builds: the next owner takes it up, to its end; who follows it at
/// another manager is told all that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_goes_on_at_the_next_owner_and_so_does_its_stream() {
    let pair = Pair::start().await;
    let source = pair.platform.upload("one").await;
    pair.platform.stager.hold(true);
    let name = pair.app_of(pair.second.core().manager);
    let accepted = pair.platform.api().post(&format!("/v1/apps/{name}/releases"), push_of(source)).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text());
    until("it is being built", || pair.platform.stager.jobs().len() == 1).await;
    let path = format!("/v1/operations/{}", accepted.json()["id"].as_str().unwrap());
    // Followed at the first manager, run by the second.
    let api = pair.platform.api();
    let events = format!("{path}/events");
    let following = tokio::spawn(async move { api.get(&events).await });
    pair.cut_second(true);
    until("it is built for the first manager", || pair.platform.stager.jobs().len() == 2).await;
    pair.platform.stager.hold(false);
    let end = pair.platform.end_of(&accepted).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    let told = following.await.unwrap().text();
    let done = told.split("event: done\ndata: ").nth(1).unwrap_or_else(|| panic!("no end: {told}"));
    assert_eq!(serde_json::from_str::<Value>(done.trim()).unwrap()["phase"], "succeeded");
    let numbers: Vec<u64> = told.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    // The one that was gone finds out, and does nothing more about it.
    let generation =
        || async { pair.platform.store.get(&keys::app_key(&app(&name))).await.unwrap().unwrap().generation };
    let before = generation().await;
    pair.cut_second(false);
    let core = pair.second.core();
    until("it has joined anew", || core.may_act() && core.members.all().len() == 2).await;
    let status = pair.api().get(&path).await.json();
    assert_eq!((&status["phase"], generation().await), (&json!("succeeded"), before));
    let group = pair.platform.fleet.group(&keys::GroupRef::new(app(&name), towpath_types::LaneName::base()));
    assert_eq!(group.status.assignments.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_does_not_grow_without_bound_while_its_owner_is_gone() {
    let pair = Pair::start().await;
    let second = pair.second.core().manager;
    let name = pair.app_of(second);
    pair.cut_second(true);
    let change = |n: usize| {
        let (api, path) = (pair.platform.api(), format!("/v1/apps/{name}?wait_timeout={n}ms"));
        async move { api.put(&path, json!({})).await }
    };
    let answers: Vec<Answer> = futures::future::join_all((1..=700).map(change)).await;
    let mut counts = std::collections::BTreeMap::new();
    for answer in &answers {
        let status = answer.status.as_u16();
        *counts.entry(status).or_insert(0) += 1;
        assert!(
            answer.status.is_success() || answer.headers.contains_key("retry-after"),
            "{}: {}",
            answer.status,
            answer.text()
        );
    }
    // Half of the places are one org's; what was taken is done by the next owner, what was not is told so at once.
    assert!(counts.get(&429).is_some_and(|refused| *refused >= 188), "{counts:?}");
    assert!(counts.iter().all(|(status, _)| matches!(status, 200 | 201 | 429 | 503)), "{counts:?}");
    until_async("it is served again", || async {
        pair.platform.api().put(&format!("/v1/apps/{name}"), json!({})).await.status.is_success()
    })
    .await;
    assert_eq!(pair.platform.fleet.core().changes.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_whose_answer_is_lost_on_the_way_is_the_one_that_comes() {
    let owner = |pair: &Pair| pair.second.core().ownership.owner("tokens");
    let mut pair = Pair::start().await;
    while owner(&pair) != pair.first() {
        pair = Pair::start().await;
    }
    let seed = format!("twp_{}", "A".repeat(43));
    for (n, body) in [json!({}), json!({"ttl": "1h"})].into_iter().enumerate() {
        pair.bus.lose_answers(1);
        let mut whole = json!({"name": format!("t{n}"), "role": "developer"});
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        let made = pair.api().with("x-towpath-seed", &seed).post("/v1/tokens", whole).await;
        assert_eq!(pair.bus.answers_to_lose(), 0);
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let token = made.json()["token"].as_str().unwrap().to_owned();
        assert_ne!(token, seed, "clients do not choose tokens");
        let own = Client { token: Some(token), ..pair.api() };
        assert_eq!(own.get("/v1/whoami").await.json()["name"], format!("t{n}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_count_logins_together() {
    let pair = Pair::start().await;
    let password = "correct horse battery staple";
    for name in ["ann", "ben"] {
        pair.api().put(&format!("/v1/users/{name}"), json!({"password": password})).await;
    }
    let attempt = async |n: usize, user: &str, password: &str| {
        let client = if n.is_multiple_of(2) { pair.platform.api() } else { pair.api() };
        let anybody = Client { token: None, ..client };
        anybody.post("/v1/login", json!({"user": user, "password": password})).await.status.as_u16()
    };
    let mut ann = Vec::new();
    for n in 0..14 {
        ann.push(attempt(n, "ann", "wrong password").await);
    }
    assert_eq!(ann, [[401; 10].as_slice(), &[429; 4]].concat(), "ten for a user, whoever is asked");
    assert_eq!([attempt(0, "ben", password).await, attempt(1, "ben", password).await], [201, 201]);
    let mut others = Vec::new();
    for n in 0..20 {
        others.push(attempt(n, &format!("u{n}"), "wrong password").await);
    }
    // Fourteen for ann came from here, too.
    assert_eq!(others, [[401; 16].as_slice(), &[429; 4]].concat(), "thirty from an address");
}
