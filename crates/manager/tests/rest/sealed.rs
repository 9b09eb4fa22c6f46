//! Secret variables: sealed in the store, told to nobody but the cell that runs the instance, sealed anew by rotations.

use crate::client::{Answer, Platform, push_of};
use crate::fleet::{app, until, until_async};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::time::Duration;
use towpath_manager::ManagerSettings;
use towpath_manager::core::keys;
use towpath_secrets::{Recipient, Secret};
use towpath_store::Store;
use towpath_types::{CellId, Digest, Incarnation, Kind, Revision};
use towpath_wire::cell::{SyncPage, SyncRequest};
use towpath_wire::{decode, encode, subject};

/// In no other word of a test.
const VALUE: &str = "hunter2-s3cr3t-value";

/// What stands before the digest by which a request is known.
const REQUEST: &str = "\"request\":\"";

/// A manager that has made its key for secrets, and makes further ones itself.
pub(crate) fn with_key(settings: &mut ManagerSettings) {
    settings.secrets_key_file = settings.data_dir.parent().map(|dir| dir.join("secrets.key"));
    settings.make_secrets_key = true;
}

/// A platform with an app whose cell knows the cells' token.
pub(crate) async fn start() -> Platform {
    let platform = Platform::start_with(with_key).await;
    platform.cell.trust(Some(hash(&platform.cell_token)));
    let source = platform.upload("one").await;
    platform.push("shop", push_of(source)).await;
    platform
}

pub(crate) fn hash(token: &str) -> Digest {
    Digest::from_bytes(Sha256::digest(token.as_bytes()).into())
}

pub(crate) async fn set(platform: &Platform, path: &str, body: Value) -> Value {
    let accepted = platform.api().patch(path, body).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text());
    platform.end_of(&accepted).await
}

/// The secrets that the newest instance was given.
pub(crate) fn given(platform: &Platform) -> Vec<(String, String)> {
    let (secrets, _) = platform.cell.secrets();
    let specs = platform.cell.specs();
    let newest = specs.iter().map(|spec| spec.instance).max();
    newest.and_then(|instance| secrets.get(&instance).cloned()).into_iter().flatten().collect()
}

/// All bytes below a directory, but the key file's.
pub(crate) fn bytes_below(dir: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(bytes_below(&path));
        } else {
            all.extend(std::fs::read(&path).unwrap_or_default());
        }
    }
    all
}

pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

