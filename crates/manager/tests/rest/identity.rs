//! Users, sessions, orgs and their members, and a data directory of an earlier version.

use crate::client::{Client, Platform};
use crate::fleet::{Fleet, until};
use http::StatusCode;
use serde_json::{Value, json};
use std::sync::Arc;
use towpath_store::{SqliteStore, Store};

/// Makes a token of an org; gives the token.
pub(crate) async fn token(operator: &Client, org: &str, body: Value) -> String {
    let made = operator.post(&format!("/v1/tokens?org={org}"), body).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    made.json()["token"].as_str().unwrap().to_owned()
}

pub(crate) const PASSWORD: &str = "correct horse battery staple";

pub(crate) async fn user(operator: &Client, name: &str) {
    let made = operator.put(&format!("/v1/users/{name}"), json!({"password": PASSWORD})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
}

pub(crate) async fn login(platform: &Platform, name: &str, password: &str) -> Client {
    let anybody = Client { token: None, ..platform.api() };
    let session = anybody.post("/v1/login", json!({"user": name, "password": password})).await;
    assert_eq!(session.status, StatusCode::CREATED, "{}", session.text());
    platform.api_as(session.json()["token"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_log_in_and_have_the_roles_of_their_memberships_at_once() {
    let platform = Platform::start().await;
    let operator = platform.api();
    user(&operator, "ann").await;
    operator.put("/v1/orgs/acme", json!({})).await;
    let ann = login(&platform, "ann", PASSWORD).await;
    assert_eq!(ann.get("/v1/orgs/acme").await.status, StatusCode::NOT_FOUND);
    assert_eq!(ann.get("/v1/orgs").await.json()["items"], json!([]));
    let member = async |role: &str| operator.put("/v1/orgs/acme/members/ann", json!({"role": role})).await;
    assert_eq!(member("viewer").await.status, StatusCode::CREATED);
    assert_eq!(ann.get("/v1/apps?org=acme").await.status, StatusCode::OK);
    assert_eq!(ann.put("/v1/apps/shop?org=acme", json!({})).await.code(), "forbidden");
    assert_eq!(member("developer").await.status, StatusCode::OK);
    assert_eq!(ann.put("/v1/apps/shop?org=acme", json!({})).await.status, StatusCode::CREATED);
    assert_eq!(ann.put("/v1/orgs/acme/spaces/test", json!({})).await.code(), "forbidden");
    member("owner").await;
    assert_eq!(ann.put("/v1/orgs/acme/spaces/test", json!({})).await.status, StatusCode::CREATED);
    let me = ann.get("/v1/whoami").await.json();
    assert_eq!((&me["name"], &me["kind"], &me["role"]), (&json!("ann"), &json!("user"), &json!("member")));
    assert_eq!(me["orgs"], json!([{"org": "acme", "role": "owner"}]));
    let own =
        token(&ann, "acme", json!({"name": "ci", "role": "developer", "space": "test", "ttl": "1h"})).await;
    let ci = platform.api_as(&own);
    assert_eq!(ci.get("/v1/apps?org=acme&space=test").await.status, StatusCode::OK);
    assert_eq!(ci.get("/v1/apps?org=acme").await.status, StatusCode::NOT_FOUND, "bound to its space");
    let king = ann.post("/v1/tokens?org=acme", json!({"name": "k", "role": "operator"})).await;
    assert_eq!(king.code(), "forbidden");
    assert_eq!(operator.delete("/v1/orgs/acme/members/ann").await.status, StatusCode::NO_CONTENT);
    assert_eq!(ann.get("/v1/apps?org=acme").await.status, StatusCode::NOT_FOUND);
    assert_eq!(ann.send(http::Method::POST, "/v1/logout", "").await.status, StatusCode::NO_CONTENT);
    assert_eq!(ann.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_ends_with_its_password_its_user_or_its_time() {
    let platform = Platform::start().await;
    let operator = platform.api();
    user(&operator, "ann").await;
    let (first, second) = (login(&platform, "ann", PASSWORD).await, login(&platform, "ann", PASSWORD).await);
    let wrong = first.put("/v1/password", json!({"current": "wrong", "new": "another password"})).await;
    assert_eq!(wrong.fields(), ["current"]);
    let short = first.put("/v1/password", json!({"current": PASSWORD, "new": "short"})).await;
    assert_eq!(short.fields(), ["new"]);
    let changed = first.put("/v1/password", json!({"current": PASSWORD, "new": "another password"})).await;
    assert_eq!(changed.status, StatusCode::NO_CONTENT, "{}", changed.text());
    assert_eq!(first.get("/v1/whoami").await.status, StatusCode::OK, "the one that changed it goes on");
    assert_eq!(second.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED);
    let third = login(&platform, "ann", "another password").await;
    operator.put("/v1/users/ann", json!({"disabled": true})).await;
    assert_eq!(third.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED);
    operator.put("/v1/users/ann", json!({"disabled": false})).await;
    assert_eq!(third.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED, "it does not come back");
    operator.put("/v1/orgs/acme", json!({})).await;
    operator.put("/v1/orgs/acme/members/ann", json!({"role": "owner"})).await;
    operator.delete("/v1/users/ann").await;
    user(&operator, "ann").await;
    assert_eq!(
        third.get("/v1/whoami").await.status,
        StatusCode::UNAUTHORIZED,
        "another user of the same name"
    );
    let again = login(&platform, "ann", PASSWORD).await;
    assert_eq!(again.get("/v1/orgs/acme").await.status, StatusCode::NOT_FOUND, "nor is that one a member");
    let anybody = Client { token: None, ..platform.api() };
    let brief =
        anybody.post("/v1/login", json!({"user": "ann", "password": PASSWORD, "ttl": "1s"})).await.json();
    let brief = platform.api_as(brief["token"].as_str().unwrap());
    let deadline = tokio::time::Instant::now() + crate::fleet::SOON;
    while brief.get("/v1/whoami").await.status != StatusCode::UNAUTHORIZED {
        assert!(tokio::time::Instant::now() < deadline, "it does not end");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logins_are_refused_alike_and_limited_by_user_and_by_address() {
    let platform = Platform::start_with(|settings| {
        settings.limits.wrong_per_user_per_minute = 3;
        settings.limits.wrong_per_address_per_minute = 8;
    })
    .await;
    let operator = platform.api();
    user(&operator, "ann").await;
    user(&operator, "ben").await;
    operator.put("/v1/users/ben", json!({"disabled": true})).await;
    let anybody = Client { token: None, ..platform.api() };
    let attempt = async |user: &str, password: &str| {
        anybody.post("/v1/login", json!({"user": user, "password": password})).await
    };
    let plain = |answer: &crate::client::Answer| {
        let mut problem = answer.json();
        problem["instance"] = Value::Null;
        (answer.status, problem)
    };
    let wrong = attempt("ann", "wrong password").await;
    assert_eq!(wrong.code(), "unauthorized");
    for (user, password) in [("nobody", PASSWORD), ("ben", PASSWORD), ("Not A Name", PASSWORD)] {
        assert_eq!(plain(&attempt(user, password).await), plain(&wrong), "{user}");
    }
    // A right password does not count as a wrong one.
    for _ in 0..4 {
        assert_eq!(attempt("ann", PASSWORD).await.status, StatusCode::CREATED);
    }
    for _ in 0..2 {
        assert_eq!(attempt("ann", "wrong password").await.code(), "unauthorized");
    }
    let paused = attempt("ann", PASSWORD).await;
    assert_eq!((paused.status.as_u16(), paused.code().as_str()), (429, "busy"));
    assert!(paused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() <= 60);
    // This address has used up all of its eight, whoever it asks for.
    assert_eq!(attempt("cat", PASSWORD).await.code(), "unauthorized");
    assert_eq!(attempt("dog", PASSWORD).await.code(), "busy");
    assert_eq!(operator.get("/v1/whoami").await.status, StatusCode::OK, "tokens are not held back");
    let stored = std::fs::read(platform.fleet.dir.path().join("store.db-wal")).unwrap_or_default();
    assert!(!stored.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orgs_and_spaces_go_when_they_are_empty_and_nothing_of_them_stays() {
    let platform = Platform::start().await;
    let operator = platform.api();
    user(&operator, "ann").await;
    operator.put("/v1/orgs/acme", json!({})).await;
    operator.put("/v1/orgs/acme/spaces/test", json!({})).await;
    operator.put("/v1/orgs/acme/members/ann", json!({"role": "owner"})).await;
    let own = platform.api_as(&token(&operator, "acme", json!({"name": "o", "role": "owner"})).await);
    operator.put("/v1/lanes/blue?org=acme&space=test", json!({})).await;
    operator.put("/v1/apps/shop?org=acme&space=test", json!({})).await;
    for path in ["/v1/orgs/acme", "/v1/orgs/acme/spaces/test"] {
        let refused = operator.delete(path).await;
        assert_eq!(refused.code(), "conflict", "{path}");
        assert!(refused.text().contains("shop"), "{}", refused.text());
    }
    let gone = operator.delete("/v1/apps/shop?org=acme&space=test").await;
    platform.end_of(&gone).await;
    assert_eq!(operator.delete("/v1/orgs/acme/spaces/test").await.status, StatusCode::NO_CONTENT);
    assert_eq!(operator.get("/v1/lanes/blue?org=acme&space=test").await.status, StatusCode::NOT_FOUND);
    assert_eq!(operator.delete("/v1/orgs/acme").await.status, StatusCode::NO_CONTENT);
    assert_eq!(own.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED);
    operator.put("/v1/orgs/acme", json!({})).await;
    assert_eq!(operator.get("/v1/orgs/acme/members").await.json()["items"], json!([]), "nobody comes back");
    for stays in ["/v1/orgs/default", "/v1/orgs/default/spaces/default"] {
        assert_eq!(operator.delete(stays).await.code(), "conflict");
    }
    let wrong = operator.put("/v1/orgs/Acme_Inc", json!({})).await;
    assert!(wrong.text().contains("acme-inc"), "{}", wrong.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_data_directory_of_the_version_before_identity_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/store-before-identity.db");
    std::fs::copy(fixture, dir.path().join("store.db")).unwrap();
    // The tokens that were made with it.
    let first = "twp_OBhVXtSpBKwwvuJNIL-PAbcDDROWMDMHHV5Sn-Ixl0s";
    let (ci, eyes) = (
        "twp_ucxBUv_YpzDUFx0K6WVQE1k9lv0P_aloTLisNJVxFoM",
        "twp_ZKc1Oa6ke70gXgC7AAcsFGain9VzWqYCH3VLdP5nkgo",
    );
    let token_file = dir.path().join("token");
    std::fs::write(&token_file, first).unwrap();
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(&dir.path().join("store.db")).await.unwrap());
    let fleet = Fleet::start_with(dir, store, |settings| settings.first_token_file = Some(token_file)).await;
    let core = fleet.core();
    until("the manager is a member", || core.fence().is_some() && *core.cache_loaded().borrow()).await;
    let as_token = |token: &str| Client {
        address: fleet.manager.as_ref().unwrap().api_address(),
        token: Some(token.to_owned()),
        headers: Vec::new(),
    };
    let operator = as_token(first);
    assert_eq!(operator.get("/v1/whoami").await.json()["role"], "operator");
    assert_eq!(operator.get("/v1/apps/shop").await.json()["env"]["SECRET"], "s3cret");
    assert_eq!(operator.get("/v1/routes").await.json()["items"][0]["host"], "shop.example.com");
    let org = operator.get("/v1/orgs/default").await.json();
    assert_eq!((&org["spaces"], &org["quota"]), (&json!(["default"]), &json!({})));
    assert_eq!((&org["usage"]["lanes"], &org["usage"]["routes"]), (&json!(1), &json!(2)));
    operator.put("/v1/orgs/acme", json!({})).await;
    let ci = as_token(ci);
    assert_eq!(ci.put("/v1/apps/shop", json!({"env": {"A": "b"}})).await.status, StatusCode::OK);
    assert_eq!(ci.get("/v1/apps?org=acme").await.status, StatusCode::NOT_FOUND, "its org is `default`");
    let eyes = as_token(eyes);
    assert_eq!(eyes.get("/v1/lanes/blue").await.status, StatusCode::OK);
    assert_eq!(eyes.delete("/v1/lanes/blue").await.code(), "forbidden");
    assert_eq!(operator.put("/v1/orgs/default/quota", json!({"lanes": 1})).await.status, StatusCode::OK);
    assert_eq!(ci.put("/v1/lanes/red", json!({})).await.code(), "quota_exceeded");
    assert_eq!(operator.delete("/v1/tokens/ci").await.status, StatusCode::NO_CONTENT);
    assert_eq!(ci.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED);
}
