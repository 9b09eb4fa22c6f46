//! The audit log: one entry for each change, by every endpoint that changes something, without secrets.

use crate::access::endpoints;
use crate::client::{Client, Platform, push_of, source};
use crate::identity::token;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const PASSWORD: &str = "correct horse battery staple";
const SECRET: &str = "s3cret-value";

/// Endpoints whose method says that they change something although they leave no entry, and why.
const WITHOUT: [(&str, &str); 3] = [
    ("POST /apisix/admin/{kind}/{id}/{*rest}", "it judges"),
    ("POST /v1/explain", "it asks"),
    ("PUT /internal/v1/artifacts/{digest}", "it is a part of a push, whose entry is there already"),
];

async fn entries(operator: &Client) -> Vec<Value> {
    let page = operator.get("/v1/audit?limit=1000").await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text());
    page.json()["items"].as_array().unwrap().clone()
}

/// One change: its endpoint, its request, and the entry's action and resource.
type Change<'a> = (&'a str, String, Value, u16, &'a str, &'a str);

struct Checker<'a> {
    platform: &'a Platform,
    seen: BTreeSet<String>,
}

impl Checker<'_> {
    async fn makes(&mut self, client: &Client, (endpoint, target, body, status, action, name): Change<'_>) {
        let operator = self.platform.api();
        let before = entries(&operator).await.len();
        let method: Method = endpoint.split_once(' ').unwrap().0.parse().unwrap();
        let client = client.clone().with("x-request-id", &format!("r{before}"));
        let answer = match &body {
            Value::Null => client.send(method, &target, "").await,
            body => client.json(method, &target, body.clone()).await,
        };
        assert_eq!(answer.status.as_u16(), status, "{endpoint}: {}", answer.text());
        let after = entries(&operator).await;
        assert_eq!(after.len(), before + 1, "{endpoint} leaves exactly one entry");
        let entry = &after[0];
        assert_eq!((&entry["action"], &entry["name"]), (&json!(action), &json!(name)), "{endpoint}: {entry}");
        assert_eq!(entry["request"], format!("r{before}"), "{endpoint}");
        assert_eq!(entry["source"], "127.0.0.1", "{endpoint}");
        assert!(entry["to"].as_u64().unwrap() > entry["from"].as_u64().unwrap_or(0), "{endpoint}: {entry}");
        if status == 202 {
            self.platform.end_of(&answer).await;
        }
        self.seen.insert(endpoint.to_owned());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "one request for each endpoint, in the order in which they work")]
