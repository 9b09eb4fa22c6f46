//! A store that is gone, a cell that falls silent, a manager that is started again.

use crate::client::{Platform, push_of};
use crate::fleet::{SOON, app, until};
use crate::stager::Stager;
use http::StatusCode;
use serde_json::json;
use towpath_manager::core::keys::{self, GroupRef};
use towpath_store::{Expect, Store, Transaction, Write};
use towpath_types::spec::{OperationPhase, OperationSpec, OperationStatus};
use towpath_types::{LaneName, OperationId};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_store_reads_are_marked_and_changes_have_to_wait() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", push_of(source)).await;
    platform.store.set_down(true);
    for path in
        ["/v1/apps", "/v1/apps/shop", "/v1/apps/shop/releases", "/v1/routes", "/v1/lanes", "/v1/status"]
    {
        let read = platform.api().get(path).await;
        assert_eq!(read.status, StatusCode::OK, "{path}: {read:?}");
        assert_eq!(read.headers["towpath-stale"], "true", "{path}");
    }
    assert_eq!(platform.api().get("/v1/apps").await.json()["items"][0]["name"], "shop");
    let status = platform.api().get("/v1/status").await.json();
    assert_eq!(
        (&status["store"]["ok"], &status["store"]["state"]),
        (&json!(false), &json!("down")),
        "{status}"
    );
    assert_eq!(platform.api().get("/v1/healthz").await.status, StatusCode::OK, "it lives");
    let ready = platform.api().get("/v1/readyz").await;
    assert_eq!((ready.status.as_u16(), ready.code().as_str()), (503, "store_unavailable"));
    assert!(ready.headers.contains_key("retry-after"));
    for answer in [
        platform.api().post("/v1/apps/shop/releases", push_of(source)).await,
        platform.api().put("/v1/apps/other", json!({})).await,
        platform.api().patch("/v1/apps/shop/groups/base", json!({"count": 2})).await,
        platform.api().put("/v1/lanes/blue", json!({})).await,
    ] {
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (503, "store_unavailable"));
        assert!(answer.headers.contains_key("retry-after"));
    }
    platform.store.set_down(false);
    crate::fleet::until_async("it works again", || async {
        platform.api().put("/v1/apps/other", json!({})).await.status == StatusCode::CREATED
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_build_on_a_silent_cell_is_done_on_another() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    let other = platform.fleet.cell().await;
    let second = Stager::start(&platform.fleet, other.id, platform.cell_token.clone()).await;
    until("both are heard", || platform.fleet.core().soft.cells().len() == 2).await;
    let end = platform.push("shop", json!({"source": source, "builder": "silent-once"})).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    assert_eq!((platform.stager.jobs().len(), second.jobs().len()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_that_is_started_again_goes_on_with_what_it_left() {
    let mut platform = Platform::start().await;
    let (one, two) = (platform.upload("one").await, platform.upload("two").await);
    platform.push("shop", push_of(one)).await;
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", push_of(two)).await;
    until("it is being built", || platform.stager.jobs().len() == 2).await;
    platform.stager.stop();
    platform.fleet.restart().await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    let end = platform.end_of(&accepted).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    let group = platform.fleet.group(&GroupRef::new(app("shop"), LaneName::base()));
    assert_eq!(json!(group.spec.release), end["release"]);
    let events = platform.events_of(&end).await;
    assert_eq!(events.last().unwrap().0, "done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_clock_was_set_back_the_newest_push_still_wins() {
    let mut platform = Platform::start().await;
    let (one, two) = (platform.upload("one").await, platform.upload("two").await);
    platform.push("shop", push_of(one)).await;
    platform.store.set_clock_back(86_400_000);
    platform.stager.stop();
    platform.fleet.restart().await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    let end = platform.push("shop", push_of(two)).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    let group = platform.fleet.group(&GroupRef::new(app("shop"), LaneName::base()));
    assert_eq!(json!(group.spec.release), end["release"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_does_not_tell_of_the_release_of_another() {
    let mut platform = Platform::start().await;
    let (one, two) = (platform.upload("one").await, platform.upload("two").await);
    let first = platform.api().post("/v1/apps/shop/releases", push_of(one)).await;
    platform.end_of(&first).await;
    platform.push("shop", push_of(two)).await;
    // As if the manager had ended before it could look at what became of the first.
    let id = first.json()["id"].as_str().unwrap().parse().unwrap();
    let record = platform.fleet.core().cache.get(&keys::operation_key(id)).unwrap();
    let mut status: OperationStatus = record.status().unwrap();
    status.phase = OperationPhase::Rolling;
    let write = Write::Put {
        key: record.key.clone(),
        id: record.id.clone(),
        expect: Expect::Any,
        spec: None,
        status: Some(json!(status)),
    };
    platform.fleet.core().commit(vec![write]).await.unwrap();
    platform.fleet.restart().await;
    let end = platform.end_of(&first).await;
    assert_eq!((&end["phase"], &end["code"]), (&json!("failed"), &json!("superseded")), "{end}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_no_writes_is_called_degraded_and_why() {
    let platform = Platform::start().await;
    assert_eq!(platform.api().get("/v1/readyz").await.json(), json!({"ok": true}));
    platform.store.set_read_only(true);
    crate::fleet::until_async("it is told", || async {
        platform.api().get("/v1/status").await.json()["store"]["state"] == "degraded"
    })
    .await;
    let status = platform.api().get("/v1/status").await;
    assert!(!status.headers.contains_key("towpath-stale"), "what is read is true");
    let why = status.json()["store"]["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("writes fail: ") && why.contains("no room on the disk"), "{why}");
    let ready = platform.api().get("/v1/readyz").await;
    assert_eq!(ready.code(), "store_unavailable");
    assert!(ready.text().contains("no room on the disk"), "{}", ready.text());
    platform.store.set_read_only(false);
    crate::fleet::until_async("it is well again", || async {
        platform.api().get("/v1/readyz").await.status == StatusCode::OK
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_task_that_breaks_is_told_and_ends_the_role() {
    let platform = Platform::start().await;
    platform.store.set_panics(true);
    let failed = platform.fleet.manager.as_ref().unwrap().failed();
    let what = tokio::time::timeout(crate::fleet::SOON, failed).await.unwrap();
    assert!(what.contains("on purpose"), "{what}");
    platform.store.set_panics(false);
    for path in ["/v1/healthz", "/v1/readyz"] {
        let health = platform.api().get(path).await;
        assert_eq!((health.status.as_u16(), health.code().as_str()), (503, "manager_broken"), "{path}");
        assert!(health.text().contains("on purpose"), "{}", health.text());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_by_hours_ends_no_operation_and_refuses_no_push() {
    const HOURS: u64 = 6 * 3_600_000;
    let platform = Platform::start().await;
    let (one, two, three) =
        (platform.upload("one").await, platform.upload("two").await, platform.upload("three").await);
    platform.push("shop", push_of(one)).await;
    for (source, ahead, back) in [(two, HOURS, 0), (three, HOURS, 2 * HOURS)] {
        platform.stager.hold(true);
        let built = platform.stager.jobs().len();
        let under_way = platform.api().post("/v1/apps/shop/releases", push_of(source)).await;
        until("it is being built", || platform.stager.jobs().len() > built).await;
        platform.store.set_clock_ahead(ahead);
        platform.store.set_clock_back(back);
        // The manager takes the store's time when it joins, and so at once after an eviction.
        let before = platform.fleet.core().fence().unwrap();
        crate::fleet::until_async("it is evicted", || async {
            !platform.store.evict_silent(0).await.unwrap().is_empty()
        })
        .await;
        until("it joins anew", || platform.fleet.core().fence().is_some_and(|fence| fence != before)).await;
        platform.stager.hold(false);
        let end = platform.end_of(&under_way).await;
        assert_eq!(end["phase"], "succeeded", "{ahead} {back}: {end}");
        let later = platform.push("shop", push_of(one)).await;
        assert_eq!(later["phase"], "succeeded", "{ahead} {back}: {later}");
        let group = platform.fleet.group(&GroupRef::new(app("shop"), LaneName::base()));
        assert_eq!(json!(group.spec.release), later["release"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operation_that_brings_down_whoever_runs_it_is_given_up() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.stager.hold(true);
    let accepted = platform.api().post("/v1/apps/shop/releases", push_of(source)).await;
    for _ in 0..4 {
        until("it is being built", || platform.stager.jobs().len() == 1).await;
        platform.stager.stop();
        platform.fleet.stop().await;
        platform.stager =
            Stager::start_held(&platform.fleet, platform.cell.id, platform.cell_token.clone(), true).await;
        platform.fleet.start_again().await;
    }
    let end = platform.end_of(&accepted).await;
    assert_eq!((&end["phase"], &end["code"]), (&json!("failed"), &json!("internal")), "{end}");
    assert!(end["message"].as_str().unwrap().contains("it was begun 4 times"), "{end}");
    assert!(platform.stager.jobs().is_empty(), "it was not begun once more");
    // What comes after it is done.
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    assert_eq!(platform.push("shop", push_of(source)).await["phase"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_outage_what_was_left_is_taken_up_behind_what_this_manager_cannot_take() {
    let platform = Platform::start().await;
    let source = platform.upload("one").await;
    platform.push("shop", push_of(source)).await;
    let done = platform.api().patch("/v1/apps/shop/groups/base", json!({"count": 2})).await;
    platform.end_of(&done).await;
    let core = platform.fleet.core();
    let id = done.json()["id"].as_str().unwrap().parse().unwrap();
    let mut spec: OperationSpec = core.cache.get(&keys::operation_key(id)).unwrap().spec().unwrap();
    // The store takes no writes, so this manager knows of no write that was made since.
    platform.store.set_read_only(true);
    core.commit(vec![]).await.unwrap_err();
    let before = platform.store.commits();
    let (first, second) = (OperationId::mint(1, [1; 10]), OperationId::mint(2, [2; 10]));
    spec.operation = second;
    let put = |id: OperationId, spec: serde_json::Value| Write::Put {
        key: keys::operation_key(id),
        id: id.to_string(),
        expect: Expect::Absent,
        spec: Some(spec),
        status: Some(json!(OperationStatus::default())),
    };
    // Nothing is to be done with the first: a newer version wrote it.
    let writes = vec![put(first, json!({"newer": true})), put(second, json!(spec))];
    let left = Transaction { writes, fence: None, idempotency: None };
    let revision = platform.store.inner().commit(left).await.unwrap().revision;
    assert!(core.wait_cache(revision, SOON).await);
    until("it was tried", || platform.store.commits() > before).await;
    platform.store.set_read_only(false);
    until("the second is taken up", || {
        let record = core.cache.get(&keys::operation_key(second)).unwrap();
        record.spec::<OperationSpec>().unwrap().taken_up == 1
    })
    .await;
}
