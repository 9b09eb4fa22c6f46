//! Who may do what, computed from the OpenAPI document.

use crate::client::{Client, Platform};
use http::{Method, StatusCode};
use serde_json::json;

async fn token(platform: &Platform, name: &str, role: &str) -> String {
    let made = platform.api().post("/v1/tokens", json!({"name": name, "role": role})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    made.json()["token"].as_str().unwrap().to_owned()
}

/// Whether the least role that the document names lets a role pass.
fn expected(least: &str, role: &str) -> bool {
    match least {
        "no token needed" => true,
        "any token" => role != "none",
        "viewer" => matches!(role, "viewer" | "developer" | "operator"),
        "developer" => matches!(role, "developer" | "operator"),
        "operator" => role == "operator",
        "cell" => matches!(role, "cell" | "operator"),
        other => panic!("undeclared: {other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_endpoint_is_decided_for_every_role_as_the_document_says() {
    let platform = Platform::start_with(|settings| settings.limits.failed_auth_per_minute = 10_000).await;
    let anybody = Client { token: None, ..platform.api() };
    let roles = [
        ("none", anybody.clone()),
        ("viewer", platform.api_as(&token(&platform, "v", "viewer").await)),
        ("developer", platform.api_as(&token(&platform, "d", "developer").await)),
        ("cell", platform.api_as(&platform.cell_token)),
        ("operator", platform.api()),
    ];
    let document = anybody.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let mut decided = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let description = operation["description"].as_str().unwrap_or_default();
            let least =
                description.rsplit_once("Least role: ").map_or("", |(_, role)| role.trim_end_matches('.'));
            let method: Method = method.to_uppercase().parse().unwrap();
            let target = path.replace(['{', '}'], "");
            for (role, client) in &roles {
                let answer = client.send(method.clone(), &target, "").await;
                let passed = !matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
                let why = format!("{method} {path} as {role} (least {least}): {}", answer.status);
                assert_eq!(passed, expected(least, role), "{why}");
                assert!(answer.status != StatusCode::INTERNAL_SERVER_ERROR, "{why}");
                if *role == "none" && !passed {
                    assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{why}");
                    assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
                }
                decided += 1;
            }
        }
    }
    assert!(decided > 200, "{decided}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_shown_once_stored_hashed_and_can_be_taken_back() {
    let platform = Platform::start().await;
    let secret = token(&platform, "ci", "developer").await;
    let me = platform.api_as(&secret).get("/v1/whoami").await.json();
    assert_eq!(me, json!({"name": "ci", "role": "developer"}));
    let listed = platform.api().get("/v1/tokens").await.text();
    assert!(listed.contains("\"ci\"") && !listed.contains("twp_") && !listed.contains("hash"), "{listed}");
    let stored = std::fs::read(platform.fleet.dir.path().join("store.db")).unwrap();
    let wal = std::fs::read(platform.fleet.dir.path().join("store.db-wal")).unwrap_or_default();
    for file in [stored, wal] {
        assert!(!file.windows(secret.len()).any(|window| window == secret.as_bytes()));
    }
    let twice = platform.api().post("/v1/tokens", json!({"name": "ci", "role": "viewer"})).await;
    assert_eq!(twice.code(), "conflict");
    let wrong = platform.api().post("/v1/tokens", json!({"name": "a b", "role": "king"})).await;
    assert_eq!(wrong.fields(), ["name", "role"]);
    assert_eq!(platform.api().delete("/v1/tokens/ci").await.status, StatusCode::NO_CONTENT);
    assert_eq!(platform.api_as(&secret).get("/v1/whoami").await.code(), "unauthorized");
    let last = platform.api().delete("/v1/tokens/first").await;
    assert_eq!(last.code(), "conflict", "{}", last.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_files_are_private_and_failed_attempts_are_limited() {
    use std::os::unix::fs::PermissionsExt;
    let platform = Platform::start().await;
    for file in ["token", "cell-token"] {
        let mode = std::fs::metadata(platform.fleet.dir.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let wrong = platform.api_as(&format!("twp_{}", "A".repeat(43)));
    let mut answers = Vec::new();
    for _ in 0..40 {
        answers.push(wrong.get("/v1/apps").await);
    }
    assert_eq!(answers[0].code(), "unauthorized");
    let last = answers.last().unwrap();
    assert_eq!((last.status.as_u16(), last.code().as_str()), (429, "busy"));
    assert!(last.headers.contains_key("retry-after"));
    // Whoever has a token is not locked out by others at the same address.
    assert_eq!(platform.api().get("/v1/apps").await.status, StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_do_not_see_environments() {
    let platform = Platform::start().await;
    platform.api().put("/v1/apps/shop", json!({"env": {"SECRET": "s3cret"}})).await;
    let viewer = platform.api_as(&token(&platform, "v", "viewer").await);
    assert!(platform.api().get("/v1/apps/shop").await.text().contains("s3cret"));
    for path in ["/v1/apps/shop", "/v1/apps", "/v1/apps/shop/groups"] {
        let shown = viewer.get(path).await;
        assert!(shown.status.is_success() && !shown.text().contains("s3cret"), "{path}: {}", shown.text());
    }
    assert_eq!(viewer.get("/v1/apps/shop/env").await.code(), "forbidden");
}
