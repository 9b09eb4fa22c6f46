//! Logs of instances whose cells are away for a while, and of those that are gone.

use crate::client::{Platform, push_of};
use crate::fleet::Script;
use crate::platform::Follow;
use crate::stager::Stager;
use serde_json::json;
use towpath_types::InstanceId;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_followed_as_soon_as_its_cell_answers() {
    let mut platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let instance = platform.cell.specs()[0].instance;
    platform.stager.stop();
    let path = format!("/v1/instances/{instance}/logs?tail=1&follow=true");
    let mut follow = Follow::open(&platform, &path).await;
    // The first question is lost, and the stream goes on.
    follow.until("it is live", |events| events.iter().any(|(name, _)| name == "live")).await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    follow.until("the last line", |events| events.iter().any(|(_, data)| data["text"] == "boom")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_followed_log_ends_when_its_app_is_deleted() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let mut follow = Follow::open(&platform, "/v1/apps/shop/logs?tail=1&follow=true").await;
    follow
        .until("what was there is told", |events| {
            let named = |wanted: &str| events.iter().position(|(name, _)| name == wanted);
            named("begun").is_some() && named("line") < named("live") && named("line").is_some()
        })
        .await;
    let deleted = platform.api().delete("/v1/apps/shop").await;
    assert!(deleted.status.is_success(), "{deleted:?}");
    follow
        .until("its end", |events| {
            events.last().is_some_and(|(name, data)| name == "end" && data["why"] == "app shop is gone")
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_that_an_app_does_not_have_has_no_log() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let answer = platform.api().get("/v1/apps/shop/logs?lane=blue").await;
    assert_eq!((answer.status.as_u16(), &answer.json()["code"]), (404, &json!("not_found")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_of_instances_because_of_which_a_version_failed_can_be_read() {
    let platform = Platform::start().await;
    platform.push("shop", push_of(platform.upload("one").await)).await;
    let good = platform.cell.specs()[0].instance;
    let two = platform.upload("two").await;
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", push_of(two)).await;
    let path = accepted.headers["location"].to_str().unwrap().to_owned();
    crate::fleet::until_async("its release is known", || async {
        platform.api().get(&path).await.json()["release"].is_string()
    })
    .await;
    let release = platform.api().get(&path).await.json()["release"].as_str().unwrap().parse().unwrap();
    platform.cell.script(release, Script::Crash);
    platform.stager.hold(false);
    let end = platform.end_of(&accepted).await;
    assert_eq!(end["code"], "start_failed", "{end}");
    crate::fleet::until_async("those that failed are gone", || async {
        let present = platform.api().get("/v1/instances").await.json();
        let ids: Vec<_> =
            present["items"].as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
        ids == [json!(good)]
    })
    .await;
    let read = platform.api().get("/v1/apps/shop/logs").await.json();
    let of = read["lines"].as_array().unwrap().iter().map(|line| line["instance"].clone());
    let gone: InstanceId = of
        .map(|id| id.as_str().unwrap().parse().unwrap())
        .find(|id| *id != good)
        .unwrap_or_else(|| panic!("no line of one that failed: {read}"));
    let read = platform.api().get(&format!("/v1/instances/{gone}/logs?tail=1")).await.json();
    assert_eq!((&read["lines"][0]["text"], &read["missing"]), (&json!("boom"), &json!([])), "{read}");
}
