//! Scaling, restarting, environments, deleting.

use crate::client::{Platform, push_of};
use crate::fleet::{Script, app, until};
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use towpath_manager::core::keys::{self, GroupRef};
use towpath_types::{InstanceId, LaneName};
use towpath_wire::cell::InstanceState;

async fn pushed(content: &str) -> Platform {
    let platform = Platform::start().await;
    let source = platform.upload(content).await;
    let end = platform.push("shop", push_of(source)).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    platform
}

fn instances(platform: &Platform) -> BTreeSet<InstanceId> {
    platform.cell.specs().into_iter().map(|spec| spec.instance).collect()
}

fn succeeded(operation: &Value, verb: &str) {
    assert_eq!((&operation["phase"], &operation["verb"]), (&json!("succeeded"), &json!(verb)), "{operation}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_scaled_stopped_and_started() {
    let platform = pushed("one").await;
    let (api, group) = (platform.api(), "/v1/apps/shop/groups/base");
    succeeded(&platform.end_of(&api.patch(group, json!({"count": 3})).await).await, "scale");
    assert_eq!(platform.cell.specs().len(), 3);
    let listed = api.get("/v1/apps/shop/instances").await.json();
    let ordinals: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|one| one["ordinal"].clone()).collect();
    assert_eq!(ordinals, [0, 1, 2]);
    assert_eq!(
        (&listed["items"][0]["state"], &listed["items"][0]["address"]),
        (&json!("ready"), &json!("127.0.0.1:4000"))
    );
    succeeded(&platform.end_of(&api.patch(group, json!({"stopped": true})).await).await, "scale");
    until("none is left", || platform.cell.specs().is_empty()).await;
    assert_eq!(api.get("/v1/apps/shop").await.json()["state"], "stopped");
    succeeded(
        &platform.end_of(&api.patch(group, json!({"stopped": false, "count": 1})).await).await,
        "scale",
    );
    assert_eq!(platform.cell.specs().len(), 1);
    assert_eq!(api.patch(group, json!({"count": 10_001, "what": 1})).await.fields(), ["count", "what"]);
    assert_eq!(api.patch("/v1/apps/shop/groups/nope", json!({"count": 1})).await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_and_other_settings_replace_every_instance() {
    let platform = pushed("one").await;
    let api = platform.api();
    let before = instances(&platform);
    let restart = api.post("/v1/apps/shop/groups/base/restart", json!({})).await;
    succeeded(&platform.end_of(&restart).await, "restart");
    until("the old one is gone", || instances(&platform).is_disjoint(&before)).await;
    let change =
        json!({"env": {"A": "1"}, "limits": {"memory": "128M"}, "health": {"probe": {"http": "/up"}}});
    succeeded(&platform.end_of(&api.patch("/v1/apps/shop/groups/base", change).await).await, "update");
    let spec = platform.cell.specs().into_iter().find(|spec| spec.env.contains_key("A")).unwrap();
    assert_eq!(spec.limits.memory, Some("128M".parse().unwrap()));
    let back = api.patch("/v1/apps/shop/groups/base", json!({"health": null, "env": {"A": null}})).await;
    succeeded(&platform.end_of(&back).await, "update");
    let shown = api.get("/v1/apps/shop/groups").await.json();
    assert_eq!((&shown["items"][0]["health"], &shown["items"][0]["env"]), (&Value::Null, &json!({})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_environment_of_an_app_reaches_all_its_lanes() {
    let platform = pushed("one").await;
    let source = platform.upload("one").await;
    platform.push("shop", json!({"source": source, "lane": "blue"})).await;
    let changed = platform.api().patch("/v1/apps/shop/env", json!({"DB": "x"})).await;
    succeeded(&platform.end_of(&changed).await, "env");
    until("all have it", || platform.cell.specs().iter().all(|spec| spec.env.contains_key("DB"))).await;
    assert_eq!(platform.api().get("/v1/apps/shop/env").await.json(), json!({"env": {"DB": "x"}}));
    let lane = platform.api().patch("/v1/apps/shop/env?lane=blue", json!({"DB": "y"})).await;
    succeeded(&platform.end_of(&lane).await, "update");
    let wrong = platform.api().patch("/v1/apps/shop/env", json!({"PORT": "1", "x y": "2", "N": 1})).await;
    assert_eq!(wrong.fields(), ["N", "PORT", "x y"]);
    assert_eq!(platform.api().patch("/v1/apps/nope/env", json!({})).await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleting_drains_and_leaves_nothing() {
    let platform = pushed("one").await;
    let source = platform.upload("one").await;
    platform.push("shop", json!({"source": source, "lane": "blue", "routes": ["x.example.com"]})).await;
    let lane_in_use = platform.api().delete("/v1/lanes/blue").await;
    assert_eq!(lane_in_use.code(), "conflict");
    let gone = platform.api().delete("/v1/apps/shop/groups/blue").await;
    succeeded(&platform.end_of(&gone).await, "delete-group");
    let blue = GroupRef::new(app("shop"), "blue".parse().unwrap());
    assert!(platform.fleet.core().cache.group(&blue).is_none());
    assert_eq!(platform.cell.specs().len(), 1);
    assert_eq!(platform.api().delete("/v1/lanes/blue").await.status, StatusCode::NO_CONTENT);

    let gone = platform.api().delete("/v1/apps/shop").await;
    succeeded(&platform.end_of(&gone).await, "delete");
    until("no instance is left", || platform.cell.specs().is_empty()).await;
    let core = platform.fleet.core();
    assert!(core.cache.get(&keys::app_key(&app("shop"))).is_none());
    assert!(core.cache.group(&GroupRef::new(app("shop"), LaneName::base())).is_none());
    assert_eq!(platform.api().get("/v1/routes").await.json()["items"], json!([]));
    assert_eq!(platform.api().get("/v1/apps/shop").await.code(), "not_found");
    assert_eq!(platform.api().delete("/v1/apps/shop").await.code(), "not_found");
    // And the name is free again.
    let again = platform.push("shop", push_of(source)).await;
    assert_eq!(again["phase"], "succeeded", "{again}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stopped_already_is_deleted_too() {
    let platform = pushed("one").await;
    let source = platform.upload("one").await;
    platform.push("shop", json!({"source": source, "lane": "blue"})).await;
    for lane in ["blue", "base"] {
        let stop =
            platform.api().patch(&format!("/v1/apps/shop/groups/{lane}"), json!({"stopped": true})).await;
        succeeded(&platform.end_of(&stop).await, "scale");
    }
    let gone = platform.api().delete("/v1/apps/shop/groups/blue").await;
    succeeded(&platform.end_of(&gone).await, "delete-group");
    let core = platform.fleet.core();
    assert!(core.cache.group(&GroupRef::new(app("shop"), "blue".parse().unwrap())).is_none());
    let gone = platform.api().delete("/v1/apps/shop").await;
    succeeded(&platform.end_of(&gone).await, "delete");
    assert!(core.cache.group(&GroupRef::new(app("shop"), LaneName::base())).is_none());
    assert!(core.cache.get(&keys::app_key(&app("shop"))).is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_fails_ends_even_when_what_ran_before_is_ill() {
    let platform = pushed("one").await;
    let source = platform.upload("bad").await;
    let probe = platform.push("probe", push_of(source)).await;
    platform.cell.script(probe["release"].as_str().unwrap().parse().unwrap(), Script::Crash);
    let shop = GroupRef::new(app("shop"), LaneName::base());
    let old = platform.fleet.group(&shop).status.assignments[0].instance;
    platform.cell.set(old, InstanceState::Unhealthy);
    let failed = platform.push("shop", push_of(source)).await;
    assert_eq!((&failed["phase"], &failed["code"]), (&json!("failed"), &json!("start_failed")), "{failed}");
    assert!(failed["message"].as_str().unwrap().contains("ended"), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_what_does_not_get_ready_any_more_ends() {
    let platform = Platform::start_with(|settings| {
        (settings.rollout.prepare_ms, settings.rollout.drain_ms) = (4_000, 1_000);
    })
    .await;
    let source = platform.upload("one").await;
    let pushed = platform.push("shop", json!({"source": source, "health": {"start_timeout": "1s"}})).await;
    assert_eq!(pushed["phase"], "succeeded", "{pushed}");
    let group = "/v1/apps/shop/groups/base";
    let api = platform.api();
    succeeded(&platform.end_of(&api.patch(group, json!({"stopped": true})).await).await, "scale");
    platform.cell.script(pushed["release"].as_str().unwrap().parse().unwrap(), Script::Never);
    let end = platform.end_of(&api.patch(group, json!({"stopped": false})).await).await;
    assert_eq!((&end["phase"], &end["code"]), (&json!("failed"), &json!("start_failed")), "{end}");
    assert!(end["message"].as_str().unwrap().starts_with("0 of 1 are ready"), "{end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_cut_off_by_a_deletion_says_so() {
    let platform = pushed("one").await;
    let two = platform.upload("two").await;
    platform.stager.hold(true);
    let base = platform.api().post("/v1/apps/shop/releases", json!({"source": two})).await;
    until("it is being built", || platform.stager.jobs().len() == 2).await;
    let blue = json!({"source": two, "lane": "blue"});
    let blue = platform.api().post("/v1/apps/shop/releases", blue).await;
    until("the lane's is being built, too", || platform.stager.jobs().len() == 3).await;
    let gone = platform.api().delete("/v1/apps/shop").await;
    for accepted in [&base, &blue] {
        let end = platform.end_of(accepted).await;
        assert_eq!((&end["phase"], &end["code"]), (&json!("failed"), &json!("deleted")), "{end}");
        assert_eq!(end["message"], "the app was deleted in the meantime");
    }
    succeeded(&platform.end_of(&gone).await, "delete");
    assert_eq!(platform.api().get("/v1/apps/shop").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_cut_off_while_its_instances_start_says_so() {
    let platform = pushed("one").await;
    let two = platform.upload("two").await;
    let probe = platform.push("probe", json!({"source": two})).await;
    platform.cell.script(probe["release"].as_str().unwrap().parse().unwrap(), Script::Never);
    let body = json!({"source": two, "lane": "blue"});
    let push = platform.api().post("/v1/apps/shop/releases?wait=revision", body).await;
    until("its instance starts", || platform.cell.specs().len() == 3).await;
    let gone = platform.api().delete("/v1/apps/shop/groups/blue").await;
    let end = platform.end_of(&push).await;
    assert_eq!((&end["phase"], &end["code"]), (&json!("failed"), &json!("deleted")), "{end}");
    assert_eq!(end["message"], "the app was deleted from this lane in the meantime");
    succeeded(&platform.end_of(&gone).await, "delete-group");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_tells_of_its_own_release_whatever_comes_behind_it() {
    let platform = pushed("one").await;
    let before = platform.fleet.group(&GroupRef::new(app("shop"), LaneName::base())).spec.release;
    let two = platform.upload("two").await;
    let probe = platform.push("probe", json!({"source": two})).await;
    let restart = platform.api().post("/v1/apps/shop/groups/base/restart?wait=revision", json!({})).await;
    let push = platform.api().post("/v1/apps/shop/releases", json!({"source": two})).await;
    let (restart, push) = tokio::join!(platform.end_of(&restart), platform.end_of(&push));
    assert_eq!((&push["phase"], &push["release"]), (&json!("succeeded"), &probe["release"]), "{push}");
    assert_eq!(restart["release"], json!(before), "{restart}");
    assert!(restart["phase"] == "succeeded" || restart["code"] == "superseded", "{restart}");
}
