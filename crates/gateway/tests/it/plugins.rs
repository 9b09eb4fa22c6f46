//! Plugins through a real gateway.

use crate::alone::{Alone, route, until, upstream};
use crate::support::{Raw, dead_address};
use serde_json::{Value, json};
use std::time::Duration;
use towpath_testkit::HttpApp;

async fn with(app: &HttpApp, plugins: Value) -> Alone {
    Alone::start(json!({"routes": [route(app.address(), plugins)]})).await
}

#[tokio::test]
async fn a_route_without_plugins_proxies() {
    let app = HttpApp::start("a");
    let alone = with(&app, json!({})).await;
    let answer = alone.get("/x?y=1");
    assert_eq!((answer.status, &answer.json()["path"]), (200, &json!("/x?y=1")));
    assert_eq!(answer.seen("host").unwrap(), "a.test");
}

#[tokio::test]
async fn proxy_rewrite_changes_what_goes_out() {
    let app = HttpApp::start("a");
    let alone = with(
        &app,
        json!({"proxy-rewrite": {
            "uri": "/v2$uri?own=1", "method": "POST", "host": "other.test:81",
            "headers": {"add": {"X-Add": "$remote_addr"}, "set": {"X-Set": "${arg_y}!", "X-Two": ["1", "2"]}, "remove": ["X-Gone"]}
        }}),
    )
    .await;
    let answer = alone.get_with("/x%20y?y=7", "X-Gone: 1\r\nX-Add: 0\r\nX-Set: 0");
    let seen = answer.json();
    assert_eq!((&seen["path"], &seen["method"]), (&json!("/v2/x%20y?own=1&y=7"), &json!("POST")));
    assert_eq!(answer.seen("host").unwrap(), "other.test:81");
    assert_eq!(answer.seen_all("x-add"), ["0", "127.0.0.1"]);
    assert_eq!((answer.seen("x-set").unwrap().as_str(), answer.seen("x-gone")), ("7!", None));
    assert_eq!(answer.seen_all("x-two"), ["1", "2"]);
}

#[tokio::test]
async fn proxy_rewrite_takes_the_first_expression_that_matches() {
    let app = HttpApp::start("a");
    let alone = with(
        &app,
        json!({"proxy-rewrite": {
            "regex_uri": ["^/none", "/no", "^/a/(.*)/(.*)", "/$2/${1}x", "^/a", "/late"], "headers": {"X-G": "$1-$2"}
        }}),
    )
    .await;
    let answer = alone.get("/a/b/c?q=1");
    assert_eq!(answer.json()["path"], "/c/bx?q=1");
    assert_eq!(answer.seen("x-g").unwrap(), "b-c");
    assert_eq!(alone.get("/other").json()["path"], "/other");
    let smuggled = alone.get("/a/b%0d%0aX:1/c%3Fd");
    assert_eq!(smuggled.json()["path"], "/late/b%0D%0AX:1/c%3Fd", "`.` is no line break");
    assert_eq!(alone.get("/a/b%0dX:1/c%3Fd").json()["path"], "/c%3Fd/b%0DX:1x");
}

#[tokio::test]
async fn response_rewrite_changes_what_comes_back() {
    let app = HttpApp::start("a");
    let alone = with(
        &app,
        json!({"response-rewrite": {
            "status_code": 201, "body": "aGVsbG8=", "body_base64": true, "vars": [["status", "==", 200]],
            "headers": {"set": {"X-Status": "$status", "Content-Type": "text/x"}, "add": ["X-Up: $upstream_addr"], "remove": ["X-Request-Id"]}
        }}),
    )
    .await;
    let mut client = alone.client();
    for _ in 0..2 {
        let answer = client.request("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        assert_eq!((answer.status, answer.text().as_str()), (201, "hello"));
        assert_eq!(answer.header("x-up"), Some(app.address().to_string().as_str()));
        assert_eq!((answer.header("content-type"), answer.header("x-request-id")), (Some("text/x"), None));
    }
    app.set_status(404);
    assert_eq!(alone.get("/").status, 404);
}

#[tokio::test]
async fn response_rewrite_replaces_in_bodies_of_any_framing() {
    for body in [
        "HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\nbanana banana",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbana\r\n9\r\nna banana\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbanana banana",
    ] {
        let app = Raw::saying(body);
        let alone = Alone::start(json!({"routes": [route(app.address, json!({"response-rewrite": {"filters": [
            {"regex": "B(an)", "replace": "<$1>", "options": "i"}, {"regex": "a", "scope": "global", "replace": "o"}
        ]}}))]}))
        .await;
        assert_eq!(alone.get("/").text(), "<on>ono bonono", "{body}");
    }
}

#[tokio::test]
async fn redirect_leads_elsewhere() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [
        {"id": "1", "uri": "/https", "plugins": {"redirect": {"http_to_https": true}}},
        {"id": "2", "uri": "/uri", "plugins": {"redirect": {"uri": "/new/$arg_x", "ret_code": 301, "append_query_string": true}}},
        {"id": "3", "uri": "/re/*", "plugins": {"redirect": {"regex_uri": ["^/re/(\\w+)$", "https://x.test/${1}"]}},
         "upstream": upstream(&[app.address()])},
    ]}))
    .await;
    let to = |answer: &crate::support::Answer| (answer.status, answer.header("location").map(str::to_owned));
    assert_eq!(to(&alone.get("/https?a=1")), (301, Some("https://a.test/https?a=1".into())));
    let post = alone.send("POST /https HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(to(&post), (308, Some("https://a.test/https".into())));
    assert_eq!(to(&alone.get("/uri?x=1")), (301, Some("/new/1?x=1".into())));
    assert_eq!(to(&alone.get("/re/abc")), (302, Some("https://x.test/abc".into())));
    assert_eq!(alone.get("/re/a-b").status, 200);
}

