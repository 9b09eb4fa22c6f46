//! Values of variables are kept by the app and its groups alone, not by the operations that set them.

use crate::client::{Answer, Platform, push_of};
use crate::fleet::{app, until};
use crate::stager::Stager;
use http::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use towpath_manager::core::keys::{self, GroupRef};
use towpath_store::{Query, Store, Transaction};
use towpath_types::{Digest, Kind, LaneName};

const SECRET: &str = "hunter2-is-secret";

/// The operations as stored.
async fn stored(platform: &Platform) -> String {
    let query = Query { kind: Some(Kind::Operation), ..Query::default() };
    format!("{:?}", platform.store.list(&query).await.unwrap().records)
}

fn id_of(accepted: &Answer) -> String {
    accepted.json()["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_gone_from_an_operation_as_soon_as_its_change_is_made_or_it_ends() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let body = json!({"source": source, "env": {"PASSWORD": SECRET}});
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", body.clone()).await;
    until("it is being built", || platform.stager.jobs().len() == 1).await;
    assert!(stored(&platform).await.contains(SECRET), "another manager could go on with it");
    platform.stager.hold(false);
    assert_eq!(platform.end_of(&accepted).await["phase"], "succeeded");
    for (path, body) in [
        ("/v1/apps/shop/env", json!({"PASSWORD": SECRET})),
        ("/v1/apps/shop/env?lane=base", json!({"TOKEN": SECRET})),
        ("/v1/apps/shop/groups/base", json!({"env": {"KEY": SECRET}})),
    ] {
        let accepted = platform.api().patch(&format!("{path}{}wait=revision", sep(path)), body).await;
        assert_eq!(accepted.status, StatusCode::ACCEPTED, "{accepted:?}");
        assert!(!stored(&platform).await.contains(SECRET), "{path}: its change is made");
        assert_eq!(platform.end_of(&accepted).await["phase"], "succeeded");
    }
    let failed =
        json!({"source": source, "builder": "fail", "env": {"PASSWORD": SECRET, "BUILD_KEY": SECRET}});
    assert_eq!(platform.push("shop", failed).await["code"], "build_failed");
    let left = stored(&platform).await;
    assert!(!left.contains(SECRET), "{left}");
    assert!(left.contains("PASSWORD"), "names are told yet: {left}");
    let group = platform.fleet.group(&GroupRef::new(app("shop"), LaneName::base()));
    assert_eq!(
        (group.spec.env["PASSWORD"].plain(), group.spec.env["KEY"].plain()),
        (Some(SECRET), Some(SECRET))
    );
}

fn sep(path: &str) -> char {
    if path.contains('?') { '&' } else { '?' }
}

/// The store's name for an idempotency key.
fn remembered_as(method: &str, path: &str, key: &str) -> String {
    let mut hash = Sha256::new();
    for part in ["first", method, path, key] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    Digest::from_bytes(hash.finalize().into()).hex()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_is_known_without_its_values_being_kept() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let body = |value: &str| json!({"source": source, "env": {"PASSWORD": value}});
    let path = "/v1/apps/shop/releases";
    let api = platform.api().with("idempotency-key", "push-1");
    let first = api.post(path, body(SECRET)).await;
    assert_eq!(platform.end_of(&first).await["phase"], "succeeded");
    let again = api.post(path, body(SECRET)).await;
    assert_eq!((again.status, id_of(&again)), (StatusCode::ACCEPTED, id_of(&first)));
    let other = api.post(path, body("another")).await;
    assert_eq!(other.code(), "invalid", "{}", other.text());
    // What the store remembers of the key is the first answer, which is asked for here as it is.
    let idempotency = Some(remembered_as("POST", path, "push-1").into());
    let asked = Transaction { writes: Vec::new(), fence: None, idempotency };
    let remembered = format!("{:?}", platform.store.commit(asked).await.unwrap());
    assert!(remembered.contains(&id_of(&first)) && !remembered.contains(SECRET), "{remembered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_keyed_push_with_values_is_taken_up_again_after_a_restart() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.stager.hold(true);
    let api = platform.api().with("idempotency-key", "push-1");
    let body = json!({"source": source, "env": {"PASSWORD": SECRET}});
    let accepted = api.post("/v1/apps/shop/releases", body).await;
    until("it is being built", || platform.stager.jobs().len() == 1).await;
    platform.stager.stop();
    platform.fleet.restart().await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    assert_eq!(platform.end_of(&accepted).await["phase"], "succeeded");
    assert_eq!(platform.cell.specs()[0].env["PASSWORD"], SECRET);
    assert!(!stored(&platform).await.contains(SECRET));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_whose_values_were_not_stored_any_more_ends_and_says_so() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", push_of(source)).await;
    until("it is being built", || platform.stager.jobs().len() == 1).await;
    // As if the manager had ended between the two writes of a new operation.
    let key = keys::operation_key(id_of(&accepted).parse().unwrap());
    let record = platform.store.get(&key).await.unwrap().unwrap();
    let mut spec: Value = record.spec.clone();
    spec["input"]["env"] = json!({"PASSWORD": null});
    spec["input"]["blank"] = json!(true);
    platform.fleet.put(key, spec).await;
    platform.stager.stop();
    platform.fleet.restart().await;
    let end = platform.end_of(&accepted).await;
    assert_eq!(end["phase"], "failed", "{end}");
    assert!(end["message"].as_str().unwrap().contains("send it again"), "{end}");
}
