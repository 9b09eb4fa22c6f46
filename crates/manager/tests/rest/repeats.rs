//! Requests that are sent again under the same `Idempotency-Key`.

use crate::client::{Answer, Platform, push_of};
use http::StatusCode;
use serde_json::json;
use std::collections::BTreeSet;

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_request_for_a_token_gets_that_token() {
    let platform = Platform::start().await;
    let api = platform.api().with("idempotency-key", "k1");
    let body = json!({"name": "ci", "role": "developer", "ttl": "1h"});
    let made = api.post("/v1/tokens", body.clone()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let again = api.post("/v1/tokens", body.clone()).await;
    assert_eq!((again.status, again.body), (made.status, made.body));
    let other = platform.api().with("idempotency-key", "k2").post("/v1/tokens", body).await;
    assert_eq!(other.code(), "conflict", "another request wants one of this name");
}

/// A request, and another body for it.
type Pair<'a> = (&'a str, String, serde_json::Value, serde_json::Value);

/// Endpoints with a JSON body for which a key means nothing, and why.
const WITHOUT: [(&str, &str); 2] =
    [("POST /v1/login", "each login is another session"), ("POST /v1/explain", "it changes nothing")];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_with_another_body_is_refused_by_every_endpoint_that_takes_one() {
    let platform = Platform::start().await;
    let api = platform.api();
    let (one, two) = (platform.upload("one").await, platform.upload("two").await);
    platform.push("shop", push_of(one)).await;
    platform.push("shop", push_of(two)).await;
    api.put("/v1/users/ann", json!({"password": "ann's password"})).await;
    let session = api.post("/v1/login", json!({"user": "ann", "password": "ann's password"})).await.json();
    let ann = platform.api_as(session["token"].as_str().unwrap());
    let user = |password: &str| json!({"password": password});
    let own = |new: &str| json!({"current": "ann's password", "new": new});
    let at = |path: &str| path.to_owned();
    let token = |role: &str| json!({"name": "t", "role": role});
    let route = |app: &str| json!({"host": "a.example", "app": app});
    let cell = format!("/v1/cells/{}", platform.cell.id);
    let pairs: Vec<Pair> = vec![
        ("PUT /v1/orgs/{org}", at("/v1/orgs/acme"), json!({}), json!({"quota": {"lanes": 1}})),
        ("PUT /v1/orgs/{org}/quota", at("/v1/orgs/acme/quota"), json!({"lanes": 2}), json!({"lanes": 3})),
        ("PUT /v1/users/{user}", at("/v1/users/ben"), user("one password"), user("other password")),
        (
            "PUT /v1/orgs/{org}/members/{user}",
            at("/v1/orgs/acme/members/ann"),
            json!({"role": "viewer"}),
            json!({"role": "owner"}),
        ),
        ("PUT /v1/password", at("/v1/password"), own("one password"), own("other password")),
        ("POST /v1/tokens", at("/v1/tokens"), token("viewer"), token("owner")),
        ("PUT /v1/apps/{app}", at("/v1/apps/other"), json!({}), json!({"env": {"A": "1"}})),
        ("PATCH /v1/apps/{app}", at("/v1/apps/shop"), json!({"env": {"A": "1"}}), json!({"env": {"A": "2"}})),
        ("PATCH /v1/apps/{app}/env", at("/v1/apps/shop/env"), json!({"A": "1"}), json!({"A": "2"})),
        ("POST /v1/apps/{app}/releases", at("/v1/apps/shop/releases"), push_of(one), push_of(two)),
        (
            "PATCH /v1/apps/{app}/groups/{lane}",
            at("/v1/apps/shop/groups/base"),
            json!({"count": 1}),
            json!({"count": 2}),
        ),
        ("POST /v1/apps/{app}/rollback", at("/v1/apps/shop/rollback"), json!({}), json!({"lane": "base"})),
        ("PUT /v1/lanes/{lane}", at("/v1/lanes/blue"), json!({}), json!({"kind": "local"})),
        (
            "PATCH /v1/space",
            at("/v1/space"),
            json!({"lanes": {"mode": "strict"}}),
            json!({"lanes": {"mode": "permissive"}}),
        ),
        ("PUT /v1/routes", at("/v1/routes"), route("shop"), route("other")),
        ("PATCH /v1/cells/{cell}", cell, json!({"note": "x"}), json!({"note": "y"})),
    ];
    let mut seen: BTreeSet<String> = WITHOUT.iter().map(|(endpoint, _)| (*endpoint).to_owned()).collect();
    for (n, (endpoint, target, first, second)) in pairs.into_iter().enumerate() {
        let client = if endpoint == "PUT /v1/password" { &ann } else { &api };
        let keyed = client.clone().with("idempotency-key", &format!("key-{n}"));
        let method: http::Method = endpoint.split_once(' ').unwrap().0.parse().unwrap();
        let done = keyed.json(method.clone(), &target, first.clone()).await;
        assert!(done.status.is_success(), "{endpoint}: {}", done.text());
        let refused = keyed.json(method.clone(), &target, second).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{endpoint}: {}", refused.text());
        assert_eq!(refused.fields(), ["Idempotency-Key"], "{endpoint}");
        let again = keyed.json(method, &target, first).await;
        assert_eq!(again.status, done.status, "{endpoint}: {}", again.text());
        if done.status == StatusCode::ACCEPTED {
            platform.end_of(&done).await;
        }
        seen.insert(endpoint.to_owned());
    }
    let document = api.get("/openapi.json").await.json();
    let mut all = BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation["requestBody"]["content"].get("application/json").is_some() {
                all.insert(format!("{} {path}", method.to_uppercase()));
            }
        }
    }
    assert_eq!(seen, all, "undeclared, or gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_delete_gets_the_first_answer() {
    let platform = Platform::start().await;
    let api = platform.api();
    api.put("/v1/orgs/acme", json!({})).await;
    api.put("/v1/users/ann", json!({"password": "ann's password"})).await;
    api.put("/v1/orgs/acme/members/ann", json!({"role": "viewer"})).await;
    api.put("/v1/orgs/acme/spaces/test", json!({})).await;
    for (n, target) in
        ["/v1/orgs/acme/members/ann", "/v1/orgs/acme/spaces/test", "/v1/orgs/acme", "/v1/users/ann"]
            .into_iter()
            .enumerate()
    {
        let keyed = api.clone().with("idempotency-key", &format!("k{n}"));
        for _ in 0..2 {
            let gone = keyed.delete(target).await;
            assert_eq!(gone.status, StatusCode::NO_CONTENT, "{target}: {}", gone.text());
        }
        assert_eq!(api.delete(target).await.status, StatusCode::NOT_FOUND, "{target}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_body_is_compared_too() {
    let platform = Platform::start().await;
    let api = platform.api().with("idempotency-key", "k1").with("content-type", "application/json");
    // Larger than what managers send to each other.
    let app = |value: &str| format!(r#"{{{}"env": {{"A": "{value}"}}}}"#, " ".repeat(500_000));
    let put = async |value: &str| api.send(http::Method::PUT, "/v1/apps/shop", app(value)).await;
    let made = put("x").await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    assert_eq!(put("y").await.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(put("x").await.status, StatusCode::CREATED);
}