#[tokio::test]
async fn request_id_is_made_kept_and_told() {
    let app = HttpApp::start("a");
    let alone = with(&app, json!({"request-id": {"header_name": "X-Trace", "algorithm": "range_id", "range_id": {"length": 9, "char_set": "aaaaaa"}}})).await;
    let answer = alone.get("/");
    assert_eq!(
        (answer.header("x-trace"), answer.seen("x-trace").as_deref()),
        (Some("aaaaaaaaa"), Some("aaaaaaaaa"))
    );
    let given = alone.get_with("/", "X-Trace: mine");
    assert_eq!((given.header("x-trace"), given.seen("x-trace").as_deref()), (Some("mine"), Some("mine")));
    for (algorithm, length) in [("uuid", 36), ("uuidv7", 36), ("nanoid", 21), ("ksuid", 27)] {
        let alone =
            with(&app, json!({"request-id": {"algorithm": algorithm, "include_in_response": false}})).await;
        let answer = alone.get("/");
        assert_eq!(answer.header("x-request-id"), None);
        assert_eq!(answer.seen("x-request-id").unwrap().len(), length, "{algorithm}");
    }
}

#[tokio::test]
async fn limit_count_counts_by_key_tells_the_rest_and_survives_edits() {
    let app = HttpApp::start("a");
    let limited = |count: u64, extra: Value| {
        let mut config = json!({"count": count, "time_window": 3600, "key": "http_x_user", "rejected_code": 429, "rejected_msg": "slow down"});
        config.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        json!({"routes": [route(app.address(), json!({"limit-count": config}))]})
    };
    let alone = Alone::start(limited(2, json!({}))).await;
    let rest = |answer: &crate::support::Answer| answer.header("x-ratelimit-remaining").map(str::to_owned);
    for left in ["1", "0"] {
        let answer = alone.get_with("/", "X-User: a");
        assert_eq!((answer.status, rest(&answer).as_deref()), (200, Some(left)));
        assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
    }
    let refused = alone.get_with("/", "X-User: a");
    assert_eq!((refused.status, &refused.json()), (429, &json!({"error_msg": "slow down"})));
    assert_eq!(rest(&refused).as_deref(), Some("0"));
    assert_eq!(alone.get_with("/", "X-User: b").status, 200);
    assert_eq!(app.requests(), 3);
    alone.write(limited(5, json!({"show_limit_quota_header": false})));
    until("the edit is there", || alone.get_with("/", "X-User: other").header("x-ratelimit-limit").is_none());
    let statuses: Vec<_> = (0..4).map(|_| alone.get_with("/", "X-User: a").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429], "two were counted before the edit");
}

#[tokio::test]
async fn limit_conn_gives_its_slots_back_whatever_ends_the_request() {
    let app = HttpApp::start("a");
    app.set_delay(Duration::from_millis(100));
    let conn =
        json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "server_addr", "rejected_code": 429});
    let alone = Alone::start(json!({
        "global_rules": [{"id": "1", "plugins": {"limit-conn": conn}}],
        "routes": [
            {"id": "1", "uri": "/ok", "plugins": {"limit-conn": conn}, "upstream": upstream(&[app.address()])},
            {"id": "2", "uri": "/refused", "plugins": {"limit-conn": conn, "limit-count": {"count": 1, "time_window": 3600, "rejected_code": 403}},
             "upstream": upstream(&[app.address()])},
            {"id": "3", "uri": "/dead", "plugins": {"limit-conn": conn}, "upstream": upstream(&[dead_address()])},
        ],
    }))
    .await;
    for path in ["/ok", "/refused", "/dead", "/refused", "/nothing"] {
        for _ in 0..3 {
            let status = alone.get(path).status;
            assert_ne!(status, 429, "{path}: a slot was kept");
        }
    }
    let mut slow = alone.client();
    slow.send("GET /ok HTTP/1.1\r\nHost: a.test\r\n\r\n");
    until("it is at the app", || app.in_flight() == 1);
    assert_eq!(alone.get("/ok").status, 429);
    assert_eq!(slow.answer().status, 200);
    let mut gone = alone.client();
    app.set_delay(Duration::from_secs(3600));
    gone.send("GET /ok HTTP/1.1\r\nHost: a.test\r\n\r\n");
    until("it is at the app", || app.in_flight() >= 1);
    // Its end alone may be that of its sending: a reset is none's.
    socket2::SockRef::from(&gone.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(gone);
    app.set_delay(Duration::ZERO);
    until("a client that is gone holds no slot", || alone.get("/ok").status == 200);
}

#[tokio::test]
async fn limit_req_delays_and_refuses() {
    let app = HttpApp::start("a");
    let config = json!({"rate": 0.001, "burst": 1, "key": "arg_k", "nodelay": true, "rejected_code": 429});
    let alone = with(&app, json!({"limit-req": config})).await;
    let statuses: Vec<_> = (0..3).map(|_| alone.get("/?k=1").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    assert_eq!(alone.get("/?k=2").status, 200);
}

#[tokio::test]
async fn consumers_are_known_by_key_and_password_and_bring_their_plugins() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({
        "consumer_groups": [{"id": "g", "plugins": {"response-rewrite": {"headers": {"set": {"X-Group": "$consumer_group_id"}}}}}],
        "consumers": [
            {"username": "jack", "group_id": "g", "plugins": {
                "key-auth": {"key": "k1"}, "basic-auth": {"username": "jack", "password": "p:w"},
                "limit-count": {"count": 2, "time_window": 3600, "rejected_code": 429}}},
            {"username": "jill", "plugins": {"key-auth": {"key": "k2"}}},
            {"username": "nobody", "plugins": {}},
        ],
        "routes": [
            {"id": "1", "uri": "/key", "plugins": {"key-auth": {"hide_credentials": true}}, "upstream": upstream(&[app.address()])},
            {"id": "2", "uri": "/basic", "plugins": {"basic-auth": {}}, "upstream": upstream(&[app.address()])},
            {"id": "3", "uri": "/any", "plugins": {"key-auth": {"anonymous_consumer": "nobody"}}, "upstream": upstream(&[app.address()])},
            {"id": "4", "uri": "/jill", "plugins": {"key-auth": {}, "consumer-restriction": {"whitelist": ["jill"]}}, "upstream": upstream(&[app.address()])},
        ],
    }))
    .await;
    let missing = alone.get("/key");
    assert_eq!((missing.status, &missing.json()), (401, &json!({"message": "Missing API key in request"})));
    assert_eq!(missing.header("www-authenticate"), Some("apikey realm=\"key\""));
    assert_eq!(alone.get_with("/key", "apikey: no").json(), json!({"message": "Invalid API key in request"}));
    let jill = alone.get("/key?a=1&apikey=k2&b=2");
    assert_eq!((jill.status, &jill.json()["path"]), (200, &json!("/key?a=1&b=2")));
    assert_eq!(jill.seen("x-consumer-username").unwrap(), "jill");
    let jack = alone.get_with("/key", "apikey: k1\r\nX-Consumer-Username: root");
    assert_eq!((jack.status, jack.header("x-group"), jack.seen("apikey")), (200, Some("g"), None));
    assert_eq!(jack.seen_all("x-consumer-username"), ["jack"]);
    // `jack:p:w`
    let basic = alone.get_with("/basic", "Authorization: Basic amFjazpwOnc=");
    assert_eq!((basic.status, basic.header("x-ratelimit-remaining")), (200, Some("0")));
    assert_eq!(alone.get_with("/key", "apikey: k1").status, 429, "the consumer's limit counts on all routes");
    assert_eq!(alone.get_with("/basic", "Authorization: Basic amFjazpw").status, 401);
    assert_eq!(alone.get("/any").seen("x-consumer-username").unwrap(), "nobody");
    assert_eq!(alone.get_with("/jill", "apikey: k2").status, 200);
    let forbidden = alone.get_with("/jill", "apikey: k1");
    assert_eq!(
        (forbidden.status, &forbidden.json()),
        (403, &json!({"message": "The consumer_name is forbidden."}))
    );
}

