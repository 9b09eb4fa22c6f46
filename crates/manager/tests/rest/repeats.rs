//! Requests that are sent again under the same `Idempotency-Key`.

use crate::client::{Answer, Platform, push_of};
use http::StatusCode;
use serde_json::json;

fn same(first: &Answer, again: &Answer) {
    assert_eq!(again.status, first.status, "{}", again.text());
    assert_eq!(again.headers.get("etag"), first.headers.get("etag"));
    assert_eq!(again.body, first.body);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_gets_the_first_answer_whatever_its_condition_says_now() {
    let platform = Platform::start().await;
    let api = |key: &str| platform.api().with("idempotency-key", key);
    // What was to be made is there by now.
    let create = |key: &str| api(key).with("if-none-match", "*");
    let made = create("k1").put("/v1/apps/shop", json!({})).await;
    assert_eq!(made.status, StatusCode::CREATED);
    same(&made, &create("k1").put("/v1/apps/shop", json!({})).await);
    assert_eq!(create("k2").put("/v1/apps/shop", json!({})).await.code(), "stale_revision");
    // What was to be changed has another revision by now.
    let change = |key: &str| api(key).with("if-match", &made.etag());
    let body = json!({"env": {"A": "1"}});
    let changed = change("k3").patch("/v1/apps/shop", body.clone()).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    same(&changed, &change("k3").patch("/v1/apps/shop", body.clone()).await);
    assert_eq!(change("k4").patch("/v1/apps/shop", body).await.code(), "stale_revision");
    // What was to be deleted is gone by now.
    let lane = api("k5").put("/v1/lanes/blue", json!({})).await;
    let gone = |key: &str| api(key).with("if-match", &lane.etag());
    let deleted = gone("k6").delete("/v1/lanes/blue").await;
    assert!(deleted.status.is_success(), "{}", deleted.text());
    same(&deleted, &gone("k6").delete("/v1/lanes/blue").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_operation_is_the_first_one_even_when_what_it_changed_is_gone() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let groups = platform.api().get("/v1/apps/shop/groups").await.json();
    let etag = format!("\"{}\"", groups["items"][0]["revision"]);
    let api = platform.api().with("idempotency-key", "k1").with("if-match", &etag);
    let path = "/v1/apps/shop/groups/base";
    let first = api.patch(path, json!({"count": 2})).await;
    assert_eq!(platform.end_of(&first).await["phase"], "succeeded");
    let again = api.patch(path, json!({"count": 2})).await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::ACCEPTED, &first.json()["id"]));
    let delete = platform.api().with("idempotency-key", "k2");
    let deleting = delete.delete("/v1/apps/shop").await;
    assert_eq!(platform.end_of(&deleting).await["phase"], "succeeded");
    let again = delete.delete("/v1/apps/shop").await;
    assert_eq!((again.status, &again.json()["id"]), (StatusCode::ACCEPTED, &deleting.json()["id"]));
    let again = api.patch(path, json!({"count": 2})).await;
    assert_eq!(again.json()["id"], first.json()["id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_belongs_to_one_request_of_one_caller_at_one_path() {
    let platform = Platform::start().await;
    let api = platform.api().with("idempotency-key", "k1");
    assert_eq!(api.put("/v1/apps/shop", json!({"env": {"A": "1"}})).await.status, StatusCode::CREATED);
    let other = api.put("/v1/apps/shop", json!({"env": {"A": "2"}})).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", other.text());
    assert_eq!((other.code(), other.fields()), ("invalid".to_owned(), vec!["Idempotency-Key".to_owned()]));
    // Elsewhere the same text is another key, and another caller's too.
    assert_eq!(api.put("/v1/apps/other", json!({"env": {"A": "2"}})).await.status, StatusCode::CREATED);
    let token = platform.api().post("/v1/tokens", json!({"name": "ci", "role": "developer"})).await.json();
    let ci = platform.api_as(token["token"].as_str().unwrap()).with("idempotency-key", "k1");
    assert_eq!(ci.put("/v1/apps/shop", json!({"env": {"A": "3"}})).await.status, StatusCode::OK);
    let env = platform.api().get("/v1/apps/shop/env").await.json();
    assert_eq!(env["env"], json!({"A": "3"}));
}
