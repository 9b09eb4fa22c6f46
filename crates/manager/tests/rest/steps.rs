//! Changes of several steps that are cut off at each of them: they go on or are as if they had never been, never half.

use crate::client::{Client, Platform, push_of};
use crate::fleet::{app, until, until_async};
use crate::stager::Stager;
use http::Method;
use serde_json::{Value, json};
use towpath_manager::core::keys;
use towpath_store::{Expect, Query, Store, Transaction, Write};
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
    let client = platform.api();
    cut_off_as(platform, &client, name, (step, late), ask).await;
    start_again(platform).await;
}

async fn cut_off_as(
    platform: &mut Platform,
    client: &Client,
    name: &str,
    (step, late): (u64, bool),
    ask: (Method, &str, Value),
) {
    platform.store.die_after(step, late);
    let (method, path, body) = ask;
    client.json(method, path, body).await;
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
}

async fn start_again(platform: &mut Platform) {
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

/// Variables with values, under a key of the client's: what is kept of the answer has no values, what is stored has all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_accepted_under_a_key_is_done_wherever_it_is_cut_off() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    for (step, late) in (0..3).flat_map(|step| [(step, false), (step, true)]) {
        let name = format!("app-{step}-{late}");
        let path = format!("/v1/apps/{name}/releases");
        let client = platform.api().with("idempotency-key", &name);
        let mut push = push_of(source);
        push["env"] = json!({"GREETING": "hello"});
        cut_off_as(&mut platform, &client, &name, (step, late), (Method::POST, &path, push)).await;
        start_again(&mut platform).await;
        for operation in ended(&platform, &name).await {
            assert_eq!(operation["phase"], "succeeded", "{step} {late}: {operation}");
        }
    }
}

/// The later one wins, also while nobody runs the earlier one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_that_was_cut_off_leaves_what_was_started_since() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    let mut raced = [0; 2];
    for step in 0..2 * STEPS {
        let name = format!("app-{step}");
        let pushed = platform.push(&name, push_of(source)).await;
        assert_eq!(pushed["phase"], "succeeded", "{pushed}");
        let lane = step % 2 == 1;
        let path = if lane { format!("/v1/apps/{name}/groups/base") } else { format!("/v1/apps/{name}") };
        let client = platform.api();
        cut_off_as(&mut platform, &client, &name, (step / 2, true), (Method::DELETE, &path, json!({}))).await;
        let group = keys::GroupRef::new(app(&name), LaneName::base());
        let stopped =
            platform.store.get(&group.key()).await.unwrap().filter(|record| record.spec["stopped"] == true);
        let mut started = false;
        if let Some(mut record) = stopped {
            record.spec["stopped"] = false.into();
            let write = Write::Put {
                key: group.key(),
                id: record.id,
                expect: Expect::At(record.revision),
                spec: Some(record.spec),
                status: None,
            };
            let transaction = Transaction { writes: vec![write], fence: None, idempotency: None };
            // It may have been over a moment later.
            started = platform.store.commit(transaction).await.is_ok();
        }
        start_again(&mut platform).await;
        let operations = ended(&platform, &name).await;
        if started {
            assert_eq!(parts(&platform, &name).await[..2], [1, 1], "{step}: {operations:?}");
            raced[usize::from(lane)] += 1;
        }
    }
    assert!(raced[0] > 0 && raced[1] > 0, "{raced:?}");
}

/// What was made anew since a delete was asked for is not what that was to delete.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_that_was_cut_off_leaves_what_was_made_anew() {
    let mut platform = Platform::start().await;
    let source = platform.upload("one").await;
    let mut anew = [0; 2];
    for step in 2..8 {
        let name = format!("app-{step}");
        let pushed = platform.push(&name, push_of(source)).await;
        assert_eq!(pushed["phase"], "succeeded", "{pushed}");
        let lane = step % 2 == 1;
        let path = if lane { format!("/v1/apps/{name}/groups/base") } else { format!("/v1/apps/{name}") };
        let client = platform.api();
        let ids = [(); 2].map(|()| platform.fleet.core().mint_record_id());
        cut_off_as(&mut platform, &client, &name, (step / 2, true), (Method::DELETE, &path, json!({}))).await;
        let (of_app, of_group) =
            (keys::app_key(&app(&name)), keys::GroupRef::new(app(&name), LaneName::base()).key());
        let store = &platform.store;
        let (Some(old_app), Some(old_group)) =
            (store.get(&of_app).await.unwrap(), store.get(&of_group).await.unwrap())
        else {
            start_again(&mut platform).await;
            continue;
        };
        if old_group.spec["stopped"] == true {
            for (record, id) in [old_group, old_app].into_iter().zip(ids) {
                let delete = Write::Delete { key: record.key.clone(), expect: Expect::Any };
                let put = Write::Put {
                    key: record.key,
                    id,
                    expect: Expect::Absent,
                    spec: Some(record.spec),
                    status: None,
                };
                for write in [delete, put] {
                    let transaction = Transaction { writes: vec![write], fence: None, idempotency: None };
                    store.commit(transaction).await.unwrap();
                }
            }
            anew[usize::from(lane)] += 1;
            start_again(&mut platform).await;
            let operations = ended(&platform, &name).await;
            assert_eq!(parts(&platform, &name).await[..2], [1, 1], "{step}: {operations:?}");
        } else {
            start_again(&mut platform).await;
        }
    }
    assert!(anew[0] > 0 && anew[1] > 0, "{anew:?}");
}