#[tokio::test]
async fn restrictions_refuse_with_their_words() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [
        {"id": "1", "uri": "/ip", "plugins": {"ip-restriction": {"blacklist": ["127.0.0.0/8"]}}, "upstream": upstream(&[app.address()])},
        {"id": "2", "uri": "/ua", "plugins": {"ua-restriction": {"denylist": ["^bad"]}}, "upstream": upstream(&[app.address()])},
        {"id": "3", "uri": "/from", "plugins": {"referer-restriction": {"whitelist": ["*.good.test"], "bypass_missing": true}}, "upstream": upstream(&[app.address()])},
        {"id": "4", "uri": "/block*", "plugins": {"uri-blocker": {"block_rules": ["ROOT\\.exe"], "case_insensitive": true, "rejected_msg": "no"}}, "upstream": upstream(&[app.address()])},
        {"id": "5", "uri": "/real", "plugins": {"real-ip": {"source": "http_x_forwarded_for", "trusted_addresses": ["127.0.0.1", "9.0.0.0/8"], "recursive": true},
            "ip-restriction": {"whitelist": ["8.8.8.8"]}}, "upstream": upstream(&[app.address()])},
    ]}))
    .await;
    let ip = alone.get("/ip");
    assert_eq!((ip.status, &ip.json()), (403, &json!({"message": "Your IP address is not allowed"})));
    assert_eq!((alone.get("/ua").status, alone.get_with("/ua", "User-Agent: bad/1").status), (403, 403));
    assert_eq!(alone.get_with("/ua", "User-Agent: good").status, 200);
    assert_eq!(alone.get("/from").status, 200);
    assert_eq!(alone.get_with("/from", "Referer: https://a.good.test/x").status, 200);
    assert_eq!(alone.get_with("/from", "Referer: https://good.evil.test/x").status, 403);
    let blocked = alone.get("/block?x=root.EXE");
    assert_eq!((blocked.status, &blocked.json()), (403, &json!({"error_msg": "no"})));
    assert_eq!(alone.get("/block").status, 200);
    assert_eq!(alone.get_with("/real", "X-Forwarded-For: 1.1.1.1, 8.8.8.8, 9.9.9.9").status, 200);
    assert_eq!(alone.get_with("/real", "X-Forwarded-For: 8.8.8.8, 1.1.1.1").status, 403);
}

#[tokio::test]
async fn cors_answers_preflights_and_marks_responses() {
    let app = HttpApp::start("a");
    let alone = with(&app, json!({"cors": {
        "allow_origins": "https://a.test,https://b.test", "allow_methods": "GET", "allow_headers": "**", "allow_credential": true, "expose_headers": "X-E"
    }}))
    .await;
    let ask = "OPTIONS / HTTP/1.1\r\nHost: a.test\r\nOrigin: https://b.test\r\nAccess-Control-Request-Headers: x-h\r\n\r\n";
    let preflight = alone.send(ask);
    assert_eq!((preflight.status, app.requests()), (200, 0));
    for (name, value) in [
        ("access-control-allow-origin", "https://b.test"),
        ("access-control-allow-methods", "GET"),
        ("access-control-allow-headers", "x-h"),
        ("access-control-allow-credentials", "true"),
        ("access-control-max-age", "5"),
        ("access-control-expose-headers", "X-E"),
        ("vary", "Origin"),
    ] {
        assert_eq!(preflight.header(name), Some(value), "{name}");
    }
    let other = alone.get_with("/", "Origin: https://c.test");
    assert_eq!((other.status, other.header("access-control-allow-origin")), (200, None));
}

#[tokio::test]
async fn faults_are_injected_and_answers_invented() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [
        {"id": "1", "uri": "/fault", "plugins": {"fault-injection": {
            "abort": {"http_status": 418, "body": "$arg_x", "headers": {"X-N": 1}, "vars": [[["arg_x", "==", "1"]], [["arg_x", "==", "2"]]]},
            "delay": {"duration": 0.01}}}, "upstream": upstream(&[app.address()])},
        {"id": "2", "uri": "/never", "plugins": {"fault-injection": {"abort": {"http_status": 500, "percentage": 0}}}, "upstream": upstream(&[app.address()])},
        {"id": "3", "uri": "/mock", "plugins": {"mocking": {"response_example": "{\"a\":\"$arg_x\"}", "response_headers": {"X-M": "y"}, "response_status": 203}}},
        {"id": "4", "uri": "/made", "plugins": {"mocking": {"response_schema": {"type": "object", "properties": {"n": {"type": "integer", "example": 7}, "l": {"type": "array", "items": {"type": "boolean"}}}}}}},
    ]}))
    .await;
    let fault = alone.get("/fault?x=2");
    assert_eq!((fault.status, fault.text().as_str(), fault.header("x-n")), (418, "2", Some("1")));
    assert_eq!((alone.get("/fault?x=3").status, alone.get("/never").status), (200, 200));
    let mock = alone.get("/mock?x=5");
    assert_eq!((mock.status, &mock.json(), mock.header("x-m")), (203, &json!({"a": "5"}), Some("y")));
    let made = alone.get("/made").json();
    assert!(made["n"] == 7 && made["l"][0].is_boolean(), "{made}");
}

