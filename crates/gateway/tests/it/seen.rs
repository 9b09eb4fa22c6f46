//! What the gateway tells about its requests: access log and metrics.

use crate::support::{Rig, World, instance_id};
use serde_json::{Value, json};
use towpath_testkit::HttpApp;

#[tokio::test]
async fn every_request_has_one_line_and_is_counted() {
    let app = HttpApp::start("a");
    let rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let first = rig.get("shop.localhost", "/bytes/1000?secret=1");
    rig.client().request("POST /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 5\r\n\r\nhello");
    rig.get("nobody.localhost", "/x");
    let mut bad = rig.client();
    bad.send("GET\r\n\r\n");
    bad.rest();
    let id = first.header("x-request-id").unwrap().to_owned();
    for (name, value) in [
        ("towpath_gateway_requests_total{class=\"2xx\"}", 2.0),
        ("towpath_gateway_requests_total{class=\"4xx\"}", 2.0),
        ("towpath_gateway_errors_total{code=\"no_route\"}", 1.0),
        ("towpath_gateway_errors_total{code=\"bad_request\"}", 1.0),
        ("towpath_app_requests_total{app=\"default/default/shop\",class=\"2xx\"}", 2.0),
        ("towpath_app_response_bytes_total{app=\"default/default/shop\"}", 1005.0),
        ("towpath_gateway_upstream_connects_total", 1.0),
        ("towpath_gateway_upstream_reuses_total", 1.0),
        ("towpath_gateway_workers", 1.0),
        ("towpath_gateway_table_endpoints", 1.0),
    ] {
        let seen = rig.metric(name);
        assert!((seen - value).abs() < 0.01, "{name} is {seen}, not {value}");
    }
    let dir = rig.stop().await;
    let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4);
    let line = &lines[0];
    assert_eq!(line["id"], id);
    for (key, value) in [
        ("method", json!("GET")),
        ("host", json!("shop.localhost")),
        ("path", json!("/bytes/1000")),
        ("status", json!(200)),
        ("out", json!(1000)),
        ("app", json!("default/default/shop")),
        ("lane", json!("base")),
        ("instance", json!(instance_id(1))),
        ("client", json!("127.0.0.1")),
    ] {
        assert_eq!(line[key], value, "{key}");
    }
    assert!(!log.contains("secret"), "queries are not logged");
    assert_eq!((&lines[1]["in"], &lines[1]["out"]), (&json!(5), &json!(5)));
    assert_eq!((&lines[2]["error"], &lines[2]["status"]), (&json!("no_route"), &json!(404)));
    assert_eq!(lines[3]["error"], "bad_request");
}
