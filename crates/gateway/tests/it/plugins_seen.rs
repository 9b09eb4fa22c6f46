//! What is seen of requests from outside: metrics by route, traces, the access log.

use crate::alone::{Alone, route, until, upstream};
use crate::support::{Client, Raw};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::mpsc::channel;
use towpath_testkit::HttpApp;

fn admin(alone: &Alone, path: &str) -> crate::support::Answer {
    Client::connect(alone.admin()).request(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

fn named(address: std::net::SocketAddr) -> Value {
    let mut route = route(address, json!({"prometheus": {"prefer_name": true}}));
    route["name"] = json!("shop");
    route["host"] = json!("a.test");
    route
}

#[tokio::test]
async fn requests_are_counted_under_apisixs_names() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [named(app.address())]})).await;
    for _ in 0..3 {
        assert_eq!(alone.get("/x").status, 200);
    }
    let text = admin(&alone, "/apisix/prometheus/metrics").text();
    let line = r#"apisix_http_status{code="200",route="shop",matched_uri="/*",matched_host="a.test",service="",consumer="",node="127.0.0.1"} 3"#;
    assert!(text.lines().any(|one| one == line), "{text}");
    let count = r#"apisix_http_latency_count{type="upstream",route="shop",service="",consumer="",node="127.0.0.1"} 3"#;
    assert!(text.lines().any(|one| one == count), "{text}");
    for name in ["apisix_bandwidth{type=\"egress\"", "apisix_http_requests_total 3", "apisix_node_info{"] {
        assert!(text.contains(name), "{name} is not in {text}");
    }
    let status = admin(&alone, "/apisix/status").json();
    assert_eq!((&status["status"]["total"], status["id"].as_str().unwrap().len()), (&json!("3"), 36));
    let info = admin(&alone, "/v1/server_info").json();
    assert!(info["boot_time"].as_u64().unwrap() > 1_700_000_000 && info["hostname"].is_string());
}

