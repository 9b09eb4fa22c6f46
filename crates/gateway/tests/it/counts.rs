//! Counters of limiters through a real gateway, while resources are edited.

use crate::alone::{Alone, until, upstream};
use serde_json::{Value, json};
use towpath_testkit::HttpApp;

#[tokio::test]
async fn a_consumers_limit_outlives_edits_of_consumers_and_routes() {
    let app = HttpApp::start("a");
    let resources = |note: &str| {
        let limit = json!({"count": 1, "time_window": 3600, "rejected_code": 429, "key": "consumer_name"});
        json!({
            "consumers": [
                {"username": "jack", "plugins": {"key-auth": {"key": "k1"}, "limit-count": limit}, "labels": {"custom_id": note}},
                {"username": "jill", "plugins": {"key-auth": {"key": "k2"}, "limit-count": limit}},
            ],
            "routes": [{"id": "1", "uri": "/*", "plugins": {"key-auth": {}, "response-rewrite": {"headers": {"set": {"X-Note": note}}}},
                "upstream": upstream(&[app.address()])}],
        })
    };
    let alone = Alone::start(resources("one")).await;
    let status = |key: &str| alone.get_with("/", &format!("apikey: {key}")).status;
    assert_eq!([status("k1"), status("k1"), status("k2"), status("k2")], [200, 429, 200, 429]);
    alone.write(resources("two"));
    until("the edit is there", || alone.get_with("/", "apikey: k1").header("x-note") == Some("two"));
    assert_eq!([status("k1"), status("k2")], [429, 429]);
}

#[tokio::test]
async fn routes_of_a_group_with_different_windows_are_both_limited() {
    let app = HttpApp::start("a");
    let route = |id: &str, window: u64| -> Value {
        let limit = json!({"count": 2, "time_window": window, "rejected_code": 429, "group": "g"});
        json!({"id": id, "uri": format!("/{id}"), "plugins": {"limit-count": limit}, "upstream": upstream(&[app.address()])})
    };
    let alone = Alone::start(json!({"routes": [route("a", 3600), route("b", 7200), route("c", 3600)]})).await;
    let statuses: Vec<_> = (0..3).flat_map(|_| ["/a", "/b"]).map(|path| alone.get(path).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    assert_eq!(alone.get("/c").status, 429, "the same window is counted together");
}
