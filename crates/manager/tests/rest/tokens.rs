//! The first tokens.

use crate::client::{Client, Platform};
use crate::fleet::settings;
use http::StatusCode;
use std::sync::Arc;
use towpath_bus::{Bus, MemoryBus};
use towpath_manager::Manager;
use towpath_store::{SqliteStore, Store};

async fn start_again(platform: &mut Platform) -> String {
    let dir = platform.fleet.dir.path().to_owned();
    platform.fleet.manager.take().unwrap().stop().await;
    let mut settings = settings(&dir);
    settings.first_token_file = Some(dir.join("token"));
    settings.cell_token_file = Some(dir.join("cell-token"));
    let manager = Manager::start(settings, platform.fleet.store.clone(), platform.fleet.bus()).await.unwrap();
    platform.fleet.manager = Some(manager);
    std::fs::read_to_string(dir.join("token")).unwrap_or_default().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_token_file_is_written_anew_at_the_next_start() {
    let mut platform = Platform::start().await;
    let first = platform.token.clone();
    assert_eq!(start_again(&mut platform).await, first, "a file that is there stays");
    std::fs::remove_file(platform.fleet.dir.path().join("token")).unwrap();
    let fresh = start_again(&mut platform).await;
    assert_ne!(fresh, first);
    for token in [first, fresh] {
        let client = Client { address: platform.address(), token: Some(token), headers: Vec::new() };
        assert_eq!(client.get("/v1/tokens").await.status, StatusCode::OK, "nobody else's token ends by that");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_was_removed_does_not_come_back_with_its_file() {
    let mut platform = Platform::start().await;
    let made = platform
        .api()
        .post("/v1/tokens", serde_json::json!({"name": "other", "role": "operator"}))
        .await
        .json();
    assert_eq!(platform.api().delete("/v1/tokens/first").await.status, StatusCode::NO_CONTENT);
    let old = start_again(&mut platform).await;
    assert_eq!(old, platform.token);
    assert_eq!(platform.api().get("/v1/tokens").await.status, StatusCode::UNAUTHORIZED);
    let other = platform.api_as(made["token"].as_str().unwrap());
    assert_eq!(other.get("/v1/tokens").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_managers_that_start_at_once_the_token_of_each_is_good() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(&dir.path().join("store.db")).await.unwrap();
    let (store, bus): (Arc<dyn Store>, Arc<dyn Bus>) = (Arc::new(store), Arc::new(MemoryBus::new()));
    let begin = |n: u8| {
        let own = dir.path().join(n.to_string());
        std::fs::create_dir(&own).unwrap();
        let mut settings = settings(&own);
        settings.first_token_file = Some(own.join("token"));
        Manager::start(settings, store.clone(), bus.clone())
    };
    let (a, b, c) = tokio::join!(begin(0), begin(1), begin(2));
    let managers = [a.unwrap(), b.unwrap(), c.unwrap()];
    for n in 0..3 {
        let token = std::fs::read_to_string(dir.path().join(n.to_string()).join("token")).unwrap();
        for manager in &managers {
            let token = Some(token.trim().to_owned());
            let client = Client { address: manager.api_address(), token, headers: Vec::new() };
            assert_eq!(client.get("/v1/tokens").await.status, StatusCode::OK, "token {n}");
        }
    }
}
