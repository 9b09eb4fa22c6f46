//! Conditions of changes, and waiting until a change is served.

use crate::client::{Platform, push_of};
use crate::fleet::app;
use http::StatusCode;
use serde_json::json;
use towpath_manager::core::keys::GroupRef;
use towpath_types::LaneName;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_revision_waits_for_what_the_operation_changes() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", push_of(source)).await;
    let group = GroupRef::new(app("shop"), LaneName::base());
    let scaled = platform.api().patch("/v1/apps/shop/groups/base?wait=revision", json!({"count": 2})).await;
    assert_eq!(scaled.headers["towpath-wait"], "served");
    let seen = platform.fleet.core().cache.group(&group).unwrap();
    assert_eq!(seen.spec.count, 2);
    let told: u64 = scaled.headers["towpath-revision"].to_str().unwrap().parse().unwrap();
    assert!(platform.gateway.revision().0 >= told);
    assert_ne!(scaled.json()["phase"], "pending");

    platform.stager.hold(true);
    let two = platform.upload("two").await;
    let path = "/v1/apps/shop/releases?wait=revision&wait_timeout=300ms";
    let built = platform.api().post(path, push_of(two)).await;
    assert_eq!(
        (built.status, &built.headers["towpath-wait"]),
        (StatusCode::ACCEPTED, &"timeout".parse().unwrap())
    );
    platform.stager.hold(false);
    assert_eq!(platform.end_of(&built).await["phase"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_changes_under_the_same_condition_one_is_made() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    for round in 0..3 {
        let groups = platform.api().get("/v1/apps/shop/groups").await.json();
        let etag = format!("\"{}\"", groups["items"][0]["revision"]);
        let api = platform.api().with("if-match", &etag);
        let change = |n: u32| {
            let api = api.clone();
            async move {
                let env = json!({"env": {"N": format!("{round}-{n}")}});
                api.patch("/v1/apps/shop/groups/base", env).await
            }
        };
        let answers = futures::future::join_all((0..6).map(change)).await;
        let (mut made, mut stale) = (0, 0);
        for answer in &answers {
            if answer.status != StatusCode::ACCEPTED {
                assert_eq!(answer.code(), "stale_revision");
                stale += 1;
                continue;
            }
            let end = platform.end_of(answer).await;
            match end["code"].as_str() {
                None | Some("superseded") => made += 1,
                Some("stale_revision") => stale += 1,
                other => panic!("{other:?}: {end}"),
            }
        }
        assert_eq!((made, stale), (1, 5), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_not_deleted_from_under_a_push_nor_an_app_from_under_a_route() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", push_of(source)).await;
    for n in 0..4 {
        let lane = format!("l{n}");
        platform.api().put(&format!("/v1/lanes/{lane}"), json!({})).await;
        let (path, host) = (format!("/v1/lanes/{lane}"), format!("r{n}.example.com"));
        let pushed =
            platform.api().post("/v1/apps/shop/releases", json!({"source": source, "lane": lane})).await;
        let deleted = async {
            loop {
                let answer = platform.api().delete(&path).await;
                if answer.status != StatusCode::NOT_FOUND {
                    return answer;
                }
            }
        };
        let (end, _deleted) = tokio::join!(platform.end_of(&pushed), deleted);
        assert_eq!(end["phase"], "succeeded", "{end}");
        assert_eq!(platform.api().get(&path).await.status, StatusCode::OK, "a group has its lane");

        let name = format!("a{n}");
        platform.api().put(&format!("/v1/apps/{name}"), json!({})).await;
        let (api, body) = (platform.api(), json!({"host": host, "app": name}));
        let gone = platform.api().delete(&format!("/v1/apps/{name}")).await;
        let mut answers = Vec::new();
        loop {
            let answer = api.put("/v1/routes", body.clone()).await;
            let done = !answer.status.is_success();
            answers.push(answer);
            if done {
                break;
            }
        }
        platform.end_of(&gone).await;
        let routes = platform.api().get("/v1/routes?all=true").await.text();
        assert!(!routes.contains(&host), "a route leads to an app that is gone: {routes}");
    }
}
