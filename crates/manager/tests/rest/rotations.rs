//! Rotations of keys: cut off at each commit, among several managers, and what operations hold until their change is made.

use crate::client::{Client, Platform};
use crate::fleet::{until, until_async};
use crate::managers::Pair;
use crate::sealed::{bytes_below, contains, given, hash, set, start, with_key};
use crate::sealed_resources::{opened, path_of, put, resources, with_gateways};
use crate::stager::Stager;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::path::Path;
use towpath_manager::core::keys;
use towpath_store::Store;
use towpath_types::ManagerId;

/// In no other word of a test.
const VALUE: &str = "hunter2-r0tation-value";

async fn rotate(api: &Client) -> crate::client::Answer {
    api.send(Method::POST, "/v1/secrets/rotate", Vec::new()).await
}

/// The rotations, newest first.
async fn rotations(platform: &Platform) -> Vec<Value> {
    let listed = platform.api().get("/v1/operations?org=towpath&space=platform").await.json();
    listed["items"].as_array().unwrap().clone()
}

/// That everything is sealed with the newest key, or with the one before.
async fn settled(platform: &Platform, newest: bool) {
    let status = platform.api().get("/v1/secrets").await.json();
    for (at, key) in status["keys"].as_array().unwrap().iter().enumerate() {
        let is_it = at == usize::from(!newest);
        assert_eq!((&key["active"], key["values"] == json!(0)), (&json!(is_it), !is_it), "{status}");
    }
}

