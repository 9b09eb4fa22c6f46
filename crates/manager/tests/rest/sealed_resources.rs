//! What is secret in resources of the gateway: sealed in the store and on the bus, given back sealed, opened by gateways alone.

use crate::client::{Answer, Platform};
use crate::fleet::until_async;
use crate::sealed::{bytes_below, contains, with_key};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::time::Duration;
use towpath_manager::ManagerSettings;
use towpath_manager::core::keys;
use towpath_resources::{Id, Key, Kind, each_secret, sealed_text};
use towpath_secrets::{Keyring, Place, Recipient};
use towpath_store::Store;
use towpath_types::{Digest, GatewayId, Incarnation};
use towpath_wire::gateway::{GatewayKeys, GatewayKeysRequest, Item, ItemKey};
use towpath_wire::{decode, encode, subject};

/// In no other word of a test.
const VALUE: &str = "hunter2-g4teway-value";

/// With a key for secrets, and a token for gateways.
pub(crate) fn with_gateways(settings: &mut ManagerSettings) {
    with_key(settings);
    settings.gateway_token_file = settings.data_dir.parent().map(|dir| dir.join("gateway-token"));
}

pub(crate) async fn put(platform: &Platform, path: &str, body: &Value) -> Answer {
    platform.api().send(Method::PUT, &format!("/apisix/admin/{path}"), body.to_string()).await
}

/// The document as it is read, without what cannot be sent back.
pub(crate) async fn read(platform: &Platform, path: &str) -> Value {
    let mut value = platform.api().get(&format!("/apisix/admin/{path}")).await.json()["value"].clone();
    for field in ["create_time", "update_time"] {
        value.as_object_mut().unwrap().remove(field);
    }
    value
}

/// The keys that a gateway with this token is given, or why it is not.
pub(crate) async fn keys_for(platform: &Platform, token: &str) -> Result<Keyring, String> {
    let token = Digest::from_bytes(Sha256::digest(token.as_bytes()).into());
    let recipient = Recipient::new(token).unwrap();
    let mut request =
        GatewayKeysRequest { gateway: GatewayId::mint(1, [9; 10]), incarnation: Incarnation(1), proof: None };
    let who = request.who();
    request.proof = Some(recipient.proof(&who));
    let question = encode(&request).into();
    let answer =
        platform.fleet.bus().request(subject::GATEWAY_KEYS, question, Duration::from_secs(5)).await.unwrap();
    let answer: GatewayKeys = decode(&answer).unwrap();
    let Some(parcel) = answer.parcel else { return Err(answer.withheld) };
    let text = recipient.open(&who, &parcel).unwrap();
    let keys: Vec<String> = serde_json::from_str(text.expose()).unwrap();
    Ok(Keyring::new(keys.iter().map(|hex| towpath_secrets::Key::from_hex(hex).unwrap()).collect()))
}

fn gateway_token(platform: &Platform) -> String {
    let file = platform.fleet.dir.path().join("gateway-token");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}

/// A resource as a gateway is told of it, opened with the keys that it is given.
pub(crate) async fn opened(platform: &Platform, kind: Kind, id: &str) -> Value {
    let stored = platform.store.get(&keys::resource_name(format!("{kind}/{id}"))).await.unwrap().unwrap();
    let item = ItemKey::Resource { kind: kind.to_string(), id: id.into() };
    until_async("the gateway has it", async || {
        matches!(platform.gateway.items().get(&item), Some(Item::Resource { value, .. }) if *value == stored.spec)
    })
    .await;
    let ring = keys_for(platform, &gateway_token(platform)).await.unwrap();
    let key = Key::new(kind, Id::new(kind, id).unwrap());
    let (mut value, id, mut sealed) = (stored.spec, key.to_string(), 0);
    each_secret(&key, &mut value, |path, place| {
        let text = sealed_text(place).unwrap_or_else(|| panic!("{path} is not sealed")).parse().unwrap();
        *place = ring.open(Place::in_resource(&id, path), &text).unwrap().expose().into();
        sealed += 1;
    });
    assert!(sealed > 0);
    value
}

/// A certificate and its key.
fn pair() -> (String, String) {
    let made = towpath_testkit::tls::Authority::new().issue(&["a.test"]);
    (made.certificate, made.key)
}