async fn every_endpoint_that_changes_something_leaves_one_entry_and_no_secret() {
    let platform = Platform::start_with(crate::sealed::with_key).await;
    let api = platform.api();
    let mut checker = Checker { platform: &platform, seen: BTreeSet::new() };
    let digest = platform.upload("one").await;
    let cell = platform.cell.id;
    let at = |path: &str| path.to_owned();
    let env = || json!({"env": {"KEY": SECRET}});
    let mut push = push_of(digest);
    push["env"] = json!({"PUSHED": SECRET});
    let changes: Vec<Change> = vec![
        ("PUT /v1/orgs/{org}", at("/v1/orgs/acme"), json!({}), 201, "org.put", "acme"),
        (
            "PUT /v1/orgs/{org}/quota",
            at("/v1/orgs/acme/quota"),
            json!({"lanes": 9}),
            200,
            "org.quota",
            "acme",
        ),
        (
            "PUT /v1/orgs/{org}/spaces/{space}",
            at("/v1/orgs/acme/spaces/test"),
            Value::Null,
            201,
            "space.put",
            "test",
        ),
        ("PUT /v1/users/{user}", at("/v1/users/ann"), json!({"password": PASSWORD}), 201, "user.put", "ann"),
        (
            "PUT /v1/orgs/{org}/members/{user}",
            at("/v1/orgs/acme/members/ann"),
            json!({"role": "viewer"}),
            201,
            "member.put",
            "ann",
        ),
        (
            "DELETE /v1/orgs/{org}/members/{user}",
            at("/v1/orgs/acme/members/ann"),
            Value::Null,
            204,
            "member.delete",
            "ann",
        ),
        (
            "POST /v1/tokens",
            at("/v1/tokens?org=acme"),
            json!({"name": "t", "role": "viewer"}),
            201,
            "token.create",
            "t",
        ),
        ("DELETE /v1/tokens/{name}", at("/v1/tokens/t?org=acme"), Value::Null, 204, "token.delete", "t"),
        (
            "DELETE /v1/orgs/{org}/spaces/{space}",
            at("/v1/orgs/acme/spaces/test"),
            Value::Null,
            204,
            "space.delete",
            "test",
        ),
        ("DELETE /v1/orgs/{org}", at("/v1/orgs/acme"), Value::Null, 204, "org.delete", "acme"),
        ("PUT /v1/apps/{app}", at("/v1/apps/shop"), env(), 201, "app.put", "shop"),
        (
            "PATCH /v1/apps/{app}",
            at("/v1/apps/shop"),
            json!({"env": {"MORE": SECRET}}),
            200,
            "app.change",
            "shop",
        ),
        (
            "PATCH /v1/apps/{app}/env",
            at("/v1/apps/shop/env"),
            json!({"LAST": SECRET}),
            202,
            "app.env",
            "shop",
        ),
        ("POST /v1/apps/{app}/releases", at("/v1/apps/shop/releases"), push, 202, "app.push", "shop:base:"),
        (
            "PATCH /v1/apps/{app}/groups/{lane}",
            at("/v1/apps/shop/groups/base"),
            env(),
            202,
            "group.change",
            "shop:base:",
        ),
        (
            "POST /v1/apps/{app}/groups/{lane}/restart",
            at("/v1/apps/shop/groups/base/restart"),
            Value::Null,
            202,
            "group.restart",
            "shop:base:",
        ),
        ("POST /v1/secrets/rotate", at("/v1/secrets/rotate"), Value::Null, 202, "secrets.rotate", "keyring"),
        ("PUT /v1/lanes/{lane}", at("/v1/lanes/blue"), json!({}), 201, "lane.put", "blue"),
        ("DELETE /v1/lanes/{lane}", at("/v1/lanes/blue"), Value::Null, 204, "lane.delete", "blue"),
        (
            "PATCH /v1/space",
            at("/v1/space"),
            json!({"lanes": {"mode": "strict"}}),
            200,
            "space.change",
            "default",
        ),
        (
            "PUT /v1/routes",
            at("/v1/routes"),
            json!({"host": "a.example", "app": "shop"}),
            201,
            "route.put",
            "a.example/",
        ),
        (
            "DELETE /v1/routes",
            at("/v1/routes?host=a.example"),
            Value::Null,
            204,
            "route.delete",
            "a.example/",
        ),
        (
            "PUT /apisix/admin/{kind}",
            at("/apisix/admin/consumers"),
            json!({"username": "jack", "plugins": {"key-auth": {"key": SECRET}}}),
            201,
            "resource.put",
            "consumers/jack",
        ),
        (
            "PUT /apisix/admin/{kind}/{id}",
            at("/apisix/admin/routes/1"),
            json!({"uri": "/a", "upstream": {"nodes": {"a.test:80": 1}}}),
            201,
            "resource.put",
            "routes/1",
        ),
        (
            "PATCH /apisix/admin/{kind}/{id}",
            at("/apisix/admin/routes/1"),
            json!({"uri": "/b"}),
            200,
            "resource.change",
            "routes/1",
        ),
        (
            "PATCH /apisix/admin/{kind}/{id}/{*rest}",
            at("/apisix/admin/routes/1/desc"),
            json!("x"),
            200,
            "resource.change",
            "routes/1",
        ),
        (
            "DELETE /apisix/admin/{kind}/{id}",
            at("/apisix/admin/routes/1"),
            Value::Null,
            200,
            "resource.delete",
            "routes/1",
        ),
        (
            "PUT /apisix/admin/{kind}/{id}/{*rest}",
            at("/apisix/admin/consumers/jack/credentials/c"),
            json!({"plugins": {"key-auth": {"key": format!("{SECRET}-c")}}}),
            201,
            "resource.put",
            "credentials/jack/credentials/c",
        ),
        (
            "DELETE /apisix/admin/{kind}/{id}/{*rest}",
            at("/apisix/admin/consumers/jack/credentials/c"),
            Value::Null,
            200,
            "resource.delete",
            "credentials/jack/credentials/c",
        ),
        (
            "PATCH /v1/cells/{cell}",
            format!("/v1/cells/{cell}"),
            json!({"note": "x"}),
            200,
            "cell.change",
            &*Box::leak(cell.to_string().into_boxed_str()),
        ),
    ];
    for change in changes {
        checker.makes(&api, change).await;
    }
    // Its name is made up: see the tests of resources.
    checker.seen.insert("POST /apisix/admin/{kind}".into());
    let two = platform.push("shop", push_of(platform.upload("two").await)).await;
    assert_eq!(two["phase"], "succeeded", "{two}");
    let back = (
        "POST /v1/apps/{app}/rollback",
        at("/v1/apps/shop/rollback"),
        json!({}),
        202,
        "app.rollback",
        "shop:base:",
    );
    checker.makes(&api, back).await;
    // An operation that can still be given up.
    platform.stager.hold(true);
    let held = api.post("/v1/apps/held/releases", push_of(platform.upload("three").await)).await.json();
    let id = held["id"].as_str().unwrap();
    let cancel = (
        "POST /v1/operations/{id}/cancel",
        format!("/v1/operations/{id}/cancel"),
        Value::Null,
        202,
        "operation.cancel",
        id,
    );
    let before = entries(&api).await.len();
    let given_up = api.send(Method::POST, &cancel.1, "").await;
    assert_eq!(given_up.status, StatusCode::ACCEPTED, "{}", given_up.text());
    let after = entries(&api).await;
    assert_eq!((after.len(), &after[0]["action"]), (before + 1, &json!(cancel.4)));
    checker.seen.insert(cancel.0.to_owned());
    platform.stager.hold(false);
    for (endpoint, target, action, name) in [
        ("DELETE /v1/apps/{app}/groups/{lane}", "/v1/apps/shop/groups/base", "group.delete", "shop:base:"),
        ("DELETE /v1/apps/{app}", "/v1/apps/shop", "app.delete", "shop"),
    ] {
        checker.makes(&api, (endpoint, at(target), Value::Null, 202, action, name)).await;
    }
    let anybody = Client { token: None, ..api.clone() };
    let body = json!({"user": "ann", "password": PASSWORD});
    checker
        .makes(&anybody, ("POST /v1/login", at("/v1/login"), body.clone(), 201, "session.login", "ann"))
        .await;
    let session = anybody.post("/v1/login", body).await.json();
    let ann = platform.api_as(session["token"].as_str().unwrap());
    let body = json!({"current": PASSWORD, "new": format!("{PASSWORD}!")});
    checker.makes(&ann, ("PUT /v1/password", at("/v1/password"), body, 204, "user.password", "ann")).await;
    checker
        .makes(&ann, ("POST /v1/logout", at("/v1/logout"), Value::Null, 204, "session.logout", "ann"))
        .await;
    let gone = ("DELETE /v1/users/{user}", at("/v1/users/ann"), Value::Null, 204, "user.delete", "ann");
    checker.makes(&api, gone).await;
    let (digest, bytes) = source("four");
    let before = entries(&api).await.len();
    let put = api.send(Method::PUT, &format!("/v1/sources/{digest}"), bytes).await;
    assert_eq!(put.status, StatusCode::CREATED);
    assert_eq!(entries(&api).await.len(), before + 1);
    checker.seen.insert("PUT /v1/sources/{digest}".to_owned());

    let reads = |endpoint: &&String| endpoint.starts_with("GET ") || endpoint.starts_with("HEAD ");
    let without: BTreeSet<String> = WITHOUT.iter().map(|(endpoint, _)| (*endpoint).to_owned()).collect();
    let declared: BTreeSet<String> = checker.seen.union(&without).cloned().collect();
    let all = endpoints(&anybody).await;
    let changing: BTreeSet<String> = all.keys().filter(|endpoint| !reads(endpoint)).cloned().collect();
    assert_eq!(declared, changing, "undeclared, or gone");

    let log = serde_json::to_string(&entries(&api).await).unwrap();
    for secret in [SECRET, PASSWORD, "argon2", "twp_", session["token"].as_str().unwrap()] {
        assert!(!log.contains(secret), "{secret} is in the audit log");
    }
    for told in ["env.KEY", "env.PUSHED", "env.LAST", "(secret)", "quota.lanes"] {
        assert!(log.contains(told), "{told} is not in the audit log");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_paged_filtered_and_each_orgs_own() {
    let platform = Platform::start().await;
    let api = platform.api();
    for org in ["acme", "rival"] {
        api.put(&format!("/v1/orgs/{org}"), json!({})).await;
    }
    let owner = platform.api_as(&token(&api, "acme", json!({"name": "o", "role": "owner"})).await);
    for n in 0..7 {
        owner.put(&format!("/v1/lanes/l{n}?org=acme"), json!({})).await;
        api.put(&format!("/v1/lanes/l{n}?org=rival"), json!({})).await;
    }
    // The same again changes nothing, and says nothing.
    assert_eq!(owner.put("/v1/lanes/l0?org=acme", json!({})).await.status, StatusCode::OK);
    let key = owner.clone().with("idempotency-key", "once");
    for _ in 0..2 {
        assert!(key.put("/v1/lanes/l7?org=acme", json!({})).await.status.is_success());
    }
    let walk = async |client: &Client, query: &str| {
        let (mut found, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = client.get(&format!("/v1/audit?limit=3&{query}{cursor}")).await.json();
            let items = page["items"].as_array().unwrap().clone();
            assert!(items.len() <= 3);
            found.extend(items);
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return found,
            }
        }
    };
    let own = walk(&owner, "org=acme&action=lane").await;
    let names: Vec<_> = own.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["l7", "l6", "l5", "l4", "l3", "l2", "l1", "l0"], "newest first, each once");
    assert!(own.iter().all(|entry| entry["by"] == json!({"kind": "token", "name": "o", "org": "acme"})));
    assert_eq!(walk(&api, "action=lane&name=l3").await.len(), 2, "operators see every org's");
    assert_eq!(walk(&api, "by=o").await.len(), 8);
    let times: Vec<u64> = walk(&api, "").await.iter().map(|entry| entry["to"].as_u64().unwrap()).collect();
    assert!(times.len() > 15 && times.windows(2).all(|pair| pair[0] >= pair[1]), "{times:?}");
    assert_eq!(walk(&api, "since=99999999999999").await.len(), 0);
    assert_eq!(owner.get("/v1/audit?org=rival").await.status, StatusCode::NOT_FOUND);
    assert_eq!(owner.get("/v1/audit?limit=0&org=acme").await.fields(), ["limit"]);
    api.delete("/v1/orgs/rival").await;
    assert!(walk(&api, "action=lane&name=l3").await.len() == 2, "what was done in an org outlives it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_entries_and_ended_sessions_go() {
    let platform = Platform::start_with(|settings| settings.limits.audit_entries = 10).await;
    let api = platform.api();
    api.put("/v1/users/ann", json!({"password": PASSWORD})).await;
    let body = json!({"user": "ann", "password": PASSWORD, "ttl": "1s"});
    assert_eq!(api.post("/v1/login", body).await.status, StatusCode::CREATED);
    for n in 0..15 {
        api.put(&format!("/v1/lanes/l{n}"), json!({})).await;
    }
    let core = platform.fleet.core();
    let sessions = || core.cache.list(towpath_types::Kind::Session, None, None).len();
    assert_eq!(sessions(), 1);
    crate::fleet::until_async("the session is gone", || async {
        towpath_manager::api::remove_ended(core).await.unwrap();
        sessions() == 0
    })
    .await;
    let kept = api.get("/v1/audit?org=default&limit=1000").await.json();
    let names: Vec<_> = kept["items"].as_array().unwrap().iter().map(|entry| entry["name"].clone()).collect();
    assert_eq!((names.len(), &names[0], &names[9]), (10, &json!("l14"), &json!("l5")), "the newest stay");
}
