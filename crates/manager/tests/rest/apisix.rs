//! The Admin API of resources, as clients of APISIX's use it.

use crate::client::{Answer, Client, Platform};
use crate::fleet::until;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use towpath_wire::gateway::{Item, ItemKey};

/// A client that knows nothing of bearer tokens.
fn admin(platform: &Platform) -> Client {
    let key = platform.token.clone();
    Client { token: None, ..platform.api() }.with("x-api-key", &key)
}

async fn put(api: &Client, path: &str, body: Value) -> Answer {
    api.send(Method::PUT, &format!("/apisix/admin/{path}"), body.to_string()).await
}

async fn patch(api: &Client, path: &str, body: Value) -> Answer {
    api.send(Method::PATCH, &format!("/apisix/admin/{path}"), body.to_string()).await
}

async fn get(api: &Client, path: &str) -> Answer {
    api.get(&format!("/apisix/admin/{path}")).await
}

async fn delete(api: &Client, path: &str) -> Answer {
    api.delete(&format!("/apisix/admin/{path}")).await
}

/// The message of an answer of this status.
fn refused(answer: &Answer, status: u16) -> String {
    assert_eq!(answer.status.as_u16(), status, "{}", answer.text());
    assert_eq!(answer.headers["content-type"], "application/json");
    answer.json()["error_msg"].as_str().unwrap().to_owned()
}

