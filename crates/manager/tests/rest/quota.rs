//! Quotas: whoever comes at the same time, an org gets no more than it may have.

use crate::client::{Client, Platform, push_of};
use crate::fleet::{Script, until_async};
use crate::identity::token;
use futures::future::join_all;
use http::StatusCode;
use serde_json::{Value, json};
use towpath_manager::core::keys::{self, GroupRef};
use towpath_types::{AppRef, Digest, LaneName, SpaceRef};

/// A stopped group of an org, as if it had been pushed before. Stopped, so that nothing has to be placed for it.
async fn group(platform: &Platform, org: &str, app: &str, count: u32) {
    let space = SpaceRef { org: org.parse().unwrap(), space: "default".parse().unwrap() };
    let app = AppRef::new(&space, app.parse().unwrap());
    let name = GroupRef::new(app.clone(), LaneName::base());
    platform.fleet.put(keys::app_key(&app), json!({})).await;
    let spec = json!({"app": app.app, "lane": "base", "count": count, "release": crate::fleet::release(1), "stopped": true});
    platform.fleet.put(name.key(), spec).await;
}

async fn usage(operator: &Client, org: &str) -> Value {
    operator.get(&format!("/v1/orgs/{org}")).await.json()["usage"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_scales_at_once_get_what_the_quota_has_and_no_more() {
    let platform = Platform::start().await;
    let operator = platform.api();
    operator.put("/v1/orgs/acme", json!({})).await;
    let quota = json!({"instances": 30, "memory": "1G"});
    assert_eq!(operator.put("/v1/orgs/acme/quota", quota).await.status, StatusCode::OK);
    for n in 0..50 {
        group(&platform, "acme", &format!("app{n}"), 1).await;
    }
    let developer =
        platform.api_as(&token(&operator, "acme", json!({"name": "d", "role": "developer"})).await);
    let scale = async |n: u32| {
        let body = json!({"count": 2, "stopped": false, "limits": {"memory": "32M"}});
        developer.patch(&format!("/v1/apps/app{n}/groups/base?org=acme"), body).await
    };
    let answers = join_all((0..50).map(scale)).await;
    let accepted = answers.iter().filter(|answer| answer.status == StatusCode::ACCEPTED).count();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == StatusCode::FORBIDDEN).collect();
    assert_eq!((accepted, refused.len()), (15, 35), "2 × 15 = 30 instances");
    for answer in refused {
        assert_eq!(answer.code(), "quota_exceeded");
        assert_eq!(answer.fields(), ["quota.instances"]);
        assert!(answer.text().contains("used 30, asked for 2 more, limit 30"), "{}", answer.text());
    }
    let used = usage(&operator, "acme").await;
    assert_eq!((&used["instances"], &used["memory"]), (&json!(30), &json!("960M")));
    // Less is always permitted, even beyond a quota that was lowered.
    operator.put("/v1/orgs/acme/quota", json!({"instances": 5})).await;
    let running = answers.iter().position(|answer| answer.status == StatusCode::ACCEPTED).unwrap();
    let less =
        developer.patch(&format!("/v1/apps/app{running}/groups/base?org=acme"), json!({"count": 1})).await;
    assert_eq!(less.status, StatusCode::ACCEPTED, "{}", less.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_routes_memory_and_pushes_are_counted_and_one_org_does_not_use_anothers() {
    let platform = Platform::start().await;
    let operator = platform.api();
    for org in ["acme", "rival"] {
        operator.put(&format!("/v1/orgs/{org}"), json!({})).await;
    }
    operator
        .put("/v1/orgs/acme/quota", json!({"lanes": 1, "routes": 2, "memory": "600M", "instances": 3}))
        .await;
    let refused = async |answer: crate::client::Answer| {
        assert_eq!(answer.code(), "quota_exceeded", "{}", answer.text());
        answer.fields()
    };
    let put = async |path: &str, body: Value| operator.put(path, body).await;
    assert_eq!(put("/v1/lanes/blue?org=acme", json!({})).await.status, StatusCode::CREATED);
    assert_eq!(put("/v1/lanes/blue?org=acme", json!({})).await.status, StatusCode::OK, "it is there already");
    assert_eq!(refused(put("/v1/lanes/red?org=acme", json!({})).await).await, ["quota.lanes"]);
    assert_eq!(put("/v1/lanes/red?org=rival", json!({})).await.status, StatusCode::CREATED);
    assert_eq!(put("/v1/apps/shop?org=acme", json!({})).await.status, StatusCode::CREATED);
    let route = |host: &str| json!({"host": host, "app": "shop"});
    assert_eq!(put("/v1/routes?org=acme", route("a.example")).await.status, StatusCode::CREATED);
    assert_eq!(refused(put("/v1/routes?org=acme", route("b.example")).await).await, ["quota.routes"]);
    assert_eq!(refused(put("/v1/apps/other?org=acme", json!({})).await).await, ["quota.routes"]);
    let source = platform.upload("hello").await.to_string();
    let push = async |body: Value| {
        let mut whole = json!({"source": source});
        whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        operator.post("/v1/apps/shop/releases?org=acme", whole).await
    };
    assert_eq!(refused(push(json!({"instances": 2})).await).await, ["quota.memory"]);
    assert_eq!(refused(push(json!({"lane": "green"})).await).await, ["quota.lanes"]);
    let both =
        refused(push(json!({"instances": 4, "limits": {"memory": "200M"}, "routes": ["c.example"]})).await)
            .await;
    assert_eq!(both, ["quota.instances", "quota.memory", "quota.routes"]);
    let accepted = push(json!({"instances": 3, "limits": {"memory": "200M"}})).await;
    let done = platform.end_of(&accepted).await;
    assert_eq!(done["phase"], "succeeded", "{done}");
    assert_eq!(
        usage(&operator, "acme").await,
        json!({"memory": "600M", "instances": 3, "routes": 2, "lanes": 1})
    );
    let more =
        operator.patch("/v1/apps/shop/groups/base?org=acme", json!({"limits": {"memory": "201M"}})).await;
    assert_eq!(refused(more).await, ["quota.memory"]);
    let stop = operator.patch("/v1/apps/shop/groups/base?org=acme", json!({"stopped": true})).await;
    platform.end_of(&stop).await;
    until_async("they have ended", async || usage(&operator, "acme").await["instances"] == 0).await;
    operator.put("/v1/orgs/acme/quota", json!({"instances": 2})).await;
    let start = operator.patch("/v1/apps/shop/groups/base?org=acme", json!({"stopped": false})).await;
    assert_eq!(refused(start).await, ["quota.instances"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_managers_do_not_give_the_last_one_twice() {
    let platform = Platform::start().await;
    let operator = platform.api();
    operator.put("/v1/orgs/acme", json!({})).await;
    operator.put("/v1/orgs/acme/quota", json!({"lanes": 10})).await;
    let mut settings = crate::fleet::settings(&platform.fleet.dir.path().join("second"));
    settings.limits = towpath_manager::ApiLimits::default();
    let second = towpath_manager::Manager::start(settings, platform.store.clone(), platform.fleet.bus())
        .await
        .unwrap();
    let core = second.core();
    crate::fleet::until("both are in the ring", || core.ownership.ring().members().len() == 2).await;
    let other = Client { address: second.api_address(), ..operator.clone() };
    let put = async |n: usize| {
        let client = if n.is_multiple_of(2) { &operator } else { &other };
        client.put(&format!("/v1/lanes/l{n}?org=acme&space=default"), json!({})).await
    };
    let answers = join_all((0..30).map(put)).await;
    let count = |status: StatusCode| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(StatusCode::CREATED), count(StatusCode::FORBIDDEN)), (10, 20), "{answers:?}");
    assert_eq!(usage(&operator, "acme").await["lanes"], 10);
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_wants_no_route_is_not_refused_for_one() {
    let platform = Platform::start().await;
    let operator = platform.api();
    operator.put("/v1/orgs/acme", json!({})).await;
    operator.put("/v1/apps/shop?org=acme", json!({})).await;
    let routes = operator.get("/v1/routes?org=acme").await.json();
    let host = routes["items"][0]["host"].as_str().unwrap();
    assert!(operator.delete(&format!("/v1/routes?org=acme&host={host}")).await.status.is_success());
    operator.put("/v1/orgs/acme/quota", json!({"routes": 0})).await;
    let changed = operator.put("/v1/apps/shop?org=acme", json!({"env": {"A": "1"}})).await;
    assert_eq!(changed.status, StatusCode::OK, "{}", changed.text());
    assert_eq!(operator.put("/v1/apps/other?org=acme", json!({})).await.code(), "quota_exceeded");
}

/// An app of `acme` that runs one instance of 1 GiB; its release.
async fn running(platform: &Platform, app: &str) -> Digest {
    let mut push = push_of(platform.upload("hello").await);
    push["limits"] = json!({"memory": "1G"});
    let accepted = platform.api().post(&format!("/v1/apps/{app}/releases?org=acme"), push).await;
    let done = platform.end_of(&accepted).await;
    assert_eq!(done["phase"], "succeeded", "{done}");
    done["release"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_failed_frees_nothing_of_what_runs() {
    let platform = Platform::start().await;
    let operator = platform.api();
    operator.put("/v1/orgs/acme", json!({})).await;
    operator.put("/v1/orgs/acme/quota", json!({"memory": "2G", "instances": 5})).await;
    let release = running(&platform, "shop").await;
    group(&platform, "acme", "other", 1).await;
    let other = async || {
        let body = json!({"stopped": false, "limits": {"memory": "1025M"}});
        operator.patch("/v1/apps/other/groups/base?org=acme", body).await
    };
    platform.cell.script(release, Script::Crash);
    for change in
        [json!({"limits": {"memory": "8M"}}), json!({"limits": {"memory": "9M"}, "env": {"A": "1"}})]
    {
        let accepted = operator.patch("/v1/apps/shop/groups/base?org=acme", change).await;
        let id = accepted.json()["id"].as_str().unwrap().to_owned();
        // At no moment on its way, nor after it.
        let failed = loop {
            assert_eq!(usage(&operator, "acme").await["memory"], "1G");
            assert_eq!(other().await.fields(), ["quota.memory"]);
            let now = operator.get(&format!("/v1/operations/{id}")).await.json();
            if now["phase"] == "failed" || now["phase"] == "succeeded" {
                break now;
            }
        };
        assert_eq!(failed["phase"], "failed", "{failed}");
        assert_eq!(usage(&operator, "acme").await["memory"], "1G");
        assert_eq!(other().await.fields(), ["quota.memory"]);
    }
    // More instances are instances of what runs.
    let many = operator
        .patch("/v1/apps/shop/groups/base?org=acme", json!({"count": 3, "limits": {"memory": "7M"}}))
        .await;
    assert_eq!(many.fields(), ["quota.memory"]);
    // What proves itself counts by itself.
    platform.cell.script(release, Script::Ready);
    let less =
        operator.patch("/v1/apps/shop/groups/base?org=acme", json!({"limits": {"memory": "100M"}})).await;
    assert_eq!(platform.end_of(&less).await["phase"], "succeeded");
    until_async("the earlier one is gone", async || usage(&operator, "acme").await["memory"] == "100M").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_takes_long_to_stop_counts_until_it_has() {
    let platform = Platform::start().await;
    let operator = platform.api();
    operator.put("/v1/orgs/acme", json!({})).await;
    operator.put("/v1/orgs/rival", json!({})).await;
    operator.put("/v1/orgs/acme/quota", json!({"memory": "2G", "instances": 1})).await;
    running(&platform, "shop").await;
    platform.cell.linger(true);
    let patch = async |body: Value| operator.patch("/v1/apps/shop/groups/base?org=acme", body).await;
    let used = async |instances: u64, memory: &str| {
        let usage = usage(&operator, "acme").await;
        usage["instances"] == instances && usage["memory"] == memory
    };
    let stopped = patch(json!({"stopped": true})).await;
    assert_eq!(platform.end_of(&stopped).await["phase"], "succeeded");
    until_async("it is told to stop", async || !platform.cell.stopped().is_empty()).await;
    until_async("the cell says that it ends", async || used(1, "1G").await).await;
    let again = patch(json!({"stopped": false})).await;
    assert_eq!(again.fields(), ["quota.instances"], "{}", again.text());
    assert!(again.text().contains("used 1, asked for 1 more, limit 1"), "{}", again.text());
    assert_eq!(usage(&operator, "rival").await["instances"], 0);
    // Nor does it help to delete the app.
    platform.end_of(&operator.delete("/v1/apps/shop?org=acme").await).await;
    assert!(used(1, "1G").await);
    platform.cell.linger(false);
    until_async("it has ended", async || used(0, "0").await).await;
    running(&platform, "shop").await;
}
