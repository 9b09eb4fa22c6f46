//! Who may do what: every endpoint of the OpenAPI document, for every sort of caller, with the status that each gets.

use crate::client::{Client, Platform, push_of};
use crate::identity::token;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use towpath_manager::core::keys;
use towpath_types::Digest;

/// The sorts of callers, in the order of a row's letters. All but the other org's owner are of the org `default`.
const CALLERS: [&str; 8] =
    ["operator", "owner", "developer", "viewer", "other org's owner", "nobody", "expired token", "cell"];

/// What each caller gets: `+` the status of the row, `f` 403, `n` 404 (may not know of it), `u` 401.
struct Row {
    endpoint: &'static str,
    target: &'static str,
    /// JSON; empty = none.
    body: &'static str,
    status: u16,
    callers: &'static str,
}

const fn row(
    endpoint: &'static str,
    target: &'static str,
    body: &'static str,
    status: u16,
    callers: &'static str,
) -> Row {
    Row { endpoint, target, body, status, callers }
}

const ALL: &str = "++++++++";
const SIGNED_IN: &str = "+++++uu+";
const PEOPLE: &str = "+++++uuf";
const READ: &str = "++++nuuf";
const WRITE: &str = "+++fnuuf";
const OWN: &str = "++ffnuuf";
const OPERATE: &str = "+ffffuuf";
const OPERATE_ORG: &str = "+fffnuuf";
const CELL: &str = "+ffffuu+";

