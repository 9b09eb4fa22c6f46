//! What a build is given and tells.

use crate::client::{Platform, parse_events};
use crate::fleet::until;
use crate::stager::Stager;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_reused_whatever_the_environment_unless_it_is_the_builds() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let first = platform.push("shop", json!({"source": source, "env": {"A": "1", "BUILD_MODE": "x"}})).await;
    assert_eq!(first["phase"], "succeeded", "{first}");
    assert_eq!(platform.stager.jobs()[0].env, [("BUILD_MODE".to_owned(), "x".to_owned())].into());
    let other = json!({"source": source, "lane": "blue", "env": {"A": "2", "BUILD_MODE": "x"}});
    let second = platform.push("shop", other).await;
    assert_eq!((&second["reused"], &second["release"]), (&json!(true), &first["release"]), "{second}");
    let spec = platform.cell.specs().into_iter().find(|spec| spec.lane.as_str() == "blue").unwrap();
    assert_eq!(spec.env["A"], "2");
    let third = platform.push("shop", json!({"source": source, "env": {"BUILD_MODE": "y"}})).await;
    assert_eq!(third["reused"], false, "{third}");
    assert_ne!(third["release"], first["release"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_build_says_each_line_once_in_its_status() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let end = platform.push("shop", json!({"source": source, "builder": "fail"})).await;
    assert_eq!(end["code"], "build_failed", "{end}");
    assert_eq!(end["message"], "npm ended with status 1", "{end}");
    assert_eq!(end["log"], json!(["index.html"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_misses_nothing_of_an_operation_that_is_taken_up_again() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", json!({"source": source})).await;
    until("it is being built", || platform.stager.jobs().len() == 1).await;
    platform.stager.stop();
    platform.fleet.restart().await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    let end = platform.end_of(&accepted).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    let path = format!("/v1/operations/{}/events", end["id"].as_str().unwrap());
    let told = |text: String| parse_events(&text);
    let all = told(platform.api().get(&path).await.text());
    let behind = told(platform.api().with("last-event-id", "3").get(&path).await.text());
    assert_eq!(behind, all, "what the earlier run told has numbers of its own");
    assert!(
        all.iter().any(|(name, _)| name == "line") && all.iter().all(|(name, _)| name != "gap"),
        "{all:?}"
    );
}
