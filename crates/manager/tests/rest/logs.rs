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
    follow.until("it is found", |events| !events.is_empty()).await;
    // Long enough for the first question to be lost.
    tokio::time::sleep(std::time::Duration::from_millis(3500)).await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    follow.until("the last line", |events| events.iter().any(|(_, data)| data["text"] == "boom")).await;
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