/// Gateways of the version before could not read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_plain_is_sealed_once_the_protocol_is_not_held_any_more() {
    let mut platform = Platform::start_with(|settings| {
        with_gateways(settings);
        settings.protocol = 1;
    })
    .await;
    let (kind, id, sent, _) = resources().into_iter().next().unwrap();
    assert_eq!(put(&platform, &path_of(kind, id), &sent).await.status, StatusCode::CREATED);
    let plain = json!({"username": "jack", "plugins": {"key-auth": {"key": VALUE}}});
    let key = keys::resource_name("consumers/jack".into());
    platform.fleet.put(key.clone(), plain.clone()).await;
    rotate(&platform.api()).await;
    until_async("the rotation has ended without it", async || {
        rotations(&platform).await.first().is_some_and(|rotation| rotation["phase"] == "succeeded")
    })
    .await;
    let stored = async || platform.store.get(&key).await.unwrap().unwrap().spec;
    assert_eq!(stored().await, plain);
    // Without the setting.
    platform.fleet.restart().await;
    until_async("it is sealed", async || {
        !platform.store.get(&key).await.unwrap().unwrap().spec.to_string().contains(VALUE)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_goes_on_wherever_it_is_cut_off() {
    let mut platform = Platform::start_with(with_gateways).await;
    platform.cell.trust(Some(hash(&platform.cell_token)));
    let source = platform.upload("one").await;
    platform.push("shop", crate::client::push_of(source)).await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    for (kind, id, sent, _) in resources().into_iter().take(2) {
        assert_eq!(put(&platform, &path_of(kind, id), &sent).await.status, StatusCode::CREATED);
    }
    let instances: Vec<_> = platform.cell.specs().iter().map(|spec| spec.instance).collect();
    let file = platform.fleet.dir.path().join("secrets.key");
    let (mut cut, mut whole) = (0, 0);
    for step in 0.. {
        // A new key, which whoever starts finds.
        platform.stager.stop();
        platform.fleet.stop().await;
        keep(&file, 1);
        towpath_secrets::prepend(&file).unwrap();
        platform.fleet.start_again().await;
        let before = rotations(&platform).await.len();
        platform.store.die_after(step, step % 2 == 0);
        rotate(&platform.api()).await;
        let over = |items: &[Value]| {
            items.len() > before && matches!(items[0]["phase"].as_str(), Some("succeeded" | "failed"))
        };
        until_async("it is cut off, or done", async || {
            platform.store.is_down() || over(&rotations(&platform).await)
        })
        .await;
        let died = platform.store.is_down();
        cut += u32::from(died);
        platform.fleet.stop().await;
        platform.store.revive();
        platform.fleet.start_again().await;
        platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
        until("it has joined", || platform.fleet.core().may_act()).await;
        until_async("all rotations have ended", async || {
            rotations(&platform)
                .await
                .iter()
                .all(|it| matches!(it["phase"].as_str(), Some("succeeded" | "failed")))
        })
        .await;
        let all = rotations(&platform).await;
        let accepted = all.len() > before;
        assert!(all.iter().all(|it| it["phase"] == "succeeded"), "{step}: {all:?}");
        settled(&platform, accepted).await;
        for (kind, id, sent, _) in resources().into_iter().take(2) {
            assert_eq!(opened(&platform, kind, id).await["plugins"], sent["plugins"], "{step}");
        }
        until("the secret is given as before", || given(&platform).len() == 1).await;
        whole += u32::from(accepted);
        if !died {
            break;
        }
        if !accepted {
            // The key that was not taken up is out of the way of the next one.
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.split_once('\n').unwrap().1).unwrap();
        }
    }
    assert!(cut >= 8 && whole >= cut, "cut off {cut} times, {whole} of those asked for were done");
    let after: Vec<_> = platform.cell.specs().iter().map(|spec| spec.instance).collect();
    assert_eq!(after, instances, "nothing was replaced");
}

/// The first lines of a key file, of which the first one is in use.
fn keep(file: &Path, lines: usize) {
    let text = std::fs::read_to_string(file).unwrap();
    let kept: Vec<&str> = text.lines().take(lines).collect();
    std::fs::write(file, kept.join("\n") + "\n").unwrap();
}

fn first_line(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap().lines().next().unwrap().to_owned()
}

/// Managers that have the key, as the store says.
async fn holders(pair: &Pair, key: &Value) -> Vec<ManagerId> {
    let record = pair.platform.store.get(&keys::keyring_key()).await.unwrap().unwrap();
    let managers = record.status["managers"].as_object().unwrap().clone();
    let has = |keys: &Value| keys.as_array().unwrap().contains(key);
    managers.iter().filter(|(_, keys)| has(keys)).map(|(manager, _)| manager.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_managers_rotate_once_all_have_the_key_and_one_without_it_says_so() {
    let pair = Pair::start_with(true, true).await;
    let (first, second) = (pair.platform.fleet.dir.path().join("secrets.key"), pair.key_file());
    let old = std::fs::read_to_string(&first).unwrap();
    let (at_first, at_second) = (pair.platform.api(), pair.api());
    until_async("the second can seal", async || at_second.get("/v1/secrets").await.json()["ready"] == true)
        .await;
    assert_eq!(at_first.put("/v1/apps/shop", json!({})).await.status, StatusCode::CREATED);
    let jack = json!({"username": "jack", "plugins": {"key-auth": {"key": VALUE}}}).to_string();
    let made = at_second.send(Method::PUT, "/apisix/admin/consumers", jack.clone()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let accepted = at_second.patch("/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    assert_eq!(pair.platform.end_of(&accepted).await["phase"], "succeeded");

    let newest = towpath_secrets::prepend(&first).unwrap().newest().unwrap().id().to_string();
    until_async("the first has read it", async || holders(&pair, &json!(newest)).await.len() == 1).await;
    let refused = rotate(&at_first).await;
    assert_eq!(refused.code(), "conflict", "{}", refused.text());
    let lacking = pair.second.core().manager.to_string();
    assert!(refused.text().contains(&newest) && refused.text().contains(&lacking), "{}", refused.text());
    std::fs::copy(&first, &second).unwrap();
    until_async("both have it", async || holders(&pair, &json!(newest)).await.len() == 2).await;
    let accepted = rotate(&at_first).await;
    assert_eq!(pair.platform.end_of(&accepted).await["phase"], "succeeded", "{}", accepted.text());
    // The other reads and writes what this one has sealed anew.
    until_async("it has heard of it", async || {
        let keys = at_second.get("/v1/secrets").await.json()["keys"].clone();
        (&keys[0]["id"], &keys[1]["removable"]) == (&json!(newest), &json!(true))
    })
    .await;
    let shown = at_second.get("/apisix/admin/consumers/jack").await.json()["value"].clone();
    let again = json!({"username": "jack", "plugins": shown["plugins"]}).to_string();
    let again = at_second.send(Method::PUT, "/apisix/admin/consumers", again).await;
    assert_eq!(again.json()["value"]["plugins"], shown["plugins"], "{}", again.text());
    let accepted = at_second.patch("/v1/apps/shop/env", json!({"MORE": {"secret": VALUE}})).await;
    assert_eq!(pair.platform.end_of(&accepted).await["phase"], "succeeded");

    // One is given back the file from before.
    std::fs::write(&second, old).unwrap();
    until_async("it says that it lacks the key", async || {
        let status = at_second.get("/v1/secrets").await.json();
        let said = status["trouble"].as_str().unwrap_or_default();
        status["ready"] == false
            && said.contains(&newest)
            && said.contains("copy the file of a manager that has it")
    })
    .await;
    let refused = at_second.send(Method::PUT, "/apisix/admin/consumers", jack).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(refused.text().contains(&newest) && !refused.text().contains(VALUE), "{}", refused.text());
    let refused = rotate(&at_second).await;
    assert_eq!((refused.status.as_u16(), refused.code().as_str()), (503, "secrets_unavailable"));
    assert_eq!(at_first.get("/v1/secrets").await.json()["ready"], true, "the other is as ever");
    assert_eq!(first_line(&first).len(), "towpath-key-1 ".len() + 64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_is_gone_on_with_by_another_manager_when_its_own_dies() {
    let pair = Pair::start_with(true, true).await;
    let (first, second) = (pair.platform.fleet.dir.path().join("secrets.key"), pair.key_file());
    until_async("the second can seal", async || pair.api().get("/v1/secrets").await.json()["ready"] == true)
        .await;
    let jack = json!({"username": "jack", "plugins": {"key-auth": {"key": VALUE}}}).to_string();
    let made = pair.api().send(Method::PUT, "/apisix/admin/consumers", jack).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    let newest = towpath_secrets::prepend(&first).unwrap().newest().unwrap().id().to_string();
    std::fs::copy(&first, &second).unwrap();
    until_async("both have it", async || holders(&pair, &json!(newest)).await.len() == 2).await;
    // Its store is taken away behind the change of the key, and its heartbeats with it.
    pair.store.die_after(2, false);
    let accepted = rotate(&pair.api()).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text());
    until("it is cut off", || pair.store.is_down()).await;
    let end = pair.platform.end_of(&accepted).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    let keys = pair.platform.api().get("/v1/secrets").await.json()["keys"].clone();
    assert_eq!(
        (&keys[0]["id"], &keys[0]["active"], &keys[1]["values"]),
        (&json!(newest), &json!(true), &json!(0))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_is_followed_like_any_operation_and_by_operators_alone() {
    let platform = start().await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": VALUE}})).await;
    let accepted = rotate(&platform.api()).await;
    let end = platform.end_of(&accepted).await;
    assert_eq!((&end["verb"], &end["phase"]), (&json!("rotate-secrets"), &json!("succeeded")));
    let events = platform.events_of(&end).await;
    let sealed = |(name, data): &(String, Value)| name == "progress" && data["message"] == "sealed anew";
    let last = events.iter().rfind(|event| sealed(event)).unwrap();
    assert!(last.1["ready"].as_u64() >= Some(1) && last.1["ready"] == last.1["wanted"], "{events:?}");
    let made = platform.api().post("/v1/tokens", json!({"name": "dev", "role": "owner"})).await;
    let owner = platform.api_as(made.json()["token"].as_str().unwrap());
    let path = format!("/v1/operations/{}", end["id"].as_str().unwrap());
    assert_eq!(owner.get(&path).await.code(), "not_found");
    assert_eq!(rotate(&owner).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_given_as_it_is_while_its_variable_becomes_secret_is_nowhere_to_be_read() {
    let mut platform = Platform::start_with(with_key).await;
    platform.cell.trust(Some(hash(&platform.cell_token)));
    let source = platform.upload("one").await;
    platform.push("shop", crate::client::push_of(source)).await;
    // An operation that waits for its build, with a value for a variable that is no secret yet.
    platform.stager.hold(true);
    let body = json!({"source": platform.upload("two").await, "env": {"TOKEN": VALUE, "PLAIN": "v1s1ble", "BUILD_X": "1"}});
    let push = platform.api().post("/v1/apps/shop/releases", body).await;
    assert_eq!(push.status, StatusCode::ACCEPTED, "{}", push.text());
    until("it is being built", || platform.stager.jobs().len() == 2).await;
    set(&platform, "/v1/apps/shop/groups/base", json!({"env": {"TOKEN": {"secret": "first"}}})).await;
    let held = bytes_below(platform.fleet.dir.path());
    assert!(contains(&held, "PLAIN") && !contains(&held, VALUE), "the operation that waits does not tell it");
    // It is the same after the manager that took it is gone.
    platform.stager.stop();
    platform.fleet.restart().await;
    platform.stager = Stager::start(&platform.fleet, platform.cell.id, platform.cell_token.clone()).await;
    let end = platform.end_of(&push).await;
    assert_eq!(end["phase"], "succeeded", "{end}");
    let env = platform.api().get("/v1/apps/shop/env?lane=base").await.json();
    assert_eq!(
        (&env["env"]["PLAIN"], &env["secrets"]["TOKEN"]["secret"]),
        (&json!("v1s1ble"), &json!(true)),
        "{env}"
    );
    until("the instance has it", || given(&platform) == [("TOKEN".to_owned(), VALUE.to_owned())]).await;
    assert!(!contains(&bytes_below(platform.fleet.dir.path()), VALUE));
}