fn route(uri: &str) -> Value {
    json!({"uri": uri, "upstream": {"nodes": {"127.0.0.1:1980": 1}}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_lives_in_apisixs_shapes_and_reaches_gateways() {
    let platform = Platform::start().await;
    let api = admin(&platform);
    let made = put(&api, "routes/1?wait=revision", route("/a")).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    assert_eq!(made.headers["towpath-wait"], "served");
    let made = made.json();
    assert_eq!(
        (&made["key"], &made["value"]["id"], &made["value"]["uri"]),
        (&json!("/apisix/routes/1"), &json!("1"), &json!("/a"))
    );
    assert!(made["value"]["create_time"].as_u64().unwrap() > 1_700_000_000, "{made}");
    let key = ItemKey::Resource { kind: "routes".into(), id: "1".into() };
    let Some(Item::Resource { value, .. }) = platform.gateway.items().get(&key).cloned() else {
        panic!("not told")
    };
    assert_eq!(value, made["value"]);

    let again = put(&api, "routes/1", route("/b")).await;
    assert_eq!(again.status, StatusCode::OK);
    let again = again.json();
    assert_eq!(
        (&again["createdIndex"], &again["value"]["create_time"]),
        (&made["createdIndex"], &made["value"]["create_time"])
    );
    assert!(again["modifiedIndex"].as_u64() > made["modifiedIndex"].as_u64(), "{again}");
    assert_eq!(get(&api, "routes/1").await.json(), again);

    let merged = patch(&api, "routes/1", json!({"desc": "x", "upstream": {"nodes": {"127.0.0.1:1981": 2}}}))
        .await
        .json();
    assert_eq!(merged["value"]["upstream"]["nodes"], json!({"127.0.0.1:1980": 1, "127.0.0.1:1981": 2}));
    let replaced = patch(&api, "routes/1/upstream/nodes", json!({"127.0.0.1:1982": 1})).await.json();
    assert_eq!(replaced["value"]["upstream"]["nodes"], json!({"127.0.0.1:1982": 1}));
    assert_eq!(patch(&api, "routes/1", json!({"desc": null})).await.json()["value"].get("desc"), None);
    assert!(refused(&patch(&api, "routes/1/uri", json!(7)).await, 400).contains("uri: must be text, not 7"));

    let gone = delete(&api, "routes/1").await;
    assert_eq!(
        (gone.status, gone.json()),
        (StatusCode::OK, json!({"key": "/apisix/routes/1", "deleted": "1"}))
    );
    assert_eq!(refused(&get(&api, "routes/1").await, 404), "Key not found");
    until("the gateway has dropped it", || !platform.gateway.items().contains_key(&key)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_told_with_its_field() {
    let platform = Platform::start().await;
    let api = admin(&platform);
    let nobody = Client { token: None, ..platform.api() };
    assert_eq!(nobody.get("/apisix/admin/routes").await.status, StatusCode::UNAUTHORIZED);
    refused(&nobody.get("/apisix/admin/routes").await, 401);
    assert_eq!(
        nobody.clone().with("x-api-key", &platform.token).get("/v1/apps").await.status,
        StatusCode::UNAUTHORIZED
    );
    let wrong = put(
        &api,
        "routes/1",
        json!({"urii": "/a", "plugins": {"limit-count": {"count": 0, "time_window": 1}, "kafka-logger": {}}}),
    )
    .await;
    let message = refused(&wrong, 400);
    for part in [
        "urii: there is no field",
        "plugins.limit-count.count: must be greater than 0",
        "plugin kafka-logger is not supported",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert!(wrong.fields().contains(&"plugins.limit-count.count".to_owned()), "{}", wrong.text());
    assert!(
        refused(&put(&api, "routes/1", json!({"uri": "/a", "filter_func": "function(vars) end"})).await, 400)
            .contains("use vars")
    );
    assert!(
        refused(&put(&api, "routes/1", json!({"uri": "/a", "upstream_id": "u"})).await, 400)
            .contains("upstream_id: there is no upstream")
    );
    let mut timed = route("/a");
    timed["create_time"] = json!(1);
    assert_eq!(refused(&put(&api, "routes/1", timed).await, 400), "the property is forbidden: create_time");
    assert!(refused(&get(&api, "rutes").await, 404).contains("Unsupported resource type"));
    assert!(refused(&put(&api, "routes/a%20b", route("/a")).await, 400).contains("is no id"));
    assert!(
        refused(&api.send(Method::PUT, "/apisix/admin/routes/1", "{").await, 400)
            .contains("invalid request body")
    );
    assert!(
        refused(&api.send(Method::PUT, "/apisix/admin/routes/1", "").await, 400)
            .contains("missing configurations")
    );
    assert!(refused(&get(&api, "routes?page_size=5").await, 400).contains("between 10 and 500"));
    assert!(refused(&get(&api, "routes?ttl=5").await, 400).contains("ttl"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_used_is_not_deleted_unless_forced() {
    let platform = Platform::start().await;
    let api = admin(&platform);
    let nodes = json!({"nodes": {"127.0.0.1:1980": 1}});
    assert_eq!(put(&api, "upstreams/u", nodes).await.status, StatusCode::CREATED);
    assert_eq!(put(&api, "services/s", json!({"upstream_id": "u"})).await.status, StatusCode::CREATED);
    assert_eq!(
        put(&api, "routes/1", json!({"uri": "/a", "service_id": "s"})).await.status,
        StatusCode::CREATED
    );
    let message = refused(&delete(&api, "upstreams/u").await, 400);
    assert!(
        message.starts_with("can not delete this upstream, service [s] is still using it now"),
        "{message}"
    );
    assert!(refused(&delete(&api, "services/s").await, 400).contains("route [1]"));
    assert_eq!(delete(&api, "services/s?force=true").await.status, StatusCode::OK);
    let split = json!({"traffic-split": {"rules": [{"weighted_upstreams": [{"upstream_id": "u"}]}]}});
    let jack = put(&api, "consumers", json!({"username": "jack", "plugins": split})).await;
    assert_eq!(jack.status, StatusCode::CREATED, "{}", jack.text());
    assert!(refused(&delete(&api, "upstreams/u").await, 400).contains("consumer [jack]"));
    assert_eq!(delete(&api, "consumers/jack").await.status, StatusCode::OK);
    assert_eq!(delete(&api, "upstreams/u").await.status, StatusCode::OK);
    assert_eq!(delete(&api, "upstreams/u").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_have_pages_and_filters() {
    let platform = Platform::start().await;
    let api = admin(&platform);
    for n in 0..12 {
        let mut body = route(&format!("/r{n}/x"));
        body["name"] = json!(format!("route-{n}"));
        body["labels"] = if n % 2 == 0 { json!({"even": "yes"}) } else { json!({"odd": "yes"}) };
        assert_eq!(put(&api, &format!("routes/{n}"), body).await.status, StatusCode::CREATED);
    }
    let all = get(&api, "routes").await.json();
    let ids = |list: &Value| -> Vec<String> {
        list["list"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["value"]["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        (all["total"].as_u64(), ids(&all).len(), ids(&all)[11].as_str()),
        (Some(12), 12, "11"),
        "in the order of creation"
    );
    let second = get(&api, "routes?page=2&page_size=10").await.json();
    assert_eq!((second["total"].as_u64(), ids(&second)), (Some(12), vec!["10".to_owned(), "11".to_owned()]));
    assert_eq!(ids(&get(&api, "routes?label=even&name=route-1").await.json()), ["10"]);
    assert_eq!(ids(&get(&api, "routes?uri=%5E%2Fr3%2F").await.json()), ["3"]);
    assert_eq!(get(&api, "upstreams").await.json(), json!({"total": 0, "list": []}));
    let posted = api.send(Method::POST, "/apisix/admin/routes", route("/p").to_string()).await;
    assert_eq!(posted.status, StatusCode::CREATED, "{}", posted.text());
    let id = posted.json()["value"]["id"].as_str().unwrap().to_owned();
    assert_eq!(get(&api, &format!("routes/{id}")).await.json()["value"]["uri"], "/p");
    refused(
        &api.send(Method::POST, "/apisix/admin/consumers", json!({"username": "x"}).to_string()).await,
        405,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_have_credentials_that_go_with_them() {
    let platform = Platform::start_with(crate::sealed::with_key).await;
    let api = admin(&platform);
    let credential = || json!({"plugins": {"key-auth": {"key": "two"}}});
    assert_eq!(
        refused(&put(&api, "consumers/jack/credentials/c", credential()).await, 404),
        "consumer not found"
    );
    let made =
        put(&api, "consumers", json!({"username": "jack", "plugins": {"key-auth": {"key": "one"}}})).await;
    assert_eq!(
        (made.status, made.json()["key"].as_str()),
        (StatusCode::CREATED, Some("/apisix/consumers/jack"))
    );
    let made = put(&api, "consumers/jack/credentials/c", credential()).await;
    assert_eq!(
        (made.status, made.json()["key"].as_str()),
        (StatusCode::CREATED, Some("/apisix/consumers/jack/credentials/c"))
    );
    assert_eq!(get(&api, "consumers/jack/credentials").await.json()["total"], 1);
    assert_eq!(get(&api, "consumers").await.json()["total"], 1);
    refused(&patch(&api, "consumers/jack", json!({"desc": "x"})).await, 405);
    assert_eq!(delete(&api, "consumers/jack").await.status, StatusCode::OK);
    assert_eq!(get(&api, "consumers/jack/credentials/c").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_are_published_and_documents_judged() {
    let platform = Platform::start().await;
    let api = admin(&platform);
    assert_eq!(get(&api, "schema/route").await.json()["properties"]["uri"]["type"], "string");
    assert_eq!(get(&api, "schema/stream_routes").await.status, StatusCode::OK);
    assert_eq!(get(&api, "schema/plugins/limit-count").await.json()["type"], "object");
    assert_eq!(
        get(&api, "schema/plugins/key-auth?schema_type=consumer").await.json()["required"],
        json!(["key"])
    );
    assert!(refused(&get(&api, "plugins/kafka-logger").await, 404).contains("not supported"));
    let told = refused(&put(&api, "protos/1", json!({"content": "syntax = \"proto3\";"})).await, 400);
    assert!(told.contains("not served by this gateway yet"), "{told}");
    assert!(get(&api, "plugins/list").await.json().as_array().unwrap().contains(&json!("limit-count")));
    let judge = async |kind: &str, body: Value| {
        api.send(Method::POST, &format!("/apisix/admin/schema/validate/{kind}"), body.to_string()).await
    };
    assert_eq!(judge("routes", route("/a")).await.status, StatusCode::OK);
    assert!(refused(&judge("routes", json!({"uri": "/a"})).await, 400).contains("does nothing"));
    assert_eq!(get(&api, "routes").await.json()["total"], 0, "nothing is stored");
}