#[tokio::test]
async fn traffic_is_split_and_a_share_of_nothing_gets_nothing() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let split = |weights: Value| {
        json!({"traffic-split": {"rules": [
            {"match": [{"vars": [["http_x_to", "==", "b"]]}], "weighted_upstreams": [{"upstream_id": "b"}]},
            {"weighted_upstreams": weights},
        ]}})
    };
    let resources = |weights: Value| {
        json!({
            "upstreams": [
                {"id": "b", "type": "roundrobin", "nodes": {b.address().to_string(): 1}},
                {"id": "empty", "type": "roundrobin", "nodes": {}},
            ],
            "routes": [route(a.address(), split(weights))],
        })
    };
    let alone =
        Alone::start(resources(json!([{"upstream": upstream(&[b.address()]), "weight": 1}, {"weight": 3}])))
            .await;
    for _ in 0..40 {
        assert_eq!(alone.get("/").status, 200);
    }
    assert_eq!((a.requests(), b.requests()), (30, 10));
    assert_eq!(alone.get_with("/", "X-To: b").status, 200);
    assert_eq!(b.requests(), 11);
    alone.write(resources(json!([{"upstream_id": "empty", "weight": 0}, {"weight": 1}])));
    until("the edit is there", || {
        let before = a.requests();
        (0..4).for_each(|_| drop(alone.get("/")));
        a.requests() == before + 4
    });
    for _ in 0..20 {
        assert_eq!(alone.get("/").status, 200);
    }
}

#[tokio::test]
async fn a_breaker_opens_after_failures_and_bodies_are_limited() {
    let app = HttpApp::start("a");
    app.set_status(500);
    let alone = with(&app, json!({
        "api-breaker": {"break_response_code": 502, "break_response_body": "{}", "break_response_headers": [{"key": "X-B", "value": "$uri"}],
            "unhealthy": {"http_statuses": [500], "failures": 2}},
        "client-control": {"max_body_size": 3},
    }))
    .await;
    assert_eq!((alone.get("/p").status, alone.get("/p").status), (500, 500));
    let open = alone.get("/p");
    assert_eq!((open.status, open.header("x-b"), app.requests()), (502, Some("/p"), 2));
    assert_eq!(alone.get("/other").status, 500);
    app.set_status(200);
    let post = |body: &str| {
        alone
            .send(&format!(
                "POST /b HTTP/1.1\r\nHost: a.test\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ))
            .status
    };
    assert_eq!((post("abc"), post("abcd")), (200, 413));
    let chunked = alone.send(
        "POST /b HTTP/1.1\r\nHost: a.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n",
    );
    assert_eq!(chunked.status, 413);
}

#[tokio::test]
async fn csrf_wants_its_own_token() {
    let app = HttpApp::start("a");
    let alone = with(&app, json!({"csrf": {"key": "secret", "name": "tok"}})).await;
    let cookie = alone.get("/").header("set-cookie").unwrap().to_owned();
    let token = cookie.strip_prefix("tok=").unwrap().split(';').next().unwrap().to_owned();
    let post = |lines: &str| {
        alone.send(&format!("POST / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 0\r\n{lines}\r\n"))
    };
    assert_eq!(post("").json(), json!({"error_msg": "no csrf token in headers"}));
    assert_eq!(post(&format!("tok: {token}\r\n")).json(), json!({"error_msg": "no csrf cookie"}));
    assert_eq!(post(&format!("tok: {token}\r\nCookie: tok={token}\r\n")).status, 200);
    let forged = "e30=";
    assert_eq!(post(&format!("tok: {forged}\r\nCookie: tok={forged}\r\n")).status, 401);
}

#[tokio::test]
async fn meta_disables_filters_orders_and_answers() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({
        "plugin_configs": [{"id": "1", "plugins": {"response-rewrite": {"headers": {"set": {"X-From": "config"}}}}}],
        "services": [{"id": "1", "name": "svc", "upstream": upstream(&[app.address()]), "plugins": {
            "ip-restriction": {"blacklist": ["127.0.0.1"]}, "response-rewrite": {"headers": {"set": {"X-From": "service"}}}}}],
        "routes": [
            {"id": "1", "uri": "/off", "service_id": "1", "plugin_config_id": "1", "plugins": {"ip-restriction": {"blacklist": ["127.0.0.1"], "_meta": {"disable": true}}}},
            {"id": "2", "uri": "/some", "service_id": "1", "plugins": {"ip-restriction": {"blacklist": ["127.0.0.1"], "_meta": {"filter": [["arg_x", "==", "1"]]}}}},
            {"id": "3", "uri": "/words", "service_id": "1", "plugins": {"ip-restriction": {"blacklist": ["127.0.0.1"], "_meta": {"error_response": {"why": "because"}}}}},
            {"id": "4", "uri": "/order", "service_id": "1", "plugins": {
                "ip-restriction": {"blacklist": ["127.0.0.1"]},
                "fault-injection": {"abort": {"http_status": 418}, "_meta": {"disable": true}},
                "mocking": {"response_example": "first", "_meta": {"priority": 1}}}},
        ],
    }))
    .await;
    let off = alone.get("/off");
    assert_eq!((off.status, off.header("x-from")), (200, Some("config")));
    assert_eq!((alone.get("/some?x=1").status, alone.get("/some").status), (403, 200));
    assert_eq!(alone.get("/some").header("x-from"), Some("service"));
    let words = alone.get("/words");
    assert_eq!((words.status, &words.json()), (403, &json!({"why": "because"})));
    assert_eq!(alone.get("/order").status, 403, "mocking was moved behind");
}

