//! Loggers through a real gateway.

use crate::alone::{Alone, route, until};
use crate::support::{Raw, dead_address};
use serde_json::{Value, json};
use std::io::Read;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use towpath_testkit::HttpApp;

/// A server that takes posts: head and body of each.
fn collector(status: &'static str) -> (Raw, Receiver<(Vec<String>, Value)>) {
    let (told, posts) = channel();
    let raw = Raw::start(move |_, mut client| {
        let head = client.read_request();
        let length = head
            .iter()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let body = client.bytes(length.unwrap_or(0));
        let _ = told.send((head, serde_json::from_slice(&body).unwrap_or(Value::Null)));
        client.send(format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"));
    });
    (raw, posts)
}

/// A server that takes all bytes of each connection.
fn listener() -> (SocketAddr, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (told, texts) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut text = String::new();
            let _ = stream.unwrap().read_to_string(&mut text);
            if told.send(text).is_err() {
                return;
            }
        }
    });
    (address, texts)
}

async fn with(app: &HttpApp, plugins: Value) -> Alone {
    Alone::start(json!({"routes": [route(app.address(), plugins)]})).await
}

fn to(address: SocketAddr, more: Value) -> Value {
    let mut all = json!({"host": address.ip().to_string(), "port": address.port(), "batch_max_size": 1});
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

#[tokio::test]
async fn loki_gets_streams_by_their_labels() {
    let app = HttpApp::start("a");
    let (loki, posts) = collector("204 No Content");
    let alone = with(&app, json!({"loki-logger": {
        "endpoint_addrs": [format!("http://{}", loki.address)], "tenant_id": "t1", "headers": {"X-Key": "k"},
        "log_labels": {"job": "gw", "path": "$uri"}, "batch_max_size": 3, "log_format": {"m": "$request_method", "in": {"host": "$host"}},
    }}))
    .await;
    for path in ["/a", "/b", "/a"] {
        assert_eq!(alone.get(path).status, 200);
    }
    let (head, body) = posts.recv().unwrap();
    assert_eq!(head[0], "POST /loki/api/v1/push HTTP/1.1");
    for line in ["x-scope-orgid: t1", "x-key: k"] {
        assert!(head.iter().any(|one| one.eq_ignore_ascii_case(line)), "{head:?}");
    }
    let streams = body["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 2);
    assert_eq!(streams[0]["stream"], json!({"job": "gw", "path": "/a"}));
    assert_eq!(streams[0]["values"].as_array().unwrap().len(), 2);
    assert_eq!(streams[0]["values"][0][0].as_str().unwrap().len(), 19);
    let line: Value = serde_json::from_str(streams[1]["values"][0][1].as_str().unwrap()).unwrap();
    assert_eq!(line, json!({"m": "GET", "in": {"host": "a.test"}, "route_id": "1", "service_id": ""}));
}

#[tokio::test]
async fn servers_by_tcp_udp_and_syslog_get_lines() {
    let app = HttpApp::start("a");
    let ((tcp, lines), (syslog, messages)) = (listener(), listener());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    let format = json!({"log_format": {"uri": "$uri"}});
    let alone = with(&app, json!({
        "tcp-logger": to(tcp, format.clone()), "udp-logger": to(udp.local_addr().unwrap(), format.clone()),
        "syslog": to(syslog, format),
    }))
    .await;
    assert_eq!(alone.get("/x").status, 200);
    let expected = json!({"uri": "/x", "route_id": "1", "service_id": ""});
    assert_eq!(serde_json::from_str::<Value>(&lines.recv().unwrap()).unwrap(), expected);
    let mut bytes = [0; 4096];
    let length = udp.recv(&mut bytes).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&bytes[..length]).unwrap(), expected);
    let message = messages.recv().unwrap();
    let parts: Vec<&str> = message.trim_end().splitn(8, ' ').collect();
    assert_eq!((parts[0], &parts[2..4], &parts[5..7]), ("<46>1", &["a.test", "apisix"][..], &["-", "-"][..]));
    assert_eq!(serde_json::from_str::<Value>(parts[7]).unwrap(), expected);
}

#[tokio::test]
async fn bodies_are_told_as_far_as_is_wanted() {
    let app = HttpApp::start("a");
    let (server, posts) = collector("200 OK");
    let alone = with(&app, json!({"http-logger": {
        "uri": format!("http://{}/", server.address), "auth_header": "Bearer s", "batch_max_size": 1,
        "include_req_body": true, "include_req_body_expr": [["arg_tell", "==", "1"]], "max_req_body_bytes": 4,
        "include_resp_body": true, "max_resp_body_bytes": 1, "log_format_extra": {"tag": "t", "client_ip": "no"},
    }}))
    .await;
    for (query, told) in [("?tell=1", json!("hell")), ("", Value::Null)] {
        let answer =
            alone.send(&format!("POST /{query} HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello"));
        assert_eq!(
            (answer.status, answer.json()["body"].as_str().is_some_and(|body| body != "hello")),
            (200, false)
        );
        let (head, entry) = posts.recv().unwrap();
        assert!(head.iter().any(|line| line.eq_ignore_ascii_case("authorization: Bearer s")));
        assert_eq!((&entry["request"]["body"], &entry["response"]["body"]), (&told, &json!("{")));
        assert_eq!((&entry["tag"], &entry["client_ip"]), (&json!("t"), &json!("127.0.0.1")));
    }
}

#[tokio::test]
async fn dead_servers_slow_nobody_and_what_is_dropped_is_counted() {
    let app = HttpApp::start("a");
    // One refuses, one never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let alone = Alone::start(json!({
        "routes": [route(app.address(), json!({
            "http-logger": {"uri": format!("http://{}/", dead_address()), "batch_max_size": 1, "max_retry_count": 1000, "retry_delay": 3600},
            "loki-logger": {"endpoint_addrs": [format!("http://{}", silent.local_addr().unwrap())], "batch_max_size": 1, "timeout": 60000},
        }))],
        "plugin_metadata": [{"id": "http-logger", "max_pending_entries": 2}, {"id": "loki-logger", "max_pending_entries": 2}],
    }))
    .await;
    let mut client = alone.client();
    for _ in 0..100 {
        assert_eq!(client.request("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    }
    // Two wait, one is being sent, of each.
    until("they are counted", || alone.metric("towpath_gateway_plugin_log_dropped_total") >= 190.0);
}

#[tokio::test]
async fn all_loggers_have_one_thread() {
    let app = HttpApp::start("a");
    let routes: Vec<Value> = (0..50)
        .map(|n| {
            let server = json!({"uri": format!("http://{}/{n}", dead_address())});
            let file = json!({"path": format!("/dev/null/{n}")});
            let mut route = route(app.address(), json!({"http-logger": server, "file-logger": file}));
            route["id"] = json!(n.to_string());
            route["uri"] = json!(format!("/{n}"));
            route
        })
        .collect();
    let alone = Alone::start(json!({"routes": routes})).await;
    assert_eq!(alone.get("/7").status, 200);
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    let names: Vec<String> = names
        .filter(|name| name.starts_with("towpath-gw-log") || name.starts_with("towpath-gw-file"))
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
}