/// A resource of each sort that has secrets, by its path.
pub(crate) fn resources() -> Vec<(Kind, &'static str, Value, Vec<String>)> {
    let (cert, key) = pair();
    let tls = json!({"client_cert": cert, "client_key": key});
    let upstream = json!({"nodes": {"127.0.0.1:1980": 1}, "scheme": "https", "tls": tls});
    let split = json!({"rules": [{"weighted_upstreams": [{"upstream": upstream, "weight": 1}]}]});
    let all = json!({
        "key-auth": {"key": VALUE}, "basic-auth": {"username": "jack", "password": VALUE},
        "jwt-auth": {"key": "jack", "secret": VALUE}, "hmac-auth": {"key_id": "jack", "secret_key": VALUE},
    });
    let value = || vec![VALUE.to_owned()];
    let pem = |text: &str| text.lines().nth(1).unwrap().to_owned();
    vec![
        (Kind::Consumer, "jack", json!({"username": "jack", "plugins": all}), value()),
        (
            Kind::Credential,
            "jack/credentials/c",
            json!({"plugins": {"key-auth": {"key": format!("{VALUE}-2")}}}),
            value(),
        ),
        (Kind::Upstream, "u", upstream.clone(), vec![pem(&key)]),
        (Kind::Ssl, "s", json!({"type": "client", "cert": cert, "key": key}), vec![pem(&key)]),
        (
            Kind::Route,
            "r",
            json!({"uri": "/a", "upstream": upstream, "plugins": {"traffic-split": split, "csrf": {"key": VALUE},
                "http-logger": {"uri": "http://127.0.0.1:1/", "auth_header": VALUE}}}),
            vec![VALUE.to_owned(), pem(&key)],
        ),
    ]
}