#[tokio::test]
async fn forward_auth_asks_a_service_first() {
    let app = HttpApp::start("a");
    let service = Raw::start(|_, mut client| {
        let lines = client.read_request();
        let has = |line: &str| lines.iter().any(|one| one.eq_ignore_ascii_case(line));
        let body = if lines[0].starts_with("POST") {
            String::from_utf8(client.bytes(4)).unwrap()
        } else {
            String::new()
        };
        let good = has("x-token: good")
            && has("x-forwarded-uri: /p?q=1")
            && has("x-forwarded-method: POST")
            && has("x-extra: 1")
            && body == "body";
        client.send(if good {
            "HTTP/1.1 200 OK\r\nX-User: jack\r\nContent-Length: 0\r\n\r\n"
        } else {
            "HTTP/1.1 401 Unauthorized\r\nX-Why: bad token\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\nnope"
        });
    });
    let config = |uri: String, more: Value| {
        let mut config = json!({"uri": uri, "request_method": "POST", "request_headers": ["X-Token"], "extra_headers": {"X-Extra": "$arg_q"},
            "upstream_headers": ["X-User"], "client_headers": ["X-Why"]});
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"forward-auth": config})
    };
    let alone = with(&app, config(format!("http://{}/auth", service.address), json!({}))).await;
    let post = |alone: &Alone, lines: &str| {
        alone.send(&format!("POST /p?q=1 HTTP/1.1\r\nHost: a.test\r\nContent-Length: 4\r\n{lines}\r\nbody"))
    };
    let good = post(&alone, "X-Token: good\r\nX-User: root\r\n");
    assert_eq!(
        (good.status, good.seen_all("x-user"), &good.json()["body"]),
        (200, vec!["jack".to_owned()], &json!("body"))
    );
    let bad = post(&alone, "X-Token: bad\r\n");
    assert_eq!(
        (bad.status, bad.text().as_str(), bad.header("x-why"), app.requests()),
        (401, "nope", Some("bad token"), 1)
    );
    let dead = format!("http://{}/", dead_address());
    let closed = with(&app, config(dead.clone(), json!({"status_on_error": 503}))).await;
    assert_eq!(post(&closed, "").status, 503);
    let open = with(&app, config(dead, json!({"allow_degradation": true}))).await;
    assert_eq!(post(&open, "").json()["body"], "body");
    let small =
        with(&app, config(format!("http://{}/auth", service.address), json!({"max_req_body_size": 3}))).await;
    assert_eq!(post(&small, "").status, 413);
}

#[tokio::test]
async fn tokens_and_signatures_tell_the_consumer() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({
        "consumers": [{"username": "jack", "plugins": {
            "jwt-auth": {"key": "user-key", "secret": "my-secret-key"}, "hmac-auth": {"key_id": "john-key", "secret_key": "john-secret-key"}}}],
        "routes": [
            {"id": "1", "uri": "/jwt", "plugins": {"jwt-auth": {"hide_credentials": true}}, "upstream": upstream(&[app.address()])},
            {"id": "2", "uri": "/hmac", "plugins": {"hmac-auth": {"clock_skew": 4_000_000_000_u64, "validate_request_body": true}}, "upstream": upstream(&[app.address()])},
        ],
    }))
    .await;
    let sign = |algorithm, key: &str, text: &str| {
        ring::hmac::sign(&ring::hmac::Key::new(algorithm, key.as_bytes()), text.as_bytes()).as_ref().to_vec()
    };
    use base64::Engine;
    use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
    let token = |claims: &str| {
        let text = format!(
            "{}.{}",
            URL_SAFE_NO_PAD.encode("{\"alg\":\"HS256\",\"typ\":\"JWT\"}"),
            URL_SAFE_NO_PAD.encode(claims)
        );
        format!("{text}.{}", URL_SAFE_NO_PAD.encode(sign(ring::hmac::HMAC_SHA256, "my-secret-key", &text)))
    };
    let good = token("{\"key\":\"user-key\",\"exp\":4102444800}");
    let answer = alone.get_with("/jwt", &format!("Authorization: Bearer {good}"));
    assert_eq!(
        (answer.status, answer.seen("x-consumer-username").as_deref(), answer.seen("authorization")),
        (200, Some("jack"), None)
    );
    let by_query = alone.get(&format!("/jwt?a=1&jwt={good}"));
    assert_eq!(by_query.json()["path"], "/jwt?a=1");
    let by_cookie = alone.get_with("/jwt", &format!("Cookie: a=1; jwt={good}; b=2"));
    assert_eq!(by_cookie.seen("cookie").unwrap(), "a=1; b=2");
    for (token, why) in [
        (String::new(), "JWT token invalid"),
        (token("{\"key\":\"user-key\",\"exp\":1}"), "failed to verify jwt"),
        (token("{\"key\":\"other\"}"), "Invalid user key in JWT token"),
        (format!("{good}x"), "failed to verify jwt"),
        (
            good.replacen("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "eyJhbGciOiJub25lIn0", 1),
            "failed to verify jwt",
        ),
    ] {
        let refused = alone.get_with("/jwt", &format!("Authorization: {token}"));
        assert_eq!((refused.status, &refused.json()), (401, &json!({"message": why})), "{token}");
    }
    assert_eq!(alone.get("/jwt").json(), json!({"message": "Missing JWT token in request"}));

    let date = "Tue, 19 Jan 2021 11:33:20 GMT";
    let text = format!("john-key\nPOST /hmac\ndate: {date}\n");
    let signature = STANDARD.encode(sign(ring::hmac::HMAC_SHA256, "john-secret-key", &text));
    let post = |path: &str, digest: &str, signature: &str| {
        alone.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: a.test\r\nDate: {date}\r\nDigest: {digest}\r\nContent-Length: 5\r\n\
             Authorization: Signature keyId=\"john-key\",algorithm=\"hmac-sha256\",headers=\"@request-target date\",signature=\"{signature}\"\r\n\r\nhello"
        ))
    };
    let digest = "SHA-256=LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    let answer = post("/hmac", digest, &signature);
    assert_eq!((answer.status, &answer.json()["body"]), (200, &json!("hello")));
    assert_eq!(post("/hmac?x=1", digest, &signature).status, 401, "another target");
    assert_eq!(post("/hmac", "SHA-256=AAAA", &signature).status, 401, "another body");
    assert_eq!(post("/hmac", digest, "AAAA").status, 401);
}

