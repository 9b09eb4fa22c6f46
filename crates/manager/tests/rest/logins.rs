//! Logins and their limits: whatever is tried, nobody is locked out for long, and no record of others is lost.

use crate::client::{Client, Platform};
use crate::identity::{PASSWORD, login, user};
use futures::future::join_all;
use http::StatusCode;
use serde_json::json;
use std::collections::BTreeSet;
use towpath_store::Query;
use towpath_types::Kind;

async fn attempt(client: &Client, user: &str, password: &str) -> crate::client::Answer {
    client.post("/v1/login", json!({"user": user, "password": password})).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_has_so_many_sessions_and_a_further_one_ends_the_oldest() {
    let platform = Platform::start_with(|settings| settings.limits.sessions_per_user = 3).await;
    let operator = platform.api();
    user(&operator, "ann").await;
    user(&operator, "ben").await;
    let ben = login(&platform, "ben", PASSWORD).await;
    let mut sessions = Vec::new();
    for _ in 0..5 {
        sessions.push(login(&platform, "ann", PASSWORD).await);
    }
    let mut alive = Vec::new();
    for session in sessions.iter().chain([&ben]) {
        alive.push(session.get("/v1/whoami").await.status == StatusCode::OK);
    }
    assert_eq!(alive, [false, false, true, true, true, true], "ben's is not counted with ann's");
    // Many at once are no more.
    let anybody = Client { token: None, ..operator.clone() };
    let answers = join_all((0..8).map(|_| attempt(&anybody, "ann", PASSWORD))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::CREATED), "{answers:?}");
    let core = platform.fleet.core();
    let stored = core.cache.sessions_of(&"ann".parse().unwrap()).len();
    assert_eq!((stored, core.cache.list(Kind::Session, None, None).len()), (3, 4));
    // A new password voids the others; the next login clears them away.
    let last = platform.api_as(answers[7].json()["token"].as_str().unwrap());
    drop(last);
    operator.put("/v1/users/ann", json!({"password": "another password"})).await;
    login(&platform, "ann", "another password").await;
    assert_eq!(core.cache.sessions_of(&"ann".parse().unwrap()).len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_logins_are_limited_too() {
    let platform = Platform::start_with(|settings| {
        settings.limits.right_per_user_per_minute = 4;
        settings.limits.wrong_per_user_per_minute = 2;
    })
    .await;
    user(&platform.api(), "ann").await;
    user(&platform.api(), "ben").await;
    let anybody = Client { token: None, ..platform.api() };
    for _ in 0..4 {
        assert_eq!(attempt(&anybody, "ann", PASSWORD).await.status, StatusCode::CREATED);
    }
    let paused = attempt(&anybody, "ann", PASSWORD).await;
    assert_eq!((paused.status.as_u16(), paused.code().as_str()), (429, "busy"));
    assert!(paused.headers["retry-after"].to_str().unwrap().parse::<u64>().unwrap() <= 60);
    assert_eq!(attempt(&anybody, "ben", PASSWORD).await.status, StatusCode::CREATED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trusted_proxys_clients_have_limits_of_their_own_and_others_cannot_name_an_address() {
    let limits = |settings: &mut towpath_manager::ManagerSettings| {
        settings.limits.wrong_per_address_per_minute = 2;
    };
    let from = |platform: &Platform, address: &str| {
        let anybody = Client { token: None, ..platform.api() };
        anybody.with("x-forwarded-for", address)
    };
    let platform = Platform::start_with(|settings| {
        limits(settings);
        settings.limits.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    })
    .await;
    user(&platform.api(), "ann").await;
    let stranger = from(&platform, "6.6.6.6, 9.9.9.9");
    for n in 0..2 {
        assert_eq!(attempt(&stranger, &format!("u{n}"), "wrong password").await.code(), "unauthorized");
    }
    assert_eq!(attempt(&stranger, "u3", "wrong password").await.code(), "busy");
    let lying = from(&platform, "5.5.5.5, 9.9.9.9");
    assert_eq!(attempt(&lying, "u4", "wrong password").await.code(), "busy", "the last hop's word counts");
    let ann = from(&platform, "7.7.7.7");
    assert_eq!(attempt(&ann, "ann", PASSWORD).await.status, StatusCode::CREATED, "another client");
    let log = platform.api().get("/v1/audit?action=session.login").await.json();
    assert_eq!(log["items"][0]["source"], "7.7.7.7");
    // Nobody is believed where nobody is trusted.
    let platform = Platform::start_with(limits).await;
    for n in 0..3 {
        let code = attempt(&from(&platform, &format!("7.7.7.{n}")), "ann", "wrong password").await.code();
        assert_eq!(code, if n < 2 { "unauthorized" } else { "busy" });
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_logins_do_not_push_out_what_others_did() {
    let platform = Platform::start_with(|settings| {
        settings.limits.audit_entries = 4;
        settings.limits.audit_logins_per_user = 3;
        settings.limits.right_per_user_per_minute = 100;
    })
    .await;
    let operator = platform.api();
    for name in ["ann", "ben"] {
        user(&operator, name).await;
    }
    login(&platform, "ben", PASSWORD).await;
    operator.put("/v1/users/ben", json!({"operator": true})).await;
    for n in 0..8 {
        let ann = login(&platform, "ann", PASSWORD).await;
        if n % 2 == 0 {
            ann.send(http::Method::POST, "/v1/logout", "").await;
        }
    }
    let removed = towpath_manager::api::remove_ended(platform.fleet.core()).await.unwrap();
    assert!(removed >= 9, "{removed}");
    let kept = operator.get("/v1/audit?limit=1000").await.json();
    let kept: Vec<_> = kept["items"].as_array().unwrap().iter().collect();
    let of = |action: &str, name: &str| {
        kept.iter()
            .filter(|entry| entry["action"].as_str().unwrap().starts_with(action) && entry["name"] == name)
            .count()
    };
    assert_eq!((of("session", "ann"), of("session", "ben")), (3, 1));
    assert_eq!((of("user.put", "ann"), of("user.put", "ben")), (1, 2), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_round_of_housekeeping_goes_through_every_org() {
    let platform = Platform::start_with(|settings| settings.limits.audit_entries = 2).await;
    let operator = platform.api();
    // More than a page, and more than was once removed in a round at most for each org.
    let core = platform.fleet.core();
    for org in ["acme", "rival"] {
        operator.put(&format!("/v1/orgs/{org}"), json!({})).await;
        for batch in 0..6 {
            let write = |n: usize| {
                let name = format!("{:08}", batch * 1_000 + n);
                let key = towpath_types::resource::Key {
                    kind: Kind::Audit,
                    org: Some(org.parse().unwrap()),
                    space: None,
                    name: name.clone(),
                };
                let by = json!({"kind": "token", "name": "t"});
                let spec =
                    json!({"by": by, "action": "lane.put", "kind": "lane", "name": name, "request": "r"});
                towpath_store::Write::Put {
                    key,
                    id: format!("{org}-{name}"),
                    expect: towpath_store::Expect::Any,
                    spec: Some(spec),
                    status: None,
                }
            };
            core.commit((0..1_000).map(write).collect()).await.unwrap();
        }
    }
    let removed = towpath_manager::api::remove_ended(core).await.unwrap();
    assert!(removed >= 11_990, "{removed}");
    for org in ["acme", "rival"] {
        let kept = operator.get(&format!("/v1/audit?org={org}&limit=1000")).await.json();
        let names: BTreeSet<_> =
            kept["items"].as_array().unwrap().iter().map(|entry| entry["name"].to_string()).collect();
        assert_eq!(names.len(), 2, "{org}: {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_was_set_while_the_old_one_was_looked_at_stays() {
    let platform = Platform::start().await;
    let operator = platform.api();
    // An operator's word comes at any moment of the user's own change.
    for round in 0..6_u64 {
        let name = format!("u{round}");
        user(&operator, &name).await;
        let own = login(&platform, &name, PASSWORD).await;
        let change = own.put("/v1/password", json!({"current": PASSWORD, "new": "the user's own"}));
        let reset = async {
            tokio::time::sleep(std::time::Duration::from_millis(round * 12)).await;
            operator.put(&format!("/v1/users/{name}"), json!({"password": "the operator's"})).await
        };
        let (changed, reset) = tokio::join!(change, reset);
        assert_eq!(reset.status, StatusCode::OK);
        let anybody = Client { token: None, ..platform.api() };
        assert_eq!(
            attempt(&anybody, &name, "the operator's").await.status,
            StatusCode::CREATED,
            "round {round}: {changed:?}"
        );
        assert_eq!(own.get("/v1/whoami").await.status, StatusCode::UNAUTHORIZED, "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_whose_news_come_late_gives_a_user_no_further_sessions() {
    let platform = Platform::start_with(|settings| settings.limits.sessions_per_user = 2).await;
    user(&platform.api(), "ann").await;
    login(&platform, "ann", PASSWORD).await;
    platform.store.silence_watch();
    let anybody = Client { token: None, ..platform.api() };
    let answers = join_all((0..3).map(|_| attempt(&anybody, "ann", PASSWORD))).await;
    assert!(answers.iter().all(|answer| answer.status == StatusCode::CREATED), "{answers:?}");
    let stored =
        platform.store.inner().list(&Query { kind: Some(Kind::Session), ..Query::default() }).await.unwrap();
    assert_eq!(stored.records.len(), 2);
}