#[tokio::test]
async fn a_scraper_that_does_not_read_holds_no_request_up() {
    let app = HttpApp::start("a");
    let routes: Vec<Value> = (0..300)
        .map(|n| {
            let mut route = route(app.address(), json!({"prometheus": {}}));
            route["id"] = json!(n.to_string());
            route["uri"] = json!(format!("/{n}"));
            route
        })
        .collect();
    let alone = Alone::start(json!({"routes": routes})).await;
    let mut client = alone.client();
    for n in 0..300 {
        assert_eq!(client.request(&format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n")).status, 200);
    }
    let mut slow: Vec<Client> = (0..8).map(|_| Client::connect(alone.admin())).collect();
    for scraper in &mut slow {
        scraper.send("GET /apisix/prometheus/metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    for n in 0..300 {
        assert_eq!(client.request(&format!("GET /{n} HTTP/1.1\r\nHost: a.test\r\n\r\n")).status, 200);
    }
    let text = String::from_utf8(slow.remove(0).rest()).unwrap();
    assert!(text.matches("\napisix_http_status{").count() == 300, "{}", text.len());
}

/// A collector of traces: the spans of each message.
fn collector() -> (Raw, std::sync::mpsc::Receiver<(Vec<String>, Value)>) {
    let (told, messages) = channel();
    let told = Mutex::new(told);
    let raw = Raw::start(move |_, mut client| {
        let head = client.read_request();
        let length = head
            .iter()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let body = client.bytes(length.unwrap_or(0));
        let _ = told.lock().unwrap().send((head, serde_json::from_slice(&body).unwrap()));
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
    });
    (raw, messages)
}

async fn traced(app: &HttpApp, collector: &Raw, config: Value) -> Alone {
    Alone::start(json!({
        "routes": [route(app.address(), json!({"opentelemetry": config}))],
        "plugin_metadata": [{
            "id": "opentelemetry", "resource": {"service.name": "edge", "n": 1}, "set_ngx_var": true,
            "collector": {"address": collector.address.to_string(), "request_headers": {"X-Key": "k"}},
            "batch_span_processor": {"max_export_batch_size": 1},
        }],
    }))
    .await
}

fn attribute<'a>(span: &'a Value, key: &str) -> &'a Value {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|one| one["key"] == key).map_or(&Value::Null, |one| &one["value"])
}

#[tokio::test]
async fn spans_go_to_a_collector_and_their_context_to_the_upstream() {
    let app = HttpApp::start("a");
    let (collector, messages) = collector();
    let alone = traced(&app, &collector, json!({
        "sampler": {"name": "always_on"}, "additional_attributes": ["arg_x"], "additional_header_prefix_attributes": ["x-my-*"],
    }))
    .await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let answer =
        alone.get_with("/p?x=7", &format!("traceparent: 00-{trace}-b7ad6b7169203331-01\r\nX-My-A: 1"));
    let (head, message) = messages.recv().unwrap();
    assert_eq!(head[0], "POST /v1/traces HTTP/1.1");
    assert!(head.iter().any(|line| line.eq_ignore_ascii_case("x-key: k")));
    let resource = &message["resourceSpans"][0];
    assert!(resource["resource"]["attributes"].to_string().contains("edge"));
    let span = &resource["scopeSpans"][0]["spans"][0];
    assert_eq!(
        (&span["traceId"], &span["parentSpanId"], &span["kind"]),
        (&json!(trace), &json!("b7ad6b7169203331"), &json!(2))
    );
    let own = span["spanId"].as_str().unwrap();
    assert_eq!(answer.seen("traceparent"), Some(format!("00-{trace}-{own}-01")));
    assert_eq!(span["name"], "GET /*");
    for (key, value) in [
        ("http.request.method", "GET"),
        ("url.path", "/p"),
        ("apisix.route_id", "1"),
        ("arg_x", "7"),
        ("x-my-a", "1"),
    ] {
        assert_eq!(attribute(span, key)["stringValue"], value, "{key}");
    }
    assert_eq!(attribute(span, "http.response.status_code")["intValue"], "200");
    assert!(span["endTimeUnixNano"].as_str() >= span["startTimeUnixNano"].as_str());
    // B3 comes and goes in its own form.
    let answer = alone.get_with("/", &format!("b3: {trace}-b7ad6b7169203331-1"));
    let span = &messages.recv().unwrap().1["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    let own = span["spanId"].as_str().unwrap();
    assert_eq!((&span["traceId"], answer.seen("b3")), (&json!(trace), Some(format!("{trace}-{own}-1"))));
    let answer = alone
        .get_with("/", &format!("X-B3-TraceId: {trace}\r\nX-B3-SpanId: b7ad6b7169203331\r\nX-B3-Sampled: 1"));
    let span = &messages.recv().unwrap().1["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!(
        (answer.seen("x-b3-traceid"), answer.seen("x-b3-parentspanid")),
        (Some(trace.into()), Some("b7ad6b7169203331".into()))
    );
    assert_eq!(answer.seen("x-b3-spanid").as_deref(), span["spanId"].as_str());
}

#[tokio::test]
async fn each_request_is_one_span_whatever_its_end() {
    let (collector, messages) = collector();
    let silent = Raw::start(|_, mut client| {
        client.read_request();
        client.rest();
    });
    let app = HttpApp::start("a");
    let mut routes = vec![
        json!({"id": "refused", "uri": "/refused", "upstream": upstream(&[crate::support::dead_address()])}),
        json!({"id": "gone", "uri": "/gone", "upstream": upstream(&[silent.address])}),
        json!({"id": "answered", "uri": "/answered", "plugins": {"mocking": {"response_example": "x"}}, "upstream": upstream(&[app.address()])}),
    ];
    for route in &mut routes {
        route["plugins"]["opentelemetry"] =
            json!({"sampler": {"name": "parent_base", "options": {"root": {"name": "always_on"}}}});
    }
    let alone = Alone::start(json!({
        "routes": routes,
        "plugin_metadata": [{"id": "opentelemetry", "collector": {"address": collector.address.to_string()}, "batch_span_processor": {"max_export_batch_size": 1}}],
    }))
    .await;
    let span = || messages.recv().unwrap().1["resourceSpans"][0]["scopeSpans"][0]["spans"].clone();
    assert_eq!(alone.get("/refused").status, 502);
    let spans = span();
    assert_eq!((spans.as_array().unwrap().len(), &spans[0]["status"]["code"]), (1, &json!(2)));
    assert_eq!(attribute(&spans[0], "apisix.route_id")["stringValue"], "refused");
    assert_eq!(alone.get("/answered").status, 200);
    assert_eq!(attribute(&span()[0], "apisix.route_id")["stringValue"], "answered");
    let mut client = alone.client();
    client.send("GET /gone HTTP/1.1\r\nHost: a.test\r\n\r\n");
    until("the upstream is asked", || silent.connections() == 1);
    // Closed with a reset: one that only ends its side still wants its answer.
    socket2::SockRef::from(&client.stream).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(attribute(&span()[0], "apisix.route_id")["stringValue"], "gone");
    // A parent that is not sampled is obeyed.
    alone.get_with("/answered", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    assert_eq!(alone.get("/answered").status, 200);
    let last = span();
    assert_ne!(last[0]["traceId"], "0af7651916cd43dd8448eb211c80319c");
    assert!(messages.try_recv().is_err());
}

#[tokio::test]
async fn the_access_log_has_the_fields_that_were_asked_for() {
    let app = HttpApp::start("a");
    let dir = towpath_testkit::temp_dir();
    let file = dir.path().join("access.log");
    let start = |format: Option<Value>| {
        let path = file.clone();
        let resources = json!({
            "routes": [{"id": "1", "name": "shop", "uri": "/*", "service_id": "s", "plugins": {"key-auth": {}}}],
            "services": [{"id": "s", "upstream": upstream(&[app.address()])}],
            "consumers": [{"username": "jack", "plugins": {"key-auth": {"key": "k"}}}],
        });
        Alone::start_with(resources, move |settings| {
            settings.access_log.file = Some(path);
            settings.access_log.format = format.map(|format| format.as_object().unwrap().clone());
        })
    };
    let lines = |count: usize| -> Vec<Value> {
        until("the lines are there", || {
            std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() >= count)
        });
        std::fs::read_to_string(&file)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let alone = start(None).await;
    alone.get_with("/x", "apikey: k");
    alone.get("/y");
    let told = lines(2);
    let line = &told[0];
    assert_eq!(
        (&line["route"], &line["service"], &line["consumer"]),
        (&json!("1"), &json!("s"), &json!("jack"))
    );
    assert_eq!(
        (line.get("plugin"), &told[1]["plugin"], &told[1]["status"]),
        (None, &json!("key-auth"), &json!(401))
    );
    drop(alone);
    std::fs::remove_file(&file).unwrap();
    let alone = start(Some(json!({"who": "$consumer_name", "a": "$http_x_a", "line": "$request_method $uri", "code": "$status", "n": 1}))).await;
    alone.get_with("/x", "apikey: k\r\nX-A: \"1\"");
    assert_eq!(lines(1)[0], json!({"who": "jack", "a": "\"1\"", "line": "GET /x", "code": "200", "n": 1}));
}