/// What every GET of the API answers.
async fn all_answers(platform: &Platform, operation: &Value) -> Vec<(String, Answer)> {
    let document = towpath_manager::api::openapi();
    let instance = platform.cell.specs()[0].instance.to_string();
    let operation = operation["id"].as_str().unwrap();
    let mut answers = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        if methods.get("get").is_none() {
            continue;
        }
        let id = if path.contains("operations") { operation } else { instance.as_str() };
        let filled = path
            .replace("{app}", "shop")
            .replace("{lane}", "base")
            .replace("{org}", "default")
            .replace("{cell}", &platform.cell.id.to_string())
            .replace("{digest}", &hash("x").to_string())
            .replace("{kind}", "routes")
            .replace("{*rest}", "uri")
            .replace("{id}", id);
        assert!(!filled.contains('{'), "{filled}: say what to fill in");
        answers.push((filled.clone(), platform.api().get(&filled).await));
    }
    let more = ["/v1/apps/shop/env?lane=base", "/v1/audit?limit=1000"];
    for path in more {
        answers.push((path.to_owned(), platform.api().get(path).await));
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_is_in_no_answer_and_nowhere_in_the_store_but_reaches_its_instance() {
    let platform = start().await;
    let push = json!({"source": platform.upload("two").await, "env": {"PUSHED": {"secret": VALUE}}});
    assert_eq!(platform.push("shop", push).await["phase"], "succeeded");
    let keyed = platform.api().with("idempotency-key", "k1");
    let body = json!({"TOKEN": {"secret": VALUE}, "LEVEL": "debug"});
    let accepted = keyed.patch("/v1/apps/shop/env", body.clone()).await;
    let operation = platform.end_of(&accepted).await;
    assert_eq!(operation["phase"], "succeeded", "{operation}");
    let again = keyed.patch("/v1/apps/shop/env", body).await;
    assert_eq!(again.json()["id"], operation["id"], "known again though nothing is sealed twice alike");
    let other =
        keyed.patch("/v1/apps/shop/env", json!({"TOKEN": {"secret": "another"}, "LEVEL": "debug"})).await;
    assert_eq!(other.code(), "invalid", "{}", other.text());
    set(&platform, "/v1/apps/shop/groups/base", json!({"env": {"LANES": {"secret": VALUE}}})).await;
    // What is secret stays so, however it is set.
    let keyed = platform.api().with("idempotency-key", "k2");
    let accepted = keyed.patch("/v1/apps/shop/env", json!({"TOKEN": format!("{VALUE}-2")})).await;
    let operation = platform.end_of(&accepted).await;
    until("the newest instance has them all", || {
        let wanted = [("LANES", VALUE), ("PUSHED", VALUE), ("TOKEN", "hunter2-s3cr3t-value-2")];
        given(&platform) == wanted.map(|(name, value)| (name.to_owned(), value.to_owned()))
    })
    .await;
    let spec = platform.cell.specs().into_iter().max_by_key(|spec| spec.instance).unwrap();
    assert_eq!(spec.env.get("LEVEL").map(String::as_str), Some("debug"));
    assert!(!spec.env.contains_key("TOKEN") && spec.secrets.contains("TOKEN"));

    let answers = all_answers(&platform, &operation).await;
    assert!(answers.len() > 25);
    for (path, answer) in &answers {
        assert!(!answer.text().contains(VALUE), "{path}: {}", answer.text());
    }
    let env = platform.api().get("/v1/apps/shop/env").await.json();
    assert_eq!((&env["env"], &env["secrets"]["TOKEN"]["secret"]), (&json!({"LEVEL": "debug"}), &json!(true)));
    assert_eq!(env["secrets"]["TOKEN"]["value"], Value::Null);
    let audit = platform.api().get("/v1/audit?limit=1000").await.text();
    assert!(audit.contains("\"env.TOKEN\"") && audit.contains("(secret)"), "{audit}");
    for refused in [json!({"PORT": {"secret": VALUE}}), json!({"BUILD_A": {"secret": VALUE}})] {
        let answer = platform.api().patch("/v1/apps/shop/env", refused).await;
        assert_eq!((answer.code().as_str(), answer.text().contains(VALUE)), ("invalid", false));
    }

    // The database with its write-ahead log, the manager's own files, and what the platform remembers of the key.
    let bytes = bytes_below(platform.fleet.dir.path());
    assert!(contains(&bytes, "tps1.") && contains(&bytes, "PUSHED"), "there is something to look at");
    assert!(!contains(&bytes, VALUE));
    let plain = Sha256::digest(VALUE.as_bytes());
    assert!(!contains(&bytes, &Digest::from_bytes(plain.into()).hex()));
    // Requests are known by digests that take a key, not by plain ones, which are hex.
    let digests: Vec<&[u8]> =
        bytes.windows(REQUEST.len() + 64).filter_map(|part| part.strip_prefix(REQUEST.as_bytes())).collect();
    assert!(digests.len() >= 2 && !digests.iter().any(|text| text.iter().all(u8::is_ascii_hexdigit)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_from_before_there_was_a_key_is_known_when_it_comes_again() {
    let mut platform = Platform::start().await;
    let body = json!({"env": {"A": "1"}});
    let first = platform.api().with("idempotency-key", "k1").put("/v1/apps/shop", body.clone()).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    towpath_secrets::create(&platform.fleet.dir.path().join("secrets.key")).unwrap();
    platform.fleet.restart().await;
    until_async("it can seal", async || {
        platform.api().get("/v1/secrets").await.json()["ready"] == json!(true)
    })
    .await;
    let keyed = platform.api().with("idempotency-key", "k1");
    let again = keyed.put("/v1/apps/shop", body).await;
    assert_eq!((again.status, again.etag()), (StatusCode::CREATED, first.etag()), "{}", again.text());
    let other = keyed.put("/v1/apps/shop", json!({"env": {"A": "2"}})).await;
    assert_eq!(other.code(), "invalid", "{}", other.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replacing_an_apps_settings_keeps_secrets_and_removing_takes_them() {
    let platform = start().await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}, "A": "1"})).await;
    let put = platform.api().put("/v1/apps/shop", json!({"env": {"B": "2"}})).await;
    assert_eq!(put.json()["env"], json!({"B": "2"}), "{}", put.text());
    assert_eq!(put.json()["secrets"]["TOKEN"]["secret"], true);
    let refused = platform.api().put("/v1/apps/shop", json!({"env": {"TOKEN": "x"}})).await;
    assert_eq!(refused.fields(), ["env.TOKEN"]);
    let patched = platform.api().patch("/v1/apps/shop", json!({"env": {"C": "3"}})).await;
    assert_eq!(patched.json()["secrets"]["TOKEN"]["secret"], true, "{}", patched.text());
    let removed = platform.api().patch("/v1/apps/shop", json!({"env": {"TOKEN": null}})).await;
    assert_eq!((&removed.json()["env"], removed.json().get("secrets")), (&json!({"B": "2", "C": "3"}), None));
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": "plain now"})).await;
    assert_eq!(platform.api().get("/v1/apps/shop/env").await.json()["env"]["TOKEN"], "plain now");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn setting_a_secret_to_what_it_is_replaces_nothing() {
    let platform = start().await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    let before: Vec<_> = platform.cell.specs().iter().map(|spec| spec.instance).collect();
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    assert_eq!(platform.cell.specs().iter().map(|spec| spec.instance).collect::<Vec<_>>(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bus_gives_secrets_to_no_stranger() {
    let platform = start().await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    let ask = async |proof: Option<Digest>, cell: CellId| {
        let mut request = SyncRequest {
            cell,
            incarnation: Incarnation(1),
            cursor: None,
            at_least: Revision(0),
            epoch: 0,
            proof: None,
            known: Default::default(),
        };
        let recipient = proof.map(|token| Recipient::new(token).unwrap());
        request.proof = recipient.as_ref().map(|recipient| recipient.proof(&request.who()));
        let bus = platform.fleet.bus();
        let answer = bus.request(subject::CELL_SYNC, encode(&request).into(), Duration::from_secs(5)).await;
        let bytes = answer.unwrap();
        assert!(!contains(&bytes, VALUE), "in the message");
        let page: SyncPage = decode(&bytes).unwrap();
        let opened = recipient.zip(page.parcel.clone()).map(|(r, parcel)| r.open(&request.who(), &parcel));
        (page, opened)
    };
    let (page, opened) = ask(Some(hash(&platform.cell_token)), platform.cell.id).await;
    assert!(opened.unwrap().unwrap().expose().contains(VALUE), "{page:?}");
    let (page, _) = ask(Some(hash("twp_something else")), platform.cell.id).await;
    assert!(page.parcel.is_none() && page.withheld.len() == page.instances.len(), "{page:?}");
    let (page, _) = ask(None, platform.cell.id).await;
    assert!(page.instances.is_empty() && page.parcel.is_none(), "a cell of an earlier version: {page:?}");
}

/// The keys as the API shows them.
pub(crate) async fn keys_of(platform: &Platform) -> Vec<Value> {
    platform.api().get("/v1/secrets").await.json()["keys"].as_array().unwrap().clone()
}

pub(crate) async fn rotated(platform: &Platform) -> Value {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    loop {
        let status = platform.api().get("/v1/secrets").await.json();
        let same = status["progress"]["asked_ms"] == status["rotation"]["asked_ms"];
        if same && status["progress"]["ended_ms"].is_u64() {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "{status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_seals_all_anew_replaces_nothing_and_outlives_a_restart() {
    let mut platform = start().await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    set(&platform, "/v1/apps/shop/env?lane=base", json!({"OWN": {"secret": VALUE}})).await;
    until("they are there", || given(&platform).len() == 2).await;
    let old = keys_of(&platform).await[0]["id"].clone();
    let before: Vec<_> = platform.cell.specs().iter().map(|spec| spec.instance).collect();
    let asked = platform.api().send(Method::POST, "/v1/secrets/rotate", Vec::new()).await;
    assert_eq!(asked.status, StatusCode::ACCEPTED, "{}", asked.text());
    // Cut off at once; whoever starts goes on.
    platform.fleet.restart().await;
    platform.cell.trust(Some(hash(&platform.cell_token)));
    let status = rotated(&platform).await;
    let keys = status["keys"].as_array().unwrap();
    assert_eq!((&keys[0]["active"], &keys[1]["id"], &keys[1]["values"]), (&json!(true), &old, &json!(0)));
    assert_eq!(keys[1]["removable"], true, "{status}");
    assert!(keys[0]["values"].as_u64().unwrap() >= 4, "app, group, and the group's versions: {status}");
    assert_eq!(platform.cell.specs().iter().map(|spec| spec.instance).collect::<Vec<_>>(), before);
    until("they are given as before", || given(&platform).len() == 2).await;

    // The old key goes from the file, and nothing is lost.
    let file = platform.fleet.dir.path().join("secrets.key");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.lines().next().unwrap()).unwrap();
    platform.fleet.restart().await;
    assert_eq!(keys_of(&platform).await.len(), 1);
    set(&platform, "/v1/apps/shop/env", json!({"MORE": {"secret": VALUE}})).await;
    until("all three are given", || given(&platform).len() == 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rotations_that_are_asked_for_at_once_add_one_key() {
    let platform = start().await;
    let rotate = || async { platform.api().send(Method::POST, "/v1/secrets/rotate", Vec::new()).await };
    let (a, b, c) = tokio::join!(rotate(), rotate(), rotate());
    assert!([&a, &b, &c].iter().any(|answer| answer.status == StatusCode::ACCEPTED), "{}", a.text());
    let ring = towpath_secrets::load(&platform.fleet.dir.path().join("secrets.key")).unwrap().unwrap();
    let most = [a, b, c].iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count();
    assert!((2..=1 + most).contains(&ring.keys().len()), "none without its rotation");
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    until("it is given", || given(&platform).len() == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_key_closes_its_apps_alone_and_is_not_replaced() {
    let mut platform = start().await;
    let source = platform.upload("two").await;
    platform.push("plain", push_of(source)).await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    until("it is there", || given(&platform).iter().any(|(name, _)| name == "TOKEN")).await;
    let file = platform.fleet.dir.path().join("secrets.key");
    let (kept, lost) = (std::fs::read(&file).unwrap(), keys_of(&platform).await[0]["id"].clone());
    std::fs::remove_file(&file).unwrap();
    towpath_secrets::create(&file).unwrap();
    platform.fleet.restart().await;

    let status = platform.api().get("/v1/secrets").await.json();
    assert_eq!(status["ready"], false, "{status}");
    assert!(status["trouble"].as_str().unwrap().contains(lost.as_str().unwrap()), "{status}");
    let keys = status["keys"].as_array().unwrap();
    let gone = keys.iter().find(|key| key["id"] == lost).unwrap();
    assert_eq!((&gone["active"], &gone["here"]), (&json!(true), &json!(false)), "never overwritten");
    assert_eq!(gone["closed"], json!(["default/default/shop"]));
    let refused = platform.api().patch("/v1/apps/shop/env", json!({"NEW": {"secret": VALUE}})).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (503, "secrets_unavailable"));
    assert_eq!(
        platform.api().send(Method::POST, "/v1/secrets/rotate", Vec::new()).await.status.as_u16(),
        503
    );
    until("the cell is told why", || {
        let (_, withheld) = platform.cell.secrets();
        withheld.values().any(|why| why.contains("TOKEN") && why.contains("not in the key file"))
    })
    .await;
    // The other app goes on, and can be changed.
    assert_eq!(platform.cell.specs().len(), 2, "nothing that runs is stopped");
    assert_eq!(set(&platform, "/v1/apps/plain/env", json!({"A": "1"})).await["phase"], "succeeded");

    std::fs::write(&file, kept).unwrap();
    until("the key is back", || {
        let (_, withheld) = platform.cell.secrets();
        withheld.is_empty()
    })
    .await;
    set(&platform, "/v1/apps/shop/env", json!({"NEW": {"secret": VALUE}})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sealed_value_that_is_copied_to_another_app_does_not_open() {
    let platform = start().await;
    let source = platform.upload("two").await;
    platform.push("thief", push_of(source)).await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    let victim = platform.store.get(&keys::app_key(&app("shop"))).await.unwrap().unwrap();
    let thief = platform.store.get(&keys::app_key(&app("thief"))).await.unwrap().unwrap();
    let stolen = victim.spec["env"]["TOKEN"].clone();
    let mut relabelled = stolen.clone();
    relabelled["of"] = json!(format!("app:{}", thief.id));
    for stolen in [stolen, relabelled] {
        let mut spec = thief.spec.clone();
        spec["env"]["TOKEN"] = stolen;
        platform.fleet.put(keys::app_key(&app("thief")), spec).await;
        until("it is kept from the thief", || {
            let (secrets, withheld) = platform.cell.secrets();
            let specs = platform.cell.specs();
            let thieves: Vec<_> = specs
                .iter()
                .filter(|spec| spec.app == app("thief") && spec.secrets.contains("TOKEN"))
                .map(|spec| spec.instance)
                .collect();
            assert!(thieves.iter().all(|instance| !secrets.contains_key(instance)));
            thieves.iter().any(|instance| withheld.contains_key(instance))
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_file_plain_variables_work_and_secrets_are_refused() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let refused = platform.api().patch("/v1/apps/shop/env", json!({"A": {"secret": VALUE}})).await;
    assert_eq!((refused.code().as_str(), refused.text().contains(VALUE)), ("secrets_unavailable", false));
    assert!(refused.text().contains("secrets_key_file"), "{}", refused.text());
    set(&platform, "/v1/apps/shop/env", json!({"A": "1"})).await;
    assert!(platform.store.get(&keys::keyring_key()).await.unwrap().is_none());
    assert_eq!(platform.fleet.core().cache.list(Kind::Keyring, None, None).len(), 0);
    assert_eq!(format!("{:?}", Secret::new(VALUE.into())), "(secret)");
}
