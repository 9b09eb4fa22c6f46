//! Changes of several steps that are cut off at each of them: they go on or are as if they had never been, never half.

use crate::client::{Platform, push_of};
use crate::fleet::{app, until, until_async};
use crate::stager::Stager;
use http::Method;
use serde_json::{Value, json};
use towpath_manager::core::keys;
use towpath_store::{Query, Store};
use towpath_types::spec::RouteSpec;
use towpath_types::{Kind, LaneName};

/// Steps at which work is cut off. Deletes have the most: accepted, stopped, drained, removed, ended.
const STEPS: u64 = 6;

/// What there is of an app: itself, groups, routes, releases.
async fn parts(platform: &Platform, name: &str) -> [usize; 4] {
    let list = |kind| async move {
        let page = platform.store.list(&Query { kind: Some(kind), ..Query::default() }).await.unwrap();
        page.records
    };
    let own = |records: Vec<towpath_types::Record>| {
        records.iter().filter(|record| record.key.name.starts_with(&format!("{name}:"))).count()
    };
    let routes = list(Kind::Route).await;
    let leads = |record: &&towpath_types::Record| {
        record.spec::<RouteSpec>().is_ok_and(|route| route.app == app(name))
    };
    let there = platform.store.get(&keys::app_key(&app(name))).await.unwrap().is_some();
    [
        usize::from(there),
        own(list(Kind::Group).await),
        routes.iter().filter(leads).count(),
        own(list(Kind::Release).await),
    ]
}

/// All operations of an app, once they have ended.
async fn ended(platform: &Platform, name: &str) -> Vec<Value> {
    let path = format!("/v1/operations?app={name}");
    let over = |operation: &Value| matches!(operation["phase"].as_str(), Some("succeeded" | "failed"));
    until_async("all operations have ended", || async {
        let listed = platform.api().get(&path).await;
        listed.status.is_success() && listed.json()["items"].as_array().unwrap().iter().all(over)
    })
    .await;
    platform.api().get(&path).await.json()["items"].as_array().unwrap().clone()
}

/// The manager is gone at the step, and another one starts. A step that does not come is none to be cut off at.
async fn cut_off(platform: &mut Platform, name: &str, step: u64, late: bool, ask: (Method, &str, Value)) {
    platform.store.die_after(step, late);
    let (method, path, body) = ask;
    platform.api().json(method, path, body).await;
    let api = platform.api();
    let path = format!("/v1/operations?app={name}");
    until_async("it is cut off, or done", || async {
        if platform.store.is_down() {
            return true;
        }
        let items = api.get(&path).await.json()["items"].as_array().cloned().unwrap_or_default();
        let over = |item: &Value| matches!(item["phase"].as_str(), Some("succeeded" | "failed"));
        !items.is_empty() && items.iter().all(over)
    })
    .await;
    platform.stager.stop();
    platform.fleet.stop().await;
    platform.store.revive();
    platform.fleet.start_again().await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    until("it has joined", || platform.fleet.core().may_act()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_is_made_whole_or_not_at_all_wherever_it_is_cut_off() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    let mut whole = 0;
    for step in 0..STEPS {
        let name = format!("app-{step}");
        let path = format!("/v1/apps/{name}/releases");
        cut_off(&mut platform, &name, step, step % 2 == 0, (Method::POST, &path, push_of(source))).await;
        let operations = ended(&platform, &name).await;
        let made = parts(&platform, &name).await;
        assert!(made == [0; 4] || made == [1; 4], "half an app, cut off at {step}: {made:?} {operations:?}");
        // What was accepted goes on.
        let succeeded = operations.iter().any(|operation| operation["phase"] == "succeeded");
        assert_eq!((operations.len(), succeeded), (usize::from(succeeded), made == [1; 4]), "{operations:?}");
        whole += usize::from(succeeded);
    }
    assert!(whole >= usize::try_from(STEPS).unwrap() - 1, "what was stored was done");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_app_or_lane_is_deleted_whole_wherever_that_is_cut_off() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    for step in 0..STEPS {
        let name = format!("app-{step}");
        let pushed = platform.push(&name, push_of(source)).await;
        assert_eq!(pushed["phase"], "succeeded", "{pushed}");
        // Every second time it is the group alone.
        let lane = step % 2 == 1;
        let path = if lane { format!("/v1/apps/{name}/groups/base") } else { format!("/v1/apps/{name}") };
        cut_off(&mut platform, &name, step, step % 3 == 0, (Method::DELETE, &path, json!({}))).await;
        let operations = ended(&platform, &name).await;
        let left = parts(&platform, &name).await;
        let accepted = operations.len() > 1;
        match (accepted, lane) {
            (false, _) => assert_eq!(left, [1; 4], "it was not accepted, and nothing was done: {step}"),
            (true, true) => assert_eq!((left[0], left[1]), (1, 0), "{step}: {operations:?}"),
            (true, false) => assert_eq!(left, [0; 4], "{step}: {operations:?}"),
        }
        let failed = operations.iter().find(|operation| operation["phase"] == "failed");
        assert_eq!(failed, None, "{step}");
        assert!(
            !accepted
                || platform
                    .fleet
                    .core()
                    .cache
                    .group(&keys::GroupRef::new(app(&name), LaneName::base()))
                    .is_none()
        );
    }
}
