//! However large an environment is made, bit by bit: the cell's other instances go on.

use crate::client::{Platform, push_of};
use crate::fleet::{app, until};
use crate::sealed::with_key;
use http::StatusCode;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use towpath_manager::core::keys;
use towpath_store::{Expect, Write};
use towpath_types::{Digest, Kind};

async fn start() -> Platform {
    let platform = Platform::start_with(with_key).await;
    let hash: [u8; 32] = Sha256::digest(platform.cell_token.as_bytes()).into();
    platform.cell.trust(Some(Digest::from_bytes(hash)));
    for app in ["shop", "other"] {
        let source = platform.upload(app).await;
        platform.push(app, push_of(source)).await;
    }
    platform
}

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

async fn set(platform: &Platform, path: &str, body: Value) {
    let accepted = platform.api().patch(path, body).await;
    assert_eq!(accepted.status, StatusCode::ACCEPTED, "{}", accepted.text());
    assert_eq!(platform.end_of(&accepted).await["phase"], "succeeded");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_changes_do_not_add_up_to_an_environment_that_no_cell_can_be_told() {
    let platform = start().await;
    let api = platform.api();
    for path in ["/v1/apps/shop/env", "/v1/apps/shop/env?lane=base"] {
        set(&platform, path, json!({"A": text(100_000)})).await;
        for more in [json!({"B": text(100_000)}), json!({"B": {"secret": "\u{1}".repeat(20_000)}})] {
            let refused = api.patch(path, more).await;
            assert_eq!((refused.status.as_u16(), refused.code().as_str()), (422, "invalid"));
            assert_eq!(refused.fields(), ["env"], "{}", refused.text());
            assert!(refused.text().contains("at most 196608"), "{}", refused.text());
        }
    }
    let more = json!({"B": text(100_000)});
    let group = api.patch("/v1/apps/shop/groups/base", json!({"env": more})).await;
    let merged = api.patch("/v1/apps/shop", json!({"env": more})).await;
    let controls = api.put("/v1/apps/shop", json!({"env": {"C": "\u{1}".repeat(40_000)}})).await;
    let mut push = push_of(platform.upload("two").await);
    push["env"] = more;
    let pushed = api.post("/v1/apps/shop/releases", push).await;
    for refused in [group, merged, controls, pushed] {
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (422, "invalid"),
            "{}",
            refused.text()
        );
    }
    // What is as large as permitted is told, and what it takes can be given back.
    set(&platform, "/v1/apps/shop/env", json!({"B": {"secret": "\u{1}".repeat(15_000)}})).await;
    set(&platform, "/v1/apps/shop/env", json!({"A": null, "B": null})).await;
    set(&platform, "/v1/apps/shop/env", json!({"B": text(100_000)})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_that_are_longer_in_a_message_than_in_the_store_take_several_pages() {
    let platform = start().await;
    set(&platform, "/v1/apps/shop/env", json!({"TOKEN": {"secret": "\u{1}".repeat(30_000)}})).await;
    set(&platform, "/v1/apps/shop/groups/base", json!({"count": 6})).await;
    let given = || platform.cell.secrets().0.values().filter(|of| of.contains_key("TOKEN")).count();
    until("all six have it", || given() == 6).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_instance_that_no_message_holds_is_left_out_and_the_others_go_on() {
    let platform = start().await;
    let core = platform.fleet.core();
    // As an earlier version let it grow.
    let shop = core.cache.list(Kind::App, None, None);
    let shop = shop.iter().find(|record| record.key == keys::app_key(&app("shop"))).unwrap();
    let mut spec: Value = shop.spec().unwrap();
    for n in 0..10 {
        spec["env"][format!("A{n}")] = json!(text(110_000));
    }
    let write = Write::Put {
        key: shop.key.clone(),
        id: shop.id.clone(),
        expect: Expect::At(shop.revision),
        spec: Some(spec),
        status: None,
    };
    core.commit(vec![write]).await.unwrap();
    until("the cell is told why", || {
        platform.cell.secrets().1.values().any(|why| why.contains("environment smaller"))
    })
    .await;
    set(&platform, "/v1/apps/other/groups/base", json!({"count": 3})).await;
    // It may become smaller, step by step, and runs then.
    set(
        &platform,
        "/v1/apps/shop/env",
        json!((1..10).map(|n| (format!("A{n}"), Value::Null)).collect::<serde_json::Map<_, _>>()),
    )
    .await;
    assert!(platform.cell.secrets().1.is_empty());
}