#[tokio::test]
async fn a_workflow_does_what_its_first_rule_says() {
    let app = HttpApp::start("a");
    let alone = with(&app, json!({"workflow": {"rules": [
        {"case": [["uri", "==", "/no"]], "actions": [["return", {"code": 403}]]},
        {"case": [["uri", "==", "/few"]], "actions": [["limit-count", {"count": 1, "time_window": 3600, "rejected_code": 429}]]},
    ]}}))
    .await;
    let refused = alone.get("/no");
    assert_eq!((refused.status, &refused.json()), (403, &json!({"error_msg": "rejected by workflow"})));
    let statuses = [alone.get("/few").status, alone.get("/few").status, alone.get("/").status];
    assert_eq!(statuses, [200, 429, 200]);
}

#[tokio::test]
async fn a_mirror_gets_copies_and_holds_nobody_up() {
    let app = HttpApp::start("a");
    let (told, copies) = std::sync::mpsc::channel();
    let mirror = Raw::start(move |_, mut client| {
        let head = client.read_request();
        let length = head
            .iter()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        told.send((head[0].clone(), client.bytes(length.unwrap_or(0)))).unwrap();
        // It never answers.
        client.rest();
    });
    let alone = with(&app, json!({"proxy-mirror": {"host": format!("http://{}", mirror.address), "path": "/copy", "path_concat_mode": "prefix"}})).await;
    assert_eq!(alone.get("/x?y=1").status, 200);
    assert_eq!(copies.recv().unwrap(), ("GET /copy/x?y=1 HTTP/1.1".to_owned(), Vec::new()));
    let post = alone.send("POST /p HTTP/1.1\r\nHost: a.test\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!((post.status, &post.json()["body"]), (200, &json!("hello")));
    assert_eq!(copies.recv().unwrap(), ("POST /copy/p HTTP/1.1".to_owned(), b"hello".to_vec()));
    let dead = with(&app, json!({"proxy-mirror": {"host": format!("http://{}", dead_address())}})).await;
    assert_eq!(dead.get("/").status, 200);
}

#[tokio::test]
async fn loggers_write_lines_and_send_batches() {
    let app = HttpApp::start("a");
    let dir = towpath_testkit::temp_dir();
    let file = dir.path().join("log");
    let (told, batches) = std::sync::mpsc::channel();
    let collector = Raw::start(move |_, mut client| {
        let head = client.read_request();
        let length = head
            .iter()
            .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        told.send(serde_json::from_slice::<Value>(&client.bytes(length.unwrap())).unwrap()).unwrap();
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let alone = with(&app, json!({
        "file-logger": {"path": file, "log_format": {"host": "$host", "code": "$status", "up": "$upstream_addr", "constant": 1}, "match": [["status", "==", 200]]},
        "http-logger": {"uri": format!("http://{}/in", collector.address), "batch_max_size": 2},
    }))
    .await;
    assert_eq!(alone.get("/a?x=1").status, 200);
    app.set_status(404);
    assert_eq!(alone.get("/b").status, 404);
    let batch = batches.recv().unwrap();
    assert_eq!(
        (batch.as_array().unwrap().len(), &batch[0]["request"]["uri"], &batch[1]["response"]["status"]),
        (2, &json!("/a?x=1"), &json!(404))
    );
    assert_eq!(
        (&batch[0]["route_id"], &batch[0]["request"]["querystring"]),
        (&json!("1"), &json!({"x": "1"}))
    );
    until("the line is there", || std::fs::read_to_string(&file).is_ok_and(|text| text.ends_with('\n')));
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.lines().count(), 1, "{lines}");
    let line: Value = serde_json::from_str(&lines).unwrap();
    assert_eq!(
        line,
        json!({"host": "a.test", "code": "200", "up": app.address().to_string(), "constant": 1, "route_id": "1", "service_id": ""})
    );
}

#[tokio::test]
async fn gzip_compresses_what_clients_take_and_delays_no_event() {
    use std::io::Read;
    let body = "hello ".repeat(1000);
    let text: &'static str = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nETag: \"1\"\r\nContent-Length: {}\r\n\r\n{body}", body.len()).leak();
    let app = Raw::saying(text);
    let gzip =
        json!({"gzip": {"types": ["text/html", "text/event-stream"], "vary": true, "min_length": 100}});
    let alone = Alone::start(json!({"routes": [route(app.address, gzip.clone())]})).await;
    let unpack = |bytes: &[u8]| {
        let mut text = String::new();
        flate2::read::MultiGzDecoder::new(bytes).read_to_string(&mut text).unwrap();
        text
    };
    let packed = alone.get_with("/", "Accept-Encoding: br, gzip");
    assert_eq!(
        (packed.header("content-encoding"), packed.header("etag"), packed.header("content-length")),
        (Some("gzip"), Some("W/\"1\""), None)
    );
    assert!(packed.body.len() < 200);
    assert_eq!(unpack(&packed.body), body);
    let plain = alone.get("/");
    assert_eq!(
        (plain.header("content-encoding"), plain.header("vary"), plain.text()),
        (None, Some("Accept-Encoding"), body)
    );

    let (go, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let events = Raw::start(move |_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n");
        let _ = wait.lock().unwrap().recv();
        client.send("0\r\n\r\n");
    });
    let alone = Alone::start(json!({"routes": [route(events.address, gzip)]})).await;
    let mut client = alone.client();
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_eq!(client.head().header("content-encoding"), Some("gzip"));
    let (mut packed, mut seen) = (Vec::new(), String::new());
    while seen != "data: 1\n\n" {
        let size = usize::from_str_radix(&client.line(), 16).unwrap();
        packed.extend(client.bytes(size));
        client.line();
        let mut bytes = [0; 64];
        seen.clear();
        let mut decoder = flate2::read::GzDecoder::new(packed.as_slice());
        while let Ok(read @ 1..) = decoder.read(&mut bytes) {
            seen.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }
    go.send(()).unwrap();
}

#[tokio::test]
async fn parameters_of_paths_and_forwarding_headers_can_be_used() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({"routes": [{"id": "1", "uri": "/user/:name/*", "upstream": upstream(&[app.address()]), "plugins": {
        "proxy-rewrite": {"uri": "/of/$uri_param_name", "headers": {"set": {"X-Forwarded-Host": "outside.test", "X-Real-IP": "$remote_addr"}}},
    }}]}))
    .await;
    let answer = alone.get_with("/user/jo%20e/x", "X-Real-IP: 9.9.9.9");
    assert_eq!(answer.json()["path"], "/of/jo%20e");
    assert_eq!(answer.seen_all("x-forwarded-host"), ["outside.test"]);
    assert_eq!(answer.seen_all("x-real-ip"), ["127.0.0.1"]);
    assert_eq!(answer.seen_all("x-forwarded-for"), ["127.0.0.1"]);
}

/// A global rule changes what a route's conditions see. The route was not the request's when that arrived, so that its key
/// was not asked for, and does not become the request's afterwards.
#[tokio::test]
async fn what_global_rules_change_leads_past_no_routes_plugins() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({
        "global_rules": [{"id": "1", "plugins": {
            "real-ip": {"source": "http_x_real", "trusted_addresses": ["127.0.0.0/8"]},
            "proxy-rewrite": {"headers": {"set": {"X-Inner": "yes"}}},
        }}],
        "consumers": [{"username": "jack", "plugins": {"key-auth": {"key": "k"}}}],
        "routes": [
            {"id": "1", "uri": "/by-client", "remote_addr": "10.9.8.7", "plugins": {"key-auth": {}}, "upstream": upstream(&[app.address()])},
            {"id": "2", "uri": "/by-header", "vars": [["http_x_inner", "==", "yes"]], "plugins": {"key-auth": {}}, "upstream": upstream(&[app.address()])},
            {"id": "3", "uri": "/open", "upstream": upstream(&[app.address()])},
        ],
    }))
    .await;
    assert_eq!(alone.get_with("/by-client", "X-Real: 10.9.8.7").status, 404);
    assert_eq!(alone.get("/by-header").status, 404);
    assert_eq!(alone.get_with("/by-header", "X-Inner: yes").status, 401);
    assert_eq!(alone.get_with("/by-header", "X-Inner: yes\r\napikey: k").status, 200);
    assert_eq!(alone.get("/open").status, 200);
    assert_eq!(app.requests(), 2);
}