pub(crate) fn path_of(kind: Kind, id: &str) -> String {
    if kind == Kind::Credential { format!("consumers/{id}") } else { format!("{kind}/{id}") }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_sealed_where_they_are_kept_and_what_is_read_can_be_written_back() {
    let platform = Platform::start_with(with_gateways).await;
    for (kind, id, sent, secrets) in resources() {
        let path = path_of(kind, id);
        let made = put(&platform, &path, &sent).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let shown = read(&platform, &path).await;
        for text in [made.text(), shown.to_string()] {
            assert!(text.contains("tps1.") && !secrets.iter().any(|secret| text.contains(secret)), "{text}");
        }
        let plain = opened(&platform, kind, id).await;
        for (name, value) in sent.as_object().unwrap() {
            assert_eq!(&plain[name], value, "{path}");
        }
        // Read and written back, nothing is another.
        let before = platform.store.get(&keys::resource_name(format!("{kind}/{id}"))).await.unwrap().unwrap();
        let again = put(&platform, &path, &shown).await;
        assert_eq!(again.status, StatusCode::OK, "{path}: {}", again.text());
        // Nor when the same is sent as it is.
        assert_eq!(put(&platform, &path, &sent).await.status, StatusCode::OK);
        let after = platform.store.get(&before.key).await.unwrap().unwrap();
        assert_eq!((after.spec, after.generation), (before.spec, before.generation), "{path}");
    }
    let keyed = platform.api().with("idempotency-key", "k1");
    let body = json!({"username": "jim", "plugins": {"key-auth": {"key": format!("{VALUE}-3")}}}).to_string();
    let first = keyed.send(Method::PUT, "/apisix/admin/consumers", body.clone()).await;
    assert_eq!(first.status, StatusCode::CREATED, "{}", first.text());
    assert_eq!(keyed.send(Method::PUT, "/apisix/admin/consumers", body).await.json(), first.json());

    let audit = platform.api().get("/v1/audit?limit=1000").await.text();
    assert!(audit.contains("resource.put") && !audit.contains("tps1."), "{audit}");
    let bytes = bytes_below(platform.fleet.dir.path());
    assert!(contains(&bytes, "tps1.") && contains(&bytes, "traffic-split"));
    for secret in resources().iter().flat_map(|(.., secrets)| secrets).filter(|text| text.contains(VALUE)) {
        assert!(!contains(&bytes, secret));
    }
    for text in [String::from_utf8_lossy(&bytes).into_owned(), audit] {
        assert!(!text.contains("PRIVATE KEY"), "no key in PEM");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_keeps_secrets_and_a_sealed_one_is_good_in_its_own_place_alone() {
    let platform = Platform::start_with(with_gateways).await;
    for (kind, id, sent, _) in resources() {
        assert_eq!(put(&platform, &path_of(kind, id), &sent).await.status, StatusCode::CREATED);
    }
    let patched =
        platform.api().send(Method::PATCH, "/apisix/admin/routes/r", json!({"desc": "x"}).to_string()).await;
    assert_eq!(patched.status, StatusCode::OK, "{}", patched.text());
    assert_eq!(opened(&platform, Kind::Route, "r").await["plugins"]["csrf"]["key"], VALUE);
    let other = json!("another-value").to_string();
    let patched = platform.api().send(Method::PATCH, "/apisix/admin/routes/r/plugins/csrf/key", other).await;
    assert_eq!(patched.status, StatusCode::OK, "{}", patched.text());
    let plain = opened(&platform, Kind::Route, "r").await;
    assert_eq!((&plain["plugins"]["csrf"]["key"], &plain["desc"]), (&json!("another-value"), &json!("x")));
    assert_eq!(plain["plugins"]["http-logger"]["auth_header"], VALUE);

    let jack = read(&platform, "consumers/jack").await;
    let mut thief = jack.clone();
    thief["username"] = json!("thief");
    let refused = put(&platform, "consumers/thief", &thief).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{}", refused.text());
    assert!(refused.fields().contains(&"plugins.key-auth.key".to_owned()), "{}", refused.text());
    assert!(refused.text().contains("another resource's secret"), "{}", refused.text());
    let mut swapped = jack.clone();
    swapped["plugins"]["basic-auth"]["password"] = jack["plugins"]["key-auth"]["key"].clone();
    assert_eq!(put(&platform, "consumers/jack", &swapped).await.status, StatusCode::BAD_REQUEST);
    // What is wrong with a secret is told without it, and a document that was read is judged like another.
    let long = format!("{VALUE}{}", "x".repeat(300));
    let wrong = json!({"username": "j", "plugins": {"hmac-auth": {"key_id": "i", "secret_key": long}, "key-auth": {"key": 12345}}});
    let refused = put(&platform, "consumers/j", &wrong).await;
    assert_eq!((refused.status, refused.fields().len()), (StatusCode::BAD_REQUEST, 2), "{}", refused.text());
    assert!(!refused.text().contains(VALUE) && !refused.text().contains("12345"), "{}", refused.text());
    let judged =
        platform.api().send(Method::POST, "/apisix/admin/schema/validate/consumers", jack.to_string()).await;
    assert_eq!(judged.status, StatusCode::OK, "{}", judged.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_given_to_gateways_alone() {
    let platform = Platform::start_with(with_gateways).await;
    assert!(keys_for(&platform, &gateway_token(&platform)).await.is_ok());
    for token in [&platform.cell_token, &platform.token, "twp_something-else"] {
        let withheld = keys_for(&platform, token).await.unwrap_err();
        assert!(withheld.contains("no gateways' token"), "{withheld}");
    }
    // A gateways' token is of no use anywhere else.
    let api = platform.api_as(&gateway_token(&platform));
    for path in ["/v1/apps", "/v1/secrets", "/v1/status", "/apisix/admin/consumers", "/internal/v1/sources/x"]
    {
        let status = api.get(path).await.status;
        assert!(matches!(status, StatusCode::FORBIDDEN | StatusCode::NOT_FOUND), "{path}: {status}");
    }
    assert_eq!(api.get("/v1/whoami").await.json()["orgs"], json!([]));
    let made = platform.api().post("/v1/tokens", json!({"name": "edge", "role": "gateway"})).await;
    let token = made.json()["token"].as_str().unwrap().to_owned();
    assert!(keys_for(&platform, &token).await.is_ok());
    assert_eq!(platform.api().delete("/v1/tokens/edge").await.status, StatusCode::NO_CONTENT);
    assert!(keys_for(&platform, &token).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_key_no_secret_is_taken_and_what_was_stored_as_it_is_is_sealed_once_there_is_one() {
    let mut platform = Platform::start().await;
    let jack = json!({"username": "jack", "plugins": {"key-auth": {"key": VALUE}}});
    let refused = put(&platform, "consumers/jack", &jack).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE, "{}", refused.text());
    assert!(
        refused.text().contains("secrets_key_file") && !refused.text().contains(VALUE),
        "{}",
        refused.text()
    );
    let route = json!({"uri": "/a", "upstream": {"nodes": {"127.0.0.1:1980": 1}}});
    assert_eq!(put(&platform, "routes/1", &route).await.status, StatusCode::CREATED);
    // As an earlier version stored it.
    platform.fleet.put(keys::resource_name("consumers/jack".into()), jack).await;
    assert_eq!(read(&platform, "consumers/jack").await["plugins"], json!({"key-auth": {}}), "not shown");
    towpath_secrets::create(&platform.fleet.dir.path().join("secrets.key")).unwrap();
    platform.fleet.restart().await;
    let stored =
        async || platform.store.get(&keys::resource_name("consumers/jack".into())).await.unwrap().unwrap();
    until_async("it is sealed", async || !stored().await.spec.to_string().contains(VALUE)).await;
    assert_eq!(
        put(&platform, "consumers/jack", &read(&platform, "consumers/jack").await).await.status,
        StatusCode::OK
    );
}
