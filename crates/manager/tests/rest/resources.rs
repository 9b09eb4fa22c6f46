//! Apps, routes, lanes, space: tags, pages, and what is refused.

use crate::client::Platform;
use http::{Method, StatusCode};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tags_guard_against_lost_updates() {
    let platform = Platform::start().await;
    let api = platform.api();
    let made = api.clone().with("if-none-match", "*").put("/v1/apps/shop", json!({"env": {"A": "1"}})).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    assert_eq!(made.etag(), format!("\"{}\"", made.json()["revision"]));
    assert_eq!(made.headers["towpath-revision"].to_str().unwrap(), made.json()["revision"].to_string());
    let again = api.clone().with("if-none-match", "*").put("/v1/apps/shop", json!({})).await;
    assert_eq!((again.status.as_u16(), again.code().as_str()), (412, "stale_revision"));

    let tag = made.etag();
    let patched = api.clone().with("if-match", &tag).patch("/v1/apps/shop", json!({"env": {"B": "2"}})).await;
    assert_eq!(patched.status, StatusCode::OK);
    assert_eq!(patched.json()["env"], json!({"A": "1", "B": "2"}));
    let stale = api.clone().with("if-match", &tag).patch("/v1/apps/shop", json!({"env": {"A": null}})).await;
    assert_eq!(stale.code(), "stale_revision");
    let removed = api.patch("/v1/apps/shop", json!({"env": {"A": null}})).await.json();
    assert_eq!(removed["env"], json!({"B": "2"}));
    let shown = api.get("/v1/apps/shop/env").await;
    let same = api.clone().with("if-none-match", &shown.etag()).get("/v1/apps/shop/env").await;
    assert_eq!((same.status, same.body.len()), (StatusCode::NOT_MODIFIED, 0));

    let wrong = api
        .patch("/v1/apps/shop", json!({"env": {"TOWPATH_X": "1"}, "upstream": {"balancer": "best", "x": 1}}))
        .await;
    assert_eq!(wrong.fields(), ["env.TOWPATH_X", "upstream.balancer", "upstream.x"], "{}", wrong.text());
    assert_eq!(api.patch("/v1/apps/nope", json!({})).await.code(), "not_found");
    let nothing =
        api.clone().with("content-type", "application/json").send(Method::PATCH, "/v1/apps/shop", "").await;
    assert_eq!((nothing.status.as_u16(), nothing.code().as_str()), (400, "malformed"), "{nothing:?}");
    assert!(nothing.text().contains("the body is empty"), "{}", nothing.text());
    let misnamed = api.put("/v1/apps/My_App", json!({})).await;
    assert_eq!((misnamed.code().as_str(), misnamed.fields()), ("invalid", vec!["app".to_owned()]));
    assert!(misnamed.text().contains("for example my-app"), "{}", misnamed.text());
    assert_eq!(api.json(Method::PATCH, "/v1/apps/shop", json!([1])).await.code(), "invalid");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_come_in_pages_and_queries_are_checked() {
    let platform = Platform::start().await;
    let api = platform.api();
    for n in 0..7 {
        assert_eq!(api.put(&format!("/v1/apps/app-{n}"), json!({})).await.status, StatusCode::CREATED);
    }
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/v1/apps?limit=3{cursor}")).await.json();
        names.extend(
            page["items"].as_array().unwrap().iter().map(|app| app["name"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(names, (0..7).map(|n| format!("app-{n}")).collect::<Vec<_>>());
    let (mut hosts, mut cursor) = (0, String::new());
    loop {
        let page = api.get(&format!("/v1/routes?limit=2{cursor}")).await.json();
        assert!(page["items"].as_array().unwrap().len() <= 2);
        hosts += page["items"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(hosts, 7);
    let wrong = api.get("/v1/apps?limit=x&spaec=a&org=A").await;
    assert_eq!(
        (wrong.status.as_u16(), wrong.fields()),
        (422, vec!["limit".into(), "org".into(), "spaec".into()])
    );
    assert_eq!(api.get("/v1/apps?limit=0&cursor=abc").await.fields(), ["cursor", "limit"]);
    assert_eq!(api.get("/v1/apps?limit=1001").await.fields(), ["limit"]);
    assert_eq!(api.get("/v1/status?x=1").await.fields(), ["x"]);
    assert_eq!(api.get("/v1/apps?space=empty").await.json()["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_cannot_be_read_are_told_why() {
    let platform = Platform::start().await;
    let api = platform.api().with("content-type", "application/json");
    let broken = api.send(Method::PUT, "/v1/apps/shop", "{\"env\": {").await;
    assert_eq!((broken.status.as_u16(), broken.code().as_str()), (400, "malformed"));
    assert!(broken.text().contains("line 1 column 9"), "{}", broken.text());
    let huge = api.send(Method::PUT, "/v1/apps/shop", vec![b' '; 2 << 20]).await;
    assert_eq!(huge.code(), "body_too_large");
    let form =
        platform.api().with("content-type", "text/plain").send(Method::PUT, "/v1/apps/shop", "a=b").await;
    assert_eq!(form.code(), "malformed");
    let list = api.send(Method::PUT, "/v1/apps/shop", "[]").await;
    assert_eq!((list.status.as_u16(), list.fields()), (422, vec![".".into()]));
    let types =
        api.send(Method::PUT, "/v1/apps/shop", "{\"env\": [], \"upstream\": 1, \"name\": \"x\"}").await;
    assert_eq!(types.fields(), ["env", "name", "upstream"]);
    let nowhere = platform.api().get("/v1/nope").await;
    assert_eq!((nowhere.status.as_u16(), nowhere.code().as_str()), (404, "not_found"));
    let method = platform.api().send(Method::POST, "/v1/apps", "{}").await;
    assert_eq!(method.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!((method.code().as_str(), &method.json()["status"]), ("method_not_allowed", &json!(405)));
    assert_eq!(method.headers["content-type"], "application/problem+json");
    assert!(method.headers["allow"].to_str().unwrap().contains("GET"));
    let named = platform.api().with("x-request-id", "my-id-1").get("/v1/nope").await;
    assert_eq!(named.json()["instance"], "my-id-1");
    let odd = platform.api().with("x-request-id", "no good").get("/v1/version").await;
    assert_ne!(odd.headers["x-request-id"], "no good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_are_made_found_refused_and_removed() {
    let platform = Platform::start().await;
    let api = platform.api();
    for app in ["shop", "blog"] {
        api.put(&format!("/v1/apps/{app}"), json!({})).await;
    }
    let body = json!({"host": "Shop.Example.com", "path": "/api", "app": "shop", "strip_path": true,
        "entry": [{"lane": "blue", "percent": 5, "hash_by": {"cookie": "user"}}]});
    let made = api.put("/v1/routes?wait=revision", body.clone()).await;
    assert_eq!(made.status, StatusCode::CREATED, "{made:?}");
    assert_eq!(made.headers["towpath-wait"], "served");
    let revision: u64 = made.headers["towpath-revision"].to_str().unwrap().parse().unwrap();
    assert!(platform.gateway.revision().0 >= revision);
    let route = made.json();
    assert_eq!(
        (&route["host"], &route["url"]),
        (&json!("shop.example.com"), &json!("http://shop.example.com:8080/api"))
    );
    assert_eq!(api.put("/v1/routes", body).await.status, StatusCode::OK);
    let taken =
        api.put("/v1/routes", json!({"host": "shop.example.com", "path": "/api", "app": "blog"})).await;
    assert_eq!(taken.code(), "conflict");
    assert!(taken.text().contains("default/default/shop"));
    let wrong = api
        .put(
            "/v1/routes",
            json!({"host": "http://x", "path": "api/", "app": "A", "entry": [{"lane": "b", "percent": 101}]}),
        )
        .await;
    assert_eq!(wrong.fields(), ["app", "entry[0].percent", "host", "path"], "{}", wrong.text());
    assert_eq!(api.put("/v1/routes", json!({})).await.fields(), ["app", "host"]);
    assert_eq!(api.put("/v1/routes", json!({"host": "a.b", "app": "nope"})).await.fields(), ["app"]);
    let listed = api.get("/v1/routes?app=shop").await.json();
    let hosts: Vec<_> =
        listed["items"].as_array().unwrap().iter().map(|route| route["host"].clone()).collect();
    assert_eq!(hosts, ["shop.example.com", "shop.localhost"]);
    assert_eq!(listed["items"][1]["automatic"], true);
    assert_eq!(api.delete("/v1/routes?host=shop.example.com&path=/api").await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.delete("/v1/routes?host=shop.example.com&path=/api").await.code(), "not_found");
    assert_eq!(api.delete("/v1/routes").await.fields(), ["host"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_and_the_way_a_space_reads_them_can_be_changed() {
    let platform = Platform::start().await;
    let api = platform.api();
    assert_eq!(api.put("/v1/lanes/blue", json!({})).await.status, StatusCode::CREATED);
    assert_eq!(api.get("/v1/lanes/blue").await.json()["kind"], "feature");
    assert_eq!(api.put("/v1/lanes/blue", json!({"kind": "local"})).await.status, StatusCode::OK);
    assert_eq!(api.put("/v1/lanes/blue", json!({"kind": "base"})).await.fields(), ["kind"]);
    assert_eq!(api.put("/v1/lanes/a--b", json!({})).await.fields(), ["lane"]);
    assert_eq!(api.delete("/v1/lanes/base").await.code(), "conflict");
    assert_eq!(api.delete("/v1/lanes/blue").await.status, StatusCode::NO_CONTENT);
    assert_eq!(api.get("/v1/lanes/blue").await.code(), "not_found");
    let space = api.get("/v1/space").await;
    assert_eq!(space.json()["lanes"]["header"], "towpath-lane");
    let patch = json!({"lanes": {"header": "trafficEnv", "mode": "strict"}});
    let patched = api.clone().with("if-match", &space.etag()).patch("/v1/space", patch).await;
    assert_eq!((patched.status, &patched.json()["lanes"]["mode"]), (StatusCode::OK, &json!("strict")));
    let wrong = api.patch("/v1/space", json!({"lanes": {"header": "a b", "mode": "no", "nope": 1}})).await;
    assert_eq!(wrong.fields(), ["lanes.header", "lanes.mode", "lanes.nope"]);
    assert_eq!(api.get("/v1/space?space=nope").await.code(), "not_found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_gateways_refuse_is_not_said_to_be_served_and_has_its_reason_in_the_resource() {
    let platform = Platform::start().await;
    let api = platform.api();
    api.put("/v1/apps/shop", json!({})).await;
    for path in ["/%2f", "/%2F%41", "/a%2E", "/%7Euser", "/x/%2e%2e", &"/x".repeat(40)] {
        let body = json!({"host": "a.example", "path": path, "app": "shop"});
        let refused = api.put("/v1/routes?wait=revision", body).await;
        assert_eq!((refused.status.as_u16(), refused.fields()), (422, vec!["path".to_owned()]), "{path}");
    }
    for header in ["via", "x-forwarded-for", "baggage"] {
        let refused = api.patch("/v1/space", json!({"lanes": {"header": header}})).await;
        assert_eq!(refused.fields(), ["lanes.header"], "{header}");
    }

    platform.gateway.refuse("route b.example/", "it is not to its taste");
    platform.gateway.refuse("space default/default", "nor is this");
    let route = json!({"host": "b.example", "app": "shop"});
    let made = api.put("/v1/routes?wait=revision", route).await;
    assert_eq!(
        (made.status, &made.headers["towpath-wait"]),
        (StatusCode::CREATED, &"refused".parse().unwrap())
    );
    assert_eq!(made.headers["towpath-refused"], "route b.example/: it is not to its taste");
    let shown = api.get("/v1/routes").await.json();
    let ours = shown["items"].as_array().unwrap().iter().find(|route| route["host"] == "b.example").unwrap();
    assert_eq!(ours["refused"][0]["why"], "it is not to its taste");
    assert_eq!(ours["refused"][0]["gateways"][0], platform.gateway.id.to_string());
    assert_eq!(api.get("/v1/space").await.json()["refused"][0]["why"], "nor is this");
    assert_eq!(api.put("/v1/lanes/late?wait=revision", json!({})).await.headers["towpath-wait"], "refused");
    // What others wrote is no business of this change.
    let other = json!({"host": "c.example", "app": "shop"});
    assert_eq!(api.put("/v1/routes?wait=revision", other).await.headers["towpath-wait"], "served");
}