/// While a plugin waits, the route becomes another one: the request stays with what was found for it.
#[tokio::test]
async fn an_edit_while_a_plugin_waits_changes_nothing_for_the_request() {
    let (old, new, auth) = (HttpApp::start("old"), HttpApp::start("new"), HttpApp::start("auth"));
    auth.set_delay(Duration::from_secs(2));
    let asks = json!({"forward-auth": {"uri": format!("http://{}/", auth.address()), "timeout": 60_000}});
    let named = |id: &str, app: &HttpApp| {
        let mut one = upstream(&[app.address()]);
        one["id"] = json!(id);
        one
    };
    let resources = |route: Value, mark: u32| {
        let marker = json!({"id": "m", "uri": "/marker", "plugins": {"mocking": {"response_status": mark, "response_example": "m"}}});
        json!({"routes": [route, marker], "upstreams": [named("old", &old), named("new", &new)]})
    };
    let before = json!({"id": "1", "uri": "/*", "plugins": asks, "upstream_id": "old"});
    let alone = Alone::start(resources(before, 200)).await;
    let mut waiting = alone.client();
    waiting.send("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    until("it waits", || auth.in_flight() == 1);
    let after = json!({"id": "1", "uri": "/*", "plugins": {"key-auth": {}}, "upstream_id": "new"});
    alone.write(resources(after, 201));
    until("the edit is there", || alone.get("/marker").status == 201);
    assert_eq!(waiting.answer().status, 200);
    assert_eq!((old.requests(), new.requests()), (1, 0));
    assert_eq!(alone.get("/x").status, 401);
}

/// Conditions of plugins see the path as the choice of the route does: no spelling slips past them.
#[tokio::test]
async fn no_spelling_of_a_path_slips_past_plugins() {
    let app = HttpApp::start("a");
    let refuse = json!({"response_status": 418, "response_example": "no", "_meta": {"filter": [["uri", "~~", "^/admin"]]}});
    let alone = Alone::start(json!({"routes": [
        {"id": "1", "uri": "/*", "plugins": {"mocking": refuse}, "upstream": upstream(&[app.address()])},
        {"id": "2", "uri": "/r/*", "plugins": {"redirect": {"regex_uri": ["^/r/old/(.*)/$", "/new/$1"]}}, "upstream": upstream(&[app.address()])},
        {"id": "3", "uri": "/w/*", "plugins": {"proxy-rewrite": {"regex_uri": ["^/w/secret(.*)", "/public$1"]}}, "upstream": upstream(&[app.address()])},
        {"id": "4", "uri": "/s/*", "plugins": {"redirect": {"uri": "$uri/"}}},
    ]}))
    .await;
    for path in ["/admin", "/%61dmin", "/x/../admin", "//admin", "/x/%2e%2e/%61dmin/y"] {
        assert_eq!(alone.get(path).status, 418, "{path}");
    }
    assert_eq!(alone.get("/other%20one").json()["path"], "/other%20one", "what goes out is the client's own");
    for path in ["/r/old/a%20b/", "/r/%6fld/a%20b/", "/r/x/../old/a%20b/"] {
        assert_eq!(alone.get(path).header("location"), Some("/new/a%20b"), "{path}");
    }
    for path in ["/w/secret/a%3Fb?q=1", "/w/%73ecret/a%3Fb?q=1", "/w//secret/a%3fb?q=1"] {
        assert_eq!(alone.get(path).json()["path"], "/public/a%3Fb?q=1", "{path}");
    }
    assert_eq!(alone.get("/s/%5Ce.test/%3F%23").header("location"), Some("/s/%5Ce.test/%3F%23/"));
}

/// What is hidden stays hidden when the path becomes another one.
#[tokio::test]
async fn a_hidden_key_is_not_brought_back_by_a_rewrite() {
    let app = HttpApp::start("a");
    let auth = json!({"hide_credentials": true});
    let alone = Alone::start(json!({
        "consumers": [{"username": "jack", "plugins": {"key-auth": {"key": "k"}}}],
        "routes": [
            {"id": "1", "uri": "/own", "plugins": {"key-auth": auth, "proxy-rewrite": {"uri": "/new?own=1"}}, "upstream": upstream(&[app.address()])},
            {"id": "2", "uri": "/plain", "plugins": {"key-auth": auth, "proxy-rewrite": {"uri": "/new"}}, "upstream": upstream(&[app.address()])},
            {"id": "3", "uri": "/args", "plugins": {"key-auth": auth, "proxy-rewrite": {"uri": "/new?$args"}}, "upstream": upstream(&[app.address()])},
        ],
    }))
    .await;
    for (asked, sent) in [
        ("/own?apikey=k", "/new?own=1"),
        ("/own?a=1&apikey=k&b=2", "/new?own=1&a=1&b=2"),
        ("/plain?apikey=k", "/new"),
        ("/plain?apikey=k&a=1", "/new?a=1"),
        ("/args?apikey=k&a=1", "/new?a=1&a=1"),
    ] {
        let answer = alone.get(asked);
        assert_eq!((answer.status, &answer.json()["path"]), (200, &json!(sent)), "{asked}");
    }
}

/// The template says where the query begins, not what is filled in.
#[tokio::test]
async fn a_question_mark_in_a_variable_cuts_no_path() {
    let app = HttpApp::start("a");
    let alone = with(&app, json!({"proxy-rewrite": {"uri": "/files/$arg_name/end?v=$arg_v"}})).await;
    let sent = |path: &str| alone.get(path).json()["path"].clone();
    assert_eq!(sent("/?name=a%3Fb"), "/files/a%3Fb/end?v=&name=a%3Fb");
    assert_eq!(sent("/?name=x&v=1%3f2"), "/files/x/end?v=1%3F2&name=x&v=1%3f2");
}

/// A client's `Connection` speaks of the client's own headers, not of what plugins set.
#[tokio::test]
async fn a_client_cannot_take_out_what_plugins_set() {
    let app = HttpApp::start("a");
    let alone = Alone::start(json!({
        "consumers": [{"username": "jack", "plugins": {"key-auth": {"key": "k"}}}],
        "routes": [{"id": "1", "uri": "/*", "upstream": upstream(&[app.address()]), "plugins": {
            "key-auth": {}, "proxy-rewrite": {"headers": {"set": {"X-Set": "1", "X-Forwarded-For": "$remote_addr"}}}}}],
    }))
    .await;
    let answer = alone.get_with(
        "/",
        "apikey: k\r\nConnection: X-Consumer-Username, X-Set, X-Forwarded-For, X-Hop\r\nX-Hop: 1\r\nX-Set: 0",
    );
    assert_eq!(answer.seen("x-consumer-username").as_deref(), Some("jack"));
    assert_eq!(answer.seen_all("x-set"), ["1"]);
    assert_eq!(answer.seen_all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(answer.seen("x-hop"), None);
}

/// Servers that read `_` as `-`, or take trailers for headers, believe no client either.
#[tokio::test]
async fn a_client_cannot_imitate_what_plugins_set() {
    let raw = Raw::start(|_, mut client| {
        let mut lines = client.read_request();
        while lines.last().is_none_or(|line| !line.is_empty()) || !lines.iter().any(|line| line == "0") {
            lines.push(client.line());
        }
        let body = lines.join("|").to_ascii_lowercase();
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        client.read_request();
    });
    let alone = Alone::start(json!({
        "consumers": [{"username": "jack", "plugins": {"key-auth": {"key": "k"}}}],
        "routes": [
            {"id": "1", "uri": "/auth", "upstream": upstream(&[raw.address]), "plugins": {
                "key-auth": {}, "proxy-rewrite": {"headers": {"set": {"X-My-Role": "user"}, "remove": ["X-In-Ner"]}}}},
            {"id": "2", "uri": "/open", "upstream": upstream(&[raw.address])},
        ],
    }))
    .await;
    for path in ["/auth", "/open"] {
        let named = "X-Consumer-Username: root\r\nX_Consumer_Username: root\r\nX-Consumer_Custom-Id: root\r\nX-Credential-Identifier: root\r\n";
        let more =
            if path == "/auth" { "X-My-Role: root\r\nX_My-Role: root\r\nX_In_Ner: root\r\n" } else { "" };
        let text = alone
            .send(&format!(
                "POST {path} HTTP/1.1\r\nHost: a.test\r\napikey: k\r\nX_Other: 1\r\n{named}{more}Transfer-Encoding: chunked\r\n\r\n\
                 2\r\nhi\r\n0\r\nX-Sum: 1\r\n{named}{more}\r\n"
            ))
            .text();
        assert!(!text.contains("root"), "{text}");
        assert!(text.contains("|x_other: 1|") && text.ends_with("|0|x-sum: 1|"), "{text}");
        assert_eq!(text.contains("|x-consumer-username: jack|"), path == "/auth", "{text}");
        assert_eq!(text.contains("|x-my-role: user|"), path == "/auth", "{text}");
    }
}

/// Where nobody can be asked who the client is, its own word does not stand in for the answer.
#[tokio::test]
async fn a_degraded_forward_auth_passes_no_word_of_the_client() {
    let app = HttpApp::start("a");
    let alone = with(
        &app,
        json!({"forward-auth": {"uri": format!("http://{}/", dead_address()), "allow_degradation": true, "upstream_headers": ["X-User-Name"]}}),
    )
    .await;
    let answer = alone.get_with("/", "X-User-Name: root\r\nX_User_Name: root\r\nX-Own: 1");
    assert_eq!((answer.status, answer.seen("x-own").as_deref()), (200, Some("1")));
    assert_eq!((answer.seen("x-user-name"), answer.seen("x_user_name")), (None, None));
}

/// A place that takes connections and says nothing holds only so many copies; requests go on without further ones.
#[tokio::test]
async fn a_silent_mirror_holds_only_so_many_copies() {
    let app = HttpApp::start("a");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let host = format!("http://{}", silent.local_addr().unwrap());
    let alone = with(&app, json!({"proxy-mirror": {"host": host}})).await;
    assert_eq!(alone.metric("towpath_gateway_plugin_log_dropped_total"), 0.0);
    let mut client = alone.client();
    for _ in 0..300 {
        assert_eq!(client.request("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    }
    let dropped = alone.metric("towpath_gateway_mirror_dropped_total");
    assert!((1.0..=44.0).contains(&dropped), "{dropped}");
}