/// The decisions. Changes are sent with `If-Match` of a revision that is never reached, or with a body that is refused, so
/// that who may make them gets as far as that, and nothing is changed.
const TABLE: &[Row] = &[
    row("GET /", "/", "", 200, ALL),
    row("GET /docs", "/docs", "", 200, ALL),
    row("GET /openapi.json", "/openapi.json", "", 200, ALL),
    row("GET /v1/healthz", "/v1/healthz", "", 200, ALL),
    row("GET /v1/readyz", "/v1/readyz", "", 200, ALL),
    row("POST /v1/login", "/v1/login", "{}", 422, ALL),
    row("POST /v1/logout", "/v1/logout", "", 409, SIGNED_IN),
    row("PUT /v1/password", "/v1/password", "{}", 422, SIGNED_IN),
    row("GET /v1/version", "/v1/version", "", 200, SIGNED_IN),
    row("GET /v1/whoami", "/v1/whoami", "", 200, SIGNED_IN),
    row("GET /v1/apps", "/v1/apps", "", 200, READ),
    row("GET /v1/apps/{app}", "/v1/apps/shop", "", 200, READ),
    row("PUT /v1/apps/{app}", "/v1/apps/shop", "{}", 412, WRITE),
    row("PATCH /v1/apps/{app}", "/v1/apps/shop", "{}", 412, WRITE),
    row("DELETE /v1/apps/{app}", "/v1/apps/shop", "", 412, WRITE),
    row("GET /v1/apps/{app}/env", "/v1/apps/shop/env", "", 200, WRITE),
    row("PATCH /v1/apps/{app}/env", "/v1/apps/shop/env", "{}", 412, WRITE),
    row("GET /v1/apps/{app}/groups", "/v1/apps/shop/groups", "", 200, READ),
    row("PATCH /v1/apps/{app}/groups/{lane}", "/v1/apps/shop/groups/base", "{}", 412, WRITE),
    row("DELETE /v1/apps/{app}/groups/{lane}", "/v1/apps/shop/groups/base", "", 412, WRITE),
    row("POST /v1/apps/{app}/groups/{lane}/restart", "/v1/apps/shop/groups/base/restart", "", 412, WRITE),
    row("GET /v1/apps/{app}/instances", "/v1/apps/shop/instances", "", 200, READ),
    row("GET /v1/apps/{app}/logs", "/v1/apps/shop/logs", "", 200, READ),
    row("GET /v1/apps/{app}/releases", "/v1/apps/shop/releases", "", 200, READ),
    row("POST /v1/apps/{app}/releases", "/v1/apps/shop/releases", "{}", 422, WRITE),
    row("POST /v1/apps/{app}/rollback", "/v1/apps/shop/rollback", r#"{"lane": 5}"#, 422, WRITE),
    row("GET /v1/audit", "/v1/audit?org=default", "", 200, OWN),
    row("GET /v1/cells", "/v1/cells", "", 200, PEOPLE),
    row("GET /v1/cells/{cell}", "/v1/cells/{cell}", "", 200, PEOPLE),
    row("PATCH /v1/cells/{cell}", "/v1/cells/{cell}", "{}", 412, OPERATE),
    row("POST /v1/explain", "/v1/explain", "{}", 422, PEOPLE),
    row("GET /v1/gateways", "/v1/gateways", "", 200, PEOPLE),
    row("GET /v1/instances", "/v1/instances", "", 200, READ),
    row("GET /v1/instances/{id}/logs", "/v1/instances/{instance}/logs", "", 200, READ),
    row("GET /v1/lanes", "/v1/lanes", "", 200, READ),
    row("GET /v1/lanes/{lane}", "/v1/lanes/base", "", 200, READ),
    row("PUT /v1/lanes/{lane}", "/v1/lanes/blue", "{}", 412, WRITE),
    row("DELETE /v1/lanes/{lane}", "/v1/lanes/blue", "", 412, WRITE),
    row("GET /v1/managers", "/v1/managers", "", 200, PEOPLE),
    row("GET /v1/managers/owner/{id}", "/v1/managers/owner/shop", "", 200, READ),
    row("GET /v1/operations", "/v1/operations", "", 200, READ),
    row("GET /v1/operations/{id}", "/v1/operations/{operation}", "", 200, READ),
    row("GET /v1/operations/{id}/events", "/v1/operations/{operation}/events", "", 200, READ),
    row("POST /v1/operations/{id}/cancel", "/v1/operations/{operation}/cancel", "", 409, WRITE),
    row("GET /v1/secrets", "/v1/secrets", "", 200, OPERATE),
    row("POST /v1/secrets/rotate", "/v1/secrets/rotate", "", 503, OPERATE),
    row("GET /v1/orgs", "/v1/orgs", "", 200, SIGNED_IN),
    row("GET /v1/orgs/{org}", "/v1/orgs/default", "", 200, READ),
    row("PUT /v1/orgs/{org}", "/v1/orgs/default", "{}", 412, OPERATE_ORG),
    row("DELETE /v1/orgs/{org}", "/v1/orgs/default", "", 409, OPERATE_ORG),
    row("GET /v1/orgs/{org}/members", "/v1/orgs/default/members", "", 200, READ),
    row("PUT /v1/orgs/{org}/members/{user}", "/v1/orgs/default/members/ann", "{}", 422, OWN),
    row("DELETE /v1/orgs/{org}/members/{user}", "/v1/orgs/default/members/ann", "", 412, OWN),
    row("PUT /v1/orgs/{org}/quota", "/v1/orgs/default/quota", "{}", 412, OPERATE_ORG),
    row("GET /v1/orgs/{org}/spaces", "/v1/orgs/default/spaces", "", 200, READ),
    row("PUT /v1/orgs/{org}/spaces/{space}", "/v1/orgs/default/spaces/test", "", 412, OWN),
    row("DELETE /v1/orgs/{org}/spaces/{space}", "/v1/orgs/default/spaces/default", "", 409, OWN),
    row("GET /v1/routes", "/v1/routes", "", 200, READ),
    row("PUT /v1/routes", "/v1/routes", r#"{"host": "x.example", "app": "shop"}"#, 412, WRITE),
    row("DELETE /v1/routes", "/v1/routes?host=x.example", "", 412, WRITE),
    row("HEAD /v1/sources/{digest}", "/v1/sources/{source}", "", 200, WRITE),
    row("PUT /v1/sources/{digest}", "/v1/sources/{source}", "", 200, WRITE),
    row("GET /v1/space", "/v1/space", "", 200, READ),
    row("PATCH /v1/space", "/v1/space", "{}", 412, WRITE),
    row("GET /v1/status", "/v1/status", "", 200, PEOPLE),
    row("GET /v1/tokens", "/v1/tokens", "", 200, OWN),
    row("POST /v1/tokens", "/v1/tokens", "{}", 422, OWN),
    row("DELETE /v1/tokens/{name}", "/v1/tokens/x", "", 412, OWN),
    row("GET /v1/users", "/v1/users", "", 200, OPERATE),
    row("PUT /v1/users/{user}", "/v1/users/ann", "{}", 412, OPERATE),
    row("DELETE /v1/users/{user}", "/v1/users/ann", "", 412, OPERATE),
    row("GET /apisix/admin/{kind}", "/apisix/admin/routes", "", 200, OPERATE),
    row("PUT /apisix/admin/{kind}", "/apisix/admin/routes", "{}", 400, OPERATE),
    row("POST /apisix/admin/{kind}", "/apisix/admin/routes", "{}", 400, OPERATE),
    row("GET /apisix/admin/{kind}/{id}", "/apisix/admin/routes/1", "", 404, OPERATE),
    row("PUT /apisix/admin/{kind}/{id}", "/apisix/admin/routes/1", "{}", 400, OPERATE),
    row("PATCH /apisix/admin/{kind}/{id}", "/apisix/admin/routes/1", "{}", 404, OPERATE),
    row("DELETE /apisix/admin/{kind}/{id}", "/apisix/admin/routes/1", "", 404, OPERATE),
    row(
        "GET /apisix/admin/{kind}/{id}/{*rest}",
        "/apisix/admin/schema/plugins/limit-count",
        "",
        200,
        OPERATE,
    ),
    row("PUT /apisix/admin/{kind}/{id}/{*rest}", "/apisix/admin/secrets/vault/1", "[]", 400, OPERATE),
    row("POST /apisix/admin/{kind}/{id}/{*rest}", "/apisix/admin/schema/validate/routes", "{}", 400, OPERATE),
    row("PATCH /apisix/admin/{kind}/{id}/{*rest}", "/apisix/admin/routes/1/uri", "{}", 404, OPERATE),
    row("DELETE /apisix/admin/{kind}/{id}/{*rest}", "/apisix/admin/secrets/vault/1", "", 404, OPERATE),
    row("GET /internal/v1/artifacts/{digest}", "/internal/v1/artifacts/{none}", "", 404, CELL),
    row("HEAD /internal/v1/artifacts/{digest}", "/internal/v1/artifacts/{none}", "", 404, CELL),
    row("PUT /internal/v1/artifacts/{digest}", "/internal/v1/artifacts/nonsense", "", 422, CELL),
    row("GET /internal/v1/sources/{digest}", "/internal/v1/sources/{none}", "", 404, CELL),
];

/// The endpoints of the OpenAPI document, as `METHOD /path`, with their least role.
pub(crate) async fn endpoints(anybody: &Client) -> BTreeMap<String, String> {
    let document = anybody.get("/openapi.json").await.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    let mut endpoints = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let description = operation["description"].as_str().unwrap_or_default();
            let least =
                description.rsplit_once("Least role: ").map_or("", |(_, role)| role.trim_end_matches('.'));
            endpoints.insert(format!("{} {path}", method.to_uppercase()), least.to_owned());
        }
    }
    endpoints
}

