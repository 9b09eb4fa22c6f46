//! Pushes from upload to URL.

use crate::client::{Platform, push_of};
use crate::fleet::{Script, app, until};
use crate::platform::Follow;
use http::StatusCode;
use serde_json::{Value, json};
use towpath_manager::core::keys::GroupRef;
use towpath_types::{Digest, LaneName};

fn base(name: &str) -> GroupRef {
    GroupRef::new(app(name), LaneName::base())
}

fn release_of(operation: &Value) -> Digest {
    operation["release"].as_str().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_builds_runs_and_gives_a_url_and_the_same_again_builds_nothing() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let body = json!({"source": source, "instances": 2, "env": {"A": "1"}, "limits": {"memory": "64M"}, "note": "first",
        "routes": ["Shop.example.com", "example.com/shop/"]});
    let pushed = platform.push("shop", body.clone()).await;
    assert_eq!(pushed["phase"], "succeeded", "{pushed}");
    assert_eq!(pushed["reused"], false);
    let urls =
        json!(["http://shop.localhost:8080", "http://example.com:8080/shop", "http://shop.example.com:8080"]);
    assert_eq!(pushed["urls"], urls);
    assert_eq!(platform.cell.specs().len(), 2);
    let spec = &platform.cell.specs()[0];
    assert_eq!((spec.command.as_str(), spec.env["A"].as_str()), ("serve", "1"));
    assert_eq!(spec.env["FROM_BUILD"], "1");

    let events = platform.events_of(&pushed).await;
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..4], ["phase", "step", "line", "phase"], "{events:?}");
    assert_eq!(events[0].1["phase"], "staging");
    assert_eq!(events[3].1["phase"], "rolling");
    let (_, progress) = events.iter().rfind(|(name, _)| name == "progress").unwrap();
    assert_eq!((&progress["ready"], &progress["wanted"]), (&json!(2), &json!(2)));
    let (last, done) = events.last().unwrap();
    assert_eq!((last.as_str(), &done["urls"]), ("done", &urls));

    let again = platform.push("shop", body).await;
    assert_eq!((&again["phase"], &again["reused"]), (&json!("succeeded"), &json!(true)), "{again}");
    assert_eq!(again["release"], pushed["release"]);
    assert_eq!(platform.stager.jobs().len(), 1);

    let shown = platform.api().get("/v1/apps/shop").await.json();
    assert_eq!(shown["state"], "running", "{shown}");
    assert_eq!(shown["groups"][0]["ready"], 2);
    assert_eq!(shown["groups"][0]["limits"]["memory"], "64M");
    let releases = platform.api().get("/v1/apps/shop/releases").await.json();
    assert_eq!(releases["items"].as_array().unwrap().len(), 1);
    assert_eq!(releases["items"][0]["lanes"], json!(["base"]));
    assert_eq!(
        (&releases["items"][0]["note"], &releases["items"][0]["by"]),
        (&json!("first"), &json!("first"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lane_is_made_by_a_push_and_has_its_own_urls() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", push_of(source)).await;
    let pushed =
        platform.push("shop", json!({"source": source, "lane": "blue", "env": {"COLOUR": "blue"}})).await;
    assert_eq!(pushed["urls"], json!(["http://blue--shop.localhost:8080"]), "{pushed}");
    let lanes = platform.api().get("/v1/lanes").await.json();
    assert_eq!(lanes["items"][1]["name"], "blue");
    assert_eq!(
        (&lanes["items"][1]["kind"], &lanes["items"][1]["apps"]),
        (&json!("feature"), &json!(["shop"]))
    );
    let env = platform.api().get("/v1/apps/shop/env?lane=blue").await.json();
    assert_eq!(env, json!({"env": {"COLOUR": "blue"}, "lane": "blue"}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_build_fails_the_push_with_its_last_lines_and_changes_nothing() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let failed = platform.push("shop", json!({"source": source, "builder": "fail"})).await;
    assert_eq!((&failed["phase"], &failed["code"]), (&json!("failed"), &json!("build_failed")), "{failed}");
    assert_eq!(failed["log"], json!(["index.html"]));
    assert_eq!(failed["message"], "npm ended with status 1");
    assert_eq!(platform.api().get("/v1/apps/shop").await.status, StatusCode::NOT_FOUND);
    let refused = platform.push("shop", json!({"source": source, "builder": "refuse"})).await;
    assert_eq!(refused["code"], "no_builder");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_that_does_not_start_is_told_with_its_log_and_the_old_one_stays() {
    let platform = Platform::start().await;
    let good = platform.push("shop", push_of(platform.upload("good").await)).await;
    let source = platform.upload("bad").await;
    // The id of a release is known beforehand by pushing it somewhere else first: the content is the same.
    let probe = platform.push("probe", push_of(source)).await;
    platform.cell.script(release_of(&probe), Script::Crash);
    let failed = platform.push("shop", push_of(source)).await;
    assert_eq!((&failed["phase"], &failed["code"]), (&json!("failed"), &json!("start_failed")), "{failed}");
    assert_eq!(failed["log"], json!(["listening on nothing", "boom"]));
    let group = platform.fleet.group(&base("shop"));
    assert_eq!(group.status.good.unwrap().release, release_of(&good));
    let shown = platform.api().get("/v1/apps/shop").await.json();
    assert_eq!(shown["groups"][0]["serving"], good["release"], "{shown}");
    let releases = platform.api().get("/v1/apps/shop/releases").await.json();
    let running: Vec<_> =
        releases["items"].as_array().unwrap().iter().filter(|one| one["lanes"] != json!([])).collect();
    assert_eq!((running.len(), &running[0]["release"]), (1, &good["release"]));

    // The same again is tried again, and works once the cause is gone.
    platform.cell.script(release_of(&probe), Script::Ready);
    let retried = platform.push("shop", push_of(source)).await;
    assert_eq!((&retried["phase"], &retried["reused"]), (&json!("succeeded"), &json!(true)), "{retried}");
    let group = platform.api().get("/v1/apps/shop").await.json()["groups"][0].clone();
    assert_eq!((&group["code"], &group["message"]), (&json!(null), &json!("")), "{group}");
    assert_eq!(group["last_failure"]["code"], "start_failed", "{group}");
    assert!(group["last_failure"]["at_ms"].as_u64().unwrap() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_pushes_at_once_the_later_wins_and_both_end() {
    let platform = Platform::start().await;
    let (one, two) = (platform.upload("one").await, platform.upload("two").await);
    platform.stager.hold(true);
    let first = platform.api().post("/v1/apps/shop/releases", push_of(one)).await;
    until("the first is being built", || platform.stager.jobs().len() == 1).await;
    let second = platform.api().post("/v1/apps/shop/releases", push_of(two)).await;
    until("the second is being built", || platform.stager.jobs().len() == 2).await;
    platform.stager.hold(false);
    let (first, second) = tokio::join!(platform.end_of(&first), platform.end_of(&second));
    assert_eq!(second["phase"], "succeeded", "{second}");
    assert!(
        first["phase"] == "succeeded" || first["code"] == "superseded",
        "made its change before the second, or was superseded: {first}"
    );
    assert_eq!(platform.fleet.group(&base("shop")).spec.release, release_of(&second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_push_that_builds_longer_is_superseded_and_its_build_cancelled() {
    let platform = Platform::start().await;
    let two = platform.upload("two").await;
    platform.push("other", push_of(two)).await;
    platform.push("shop", push_of(two)).await;
    let one = platform.upload("one").await;
    platform.stager.hold(true);
    let first = platform.api().post("/v1/apps/shop/releases", push_of(one)).await;
    until("the first is being built", || platform.stager.jobs().len() == 3).await;
    let second = platform.push("shop", json!({"source": two, "instances": 2})).await;
    assert_eq!((&second["phase"], &second["reused"]), (&json!("succeeded"), &json!(true)), "{second}");
    let first = platform.end_of(&first).await;
    assert_eq!((&first["phase"], &first["code"]), (&json!("failed"), &json!("superseded")), "{first}");
    assert_eq!(platform.stager.cancelled(), 1);
    assert_eq!(platform.fleet.group(&base("shop")).spec.release, release_of(&second));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_releases_are_kept_and_a_rollback_goes_to_what_ran_before() {
    let platform = Platform::start().await;
    let mut releases = Vec::new();
    for n in 0..7 {
        let pushed = platform.push("shop", push_of(platform.upload(&n.to_string()).await)).await;
        assert_eq!(pushed["phase"], "succeeded", "{pushed}");
        releases.push(release_of(&pushed));
    }
    let kept = platform.api().get("/v1/apps/shop/releases").await.json();
    let kept: Vec<_> = kept["items"].as_array().unwrap().iter().map(|item| item["release"].clone()).collect();
    assert_eq!(kept, releases[2..].iter().rev().map(|release| json!(release)).collect::<Vec<_>>());

    let rolled = platform.end_of(&platform.api().post("/v1/apps/shop/rollback", json!({})).await).await;
    assert_eq!(
        (&rolled["phase"], &rolled["release"]),
        (&json!("succeeded"), &json!(releases[5])),
        "{rolled}"
    );
    let named = json!({"release": releases[3].short()});
    let rolled = platform.end_of(&platform.api().post("/v1/apps/shop/rollback", named).await).await;
    assert_eq!(rolled["release"], json!(releases[3]));
    assert_eq!(platform.fleet.group(&base("shop")).spec.release, releases[3]);

    let gone = platform.api().post("/v1/apps/shop/rollback", json!({"release": releases[0].short()})).await;
    assert_eq!((gone.status, gone.code().as_str()), (StatusCode::NOT_FOUND, "not_found"));
    let nothing = platform.api().post("/v1/apps/shop/rollback", json!({"lane": "nope"})).await;
    assert_eq!(nothing.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_with_a_push_is_told_at_once_and_all_of_it() {
    let platform = Platform::start().await;
    let body = json!({"sorce": "x", "source": 5, "lane": "A B", "instances": -1, "limits": {"memory": "lots", "cpu": 1},
        "env": {"PORT": "1", "OK": "2", "N": 3}, "health": {"probe": {"http": "x"}, "failures": 0},
        "routes": ["ok.example.com", "http://x"], "grace": "2h", "upstream": {"retry": {"budget": 7}}});
    let refused = platform.api().post("/v1/apps/shop/releases", body).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (422, "invalid"));
    assert_eq!(
        refused.fields(),
        [
            "env.N",
            "env.PORT",
            "grace",
            "health.failures",
            "health.probe.http",
            "instances",
            "lane",
            "limits.cpu",
            "limits.memory",
            "routes[1]",
            "sorce",
            "source",
            "upstream.retry.budget"
        ],
        "{}",
        refused.text()
    );
    let missing = platform.api().post("/v1/apps/shop/releases", push_of(Digest::from_bytes([1; 32]))).await;
    assert_eq!((missing.code().as_str(), missing.fields()), ("not_found", vec!["source".to_owned()]));
    let nameless = platform.api().post("/v1/apps/No%20Name/releases", json!({})).await;
    assert_eq!(nameless.status.as_u16(), 422);
    let source = platform.upload("x").await;
    platform.push("shop", json!({"source": source, "routes": ["x.example.com"]})).await;
    let taken = platform
        .api()
        .post("/v1/apps/other/releases", json!({"source": source, "routes": ["x.example.com"]}))
        .await;
    assert_eq!(taken.code(), "conflict");
    assert!(taken.text().contains("default/default/shop"), "{}", taken.text());
    let nowhere = platform.api().post("/v1/apps/shop/releases?space=nope", push_of(source)).await;
    assert_eq!(nowhere.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_with_an_idempotency_key_is_done_once() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let api = platform.api().with("idempotency-key", "push-1");
    let first = api.post("/v1/apps/shop/releases", push_of(source)).await;
    let again = api.post("/v1/apps/shop/releases", push_of(source)).await;
    assert_eq!(first.json()["id"], again.json()["id"]);
    platform.end_of(&again).await;
    let other = api.post("/v1/apps/shop/releases", json!({"source": source, "instances": 3})).await;
    assert_eq!(other.code(), "invalid", "{}", other.text());
    let operations = platform.api().get("/v1/operations?app=shop").await.json();
    assert_eq!(operations["items"].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_told_while_they_happen_and_again_from_where_a_client_left() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", push_of(source)).await;
    let path = format!("{}/events", accepted.headers["location"].to_str().unwrap());
    let mut follow = Follow::open(&platform, &path).await;
    follow.until("the first line", |events| events.iter().any(|(name, _)| name == "line")).await;
    assert!(events_end(&follow.events).is_none());
    platform.stager.hold(false);
    follow.until("the end", |events| events_end(events).is_some()).await;
    assert_eq!(events_end(&follow.events).unwrap()["phase"], "succeeded");
    let all = platform.api().get(&path).await.text();
    let rest = platform.api().with("last-event-id", "2").get(&path).await.text();
    assert!(all.starts_with("id: 1\n") && rest.starts_with("id: 3\n"), "{all}");
    assert!(all.ends_with(&rest));
}

fn events_end(events: &[(String, Value)]) -> Option<&Value> {
    events.iter().find(|(name, _)| name == "done").map(|(_, data)| data)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_content_built_twice_at_once_is_one_release() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.stager.hold(true);
    let base = platform.api().post("/v1/apps/shop/releases", push_of(source)).await;
    let blue = platform.api().post("/v1/apps/shop/releases", json!({"source": source, "lane": "blue"})).await;
    until("both are being built", || platform.stager.jobs().len() == 2).await;
    platform.stager.hold(false);
    let (base, blue) = tokio::join!(platform.end_of(&base), platform.end_of(&blue));
    assert_eq!((&base["phase"], &blue["phase"]), (&json!("succeeded"), &json!("succeeded")), "{base} {blue}");
    let releases = platform.api().get("/v1/apps/shop/releases").await.json();
    assert_eq!(releases["items"].as_array().unwrap().len(), 1);
    assert_eq!(releases["items"][0]["lanes"], json!(["base", "blue"]));
}