fn letter(row: &Row, status: StatusCode) -> char {
    match status.as_u16() {
        // Where the row's own status is 404 nobody is to be told so for want of rights.
        status if status == row.status => '+',
        403 => 'f',
        404 => 'n',
        401 => 'u',
        _ => '?',
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_endpoint_is_decided_for_every_caller_as_the_table_says() {
    let platform = Platform::start_with(|settings| settings.limits.failed_auth_per_minute = 100_000).await;
    let anybody = Client { token: None, ..platform.api() };
    let operator = platform.api();
    assert_eq!(operator.put("/v1/orgs/acme", json!({})).await.status, StatusCode::CREATED);
    let source = platform.upload("hello").await;
    let pushed = platform.push("shop", push_of(source)).await;
    assert_eq!(pushed["phase"], "succeeded", "{pushed}");
    let instances = operator.get("/v1/instances").await.json();
    let expired = "twp_".to_owned() + &"B".repeat(43);
    let hash = Digest::from_bytes(
        sha2::Digest::finalize(sha2::Digest::chain_update(
            <sha2::Sha256 as sha2::Digest>::new(),
            expired.as_bytes(),
        ))
        .into(),
    );
    let spec = json!({"hash": hash, "role": "owner", "org": "default", "expires_ms": 1});
    platform.fleet.put(keys::org_token_key(&"default".parse().unwrap(), "old"), spec).await;
    let callers = [
        operator.clone(),
        platform.api_as(&token(&operator, "default", json!({"name": "o", "role": "owner"})).await),
        platform.api_as(&token(&operator, "default", json!({"name": "d", "role": "developer"})).await),
        platform.api_as(&token(&operator, "default", json!({"name": "v", "role": "viewer"})).await),
        platform.api_as(&token(&operator, "acme", json!({"name": "o", "role": "owner"})).await),
        anybody.clone(),
        platform.api_as(&expired),
        platform.api_as(&platform.cell_token),
    ];
    let names = [
        ("{source}", source.to_string()),
        ("{none}", Digest::from_bytes([9; 32]).to_string()),
        ("{operation}", pushed["id"].as_str().unwrap().to_owned()),
        ("{instance}", instances["items"][0]["id"].as_str().unwrap().to_owned()),
        ("{cell}", platform.cell.id.to_string()),
    ];
    let endpoints = endpoints(&anybody).await;
    let declared: BTreeSet<&str> = TABLE.iter().map(|row| row.endpoint).collect();
    assert_eq!(declared.len(), TABLE.len(), "an endpoint is declared twice");
    assert_eq!(declared, endpoints.keys().map(String::as_str).collect(), "undeclared, or gone");
    let mut wrong = Vec::new();
    for row in TABLE {
        let (method, _) = row.endpoint.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        let target = names.iter().fold(row.target.to_owned(), |target, (name, id)| target.replace(name, id));
        for ((caller, client), expected) in CALLERS.iter().zip(&callers).zip(row.callers.chars()) {
            let mut client = client.clone();
            if row.status == 412 {
                client = client.with("if-match", "\"999999\"");
            }
            if !row.body.is_empty() {
                client = client.with("content-type", "application/json");
            }
            let answer = client.send(method.clone(), &target, row.body).await;
            let got = letter(row, answer.status);
            if got != expected {
                wrong.push(format!(
                    "{} as {caller}: {expected} expected, got {}",
                    row.endpoint, answer.status
                ));
            }
            if got == 'u' {
                assert!(answer.headers["www-authenticate"].to_str().unwrap().starts_with("Bearer"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_may_not_see_is_answered_as_what_is_not_there() {
    let platform = Platform::start().await;
    let operator = platform.api();
    for org in ["acme", "rival"] {
        assert_eq!(operator.put(&format!("/v1/orgs/{org}"), json!({})).await.status, StatusCode::CREATED);
    }
    assert_eq!(operator.put("/v1/apps/shop?org=rival", json!({})).await.status, StatusCode::CREATED);
    let route = json!({"host": "shop.example", "app": "shop"});
    assert_eq!(operator.put("/v1/routes?org=rival", route.clone()).await.status, StatusCode::CREATED);
    let source = platform.upload("x").await;
    let accepted = operator.post("/v1/apps/shop/releases?org=rival", push_of(source)).await.json();
    let operation = accepted["id"].as_str().unwrap();
    let owner = platform.api_as(&token(&operator, "acme", json!({"name": "o", "role": "owner"})).await);
    let plain = |text: String| {
        let mut problem: Value = serde_json::from_str(&text).unwrap();
        problem["instance"] = Value::Null;
        problem
            .to_string()
            .replace("nosuch", "rival")
            .replace("00000000-0000-7000-8000-000000000000", operation)
    };
    for (there, not_there) in [
        ("GET /v1/apps?org=rival", "GET /v1/apps?org=nosuch"),
        ("GET /v1/apps/shop?org=rival", "GET /v1/apps/shop?org=nosuch"),
        ("DELETE /v1/apps/shop?org=rival", "DELETE /v1/apps/shop?org=nosuch"),
        ("GET /v1/orgs/rival", "GET /v1/orgs/nosuch"),
        ("GET /v1/orgs/rival/members", "GET /v1/orgs/nosuch/members"),
        ("GET /v1/audit?org=rival", "GET /v1/audit?org=nosuch"),
        ("GET /v1/tokens?org=rival", "GET /v1/tokens?org=nosuch"),
        ("GET /v1/operations/{operation}", "GET /v1/operations/00000000-0000-7000-8000-000000000000"),
    ] {
        let ask = async |what: &str| {
            let (method, target) = what.split_once(' ').unwrap();
            owner.send(method.parse().unwrap(), &target.replace("{operation}", operation), "").await
        };
        let (there, not_there) = (ask(there).await, ask(not_there).await);
        assert_eq!((there.status, not_there.status), (StatusCode::NOT_FOUND, StatusCode::NOT_FOUND));
        assert_eq!(plain(there.text()), plain(not_there.text()));
    }
    assert_eq!(owner.put("/v1/apps/mine?org=acme", json!({})).await.status, StatusCode::CREATED);
    let taken = owner.put("/v1/routes?org=acme", json!({"host": "shop.example", "app": "mine"})).await;
    assert_eq!(taken.code(), "conflict");
    assert!(!taken.text().contains("rival"), "{}", taken.text());
    for list in ["/v1/routes?org=acme&all=true", "/v1/orgs", "/v1/status", "/v1/cells", "/v1/gateways"] {
        let shown = owner.get(list).await;
        assert_eq!(shown.status, StatusCode::OK, "{list}");
        assert!(!shown.text().contains("rival"), "{list}: {}", shown.text());
    }
    let owned = owner.get(&format!("/v1/managers/owner/{operation}?org=acme")).await.text();
    assert!(!owned.contains("rival"), "{owned}");
    // Whether something is there is told to those who may know of it.
    let exists = async |api: &Client, id: &str, query: &str| {
        api.get(&format!("/v1/managers/owner/{id}?{query}")).await.json()["exists"].clone()
    };
    for (id, there) in [("shop", true), ("shop:base", true), ("shop:blue", false), ("nosuch", false)] {
        assert_eq!(exists(&operator, id, "org=rival").await, there, "{id}");
    }
    assert_eq!(exists(&owner, "rival%2Fdefault%2Fshop", "org=acme").await, false);
    assert_eq!(exists(&owner, "mine", "org=acme").await, true);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_shown_once_stored_hashed_and_can_be_taken_back() {
    let platform = Platform::start().await;
    let secret = token(&platform.api(), "default", json!({"name": "ci", "role": "developer"})).await;
    let me = platform.api_as(&secret).get("/v1/whoami").await.json();
    let orgs = json!([{"org": "default", "role": "developer"}]);
    assert_eq!(me, json!({"name": "ci", "kind": "token", "role": "developer", "orgs": orgs}));
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
    let viewer =
        platform.api_as(&token(&platform.api(), "default", json!({"name": "v", "role": "viewer"})).await);
    assert!(platform.api().get("/v1/apps/shop").await.text().contains("s3cret"));
    for path in ["/v1/apps/shop", "/v1/apps", "/v1/apps/shop/groups"] {
        let shown = viewer.get(path).await;
        assert!(shown.status.is_success() && !shown.text().contains("s3cret"), "{path}: {}", shown.text());
    }
    assert_eq!(viewer.get("/v1/apps/shop/env").await.code(), "forbidden");
}
