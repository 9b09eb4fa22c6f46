//! Bodies stream both ways, as fast as the slower side.

use crate::support::{Client, PATIENCE, Raw, Rig, World};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use towpath_testkit::{HttpApp, wait};

async fn rig(address: std::net::SocketAddr) -> Rig {
    Rig::start(World::new().app("shop", json!({})).instance("shop", address)).await
}

#[tokio::test]
async fn bodies_of_all_sizes_come_back_whole() {
    let app = HttpApp::start("a");
    let rig = rig(app.address()).await;
    let mut client = rig.client();
    for len in [0, 1, 1024, 65_536, 3_000_000] {
        let sent: Vec<u8> = (0..len).map(|n: usize| (n * 7 % 251) as u8).collect();
        let mut stream = client.stream.try_clone().unwrap();
        let head = format!("POST /body HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: {len}\r\n\r\n");
        let body = sent.clone();
        let writer = std::thread::spawn(move || {
            use std::io::Write;
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&body).unwrap();
        });
        assert_eq!(client.answer().body, sent, "{len}");
        writer.join().unwrap();
    }
    client.send(
        "POST /body HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n",
    );
    client.send("2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n");
    assert_eq!(client.answer().text(), "abcde");
    assert_eq!(
        client.request("GET /bytes/200000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").body.len(),
        200_000
    );
    assert_eq!(app.connections(), 1);
}

#[tokio::test]
async fn events_arrive_one_by_one_and_not_when_all_are_there() {
    let app = HttpApp::start("a");
    let rig = rig(app.address()).await;
    let mut client = rig.client();
    client.send("GET /sse/3/1000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let mut seen = Vec::new();
    for _ in 0..3 {
        let size = usize::from_str_radix(&client.line(), 16).unwrap();
        client.bytes(size + 2);
        seen.push(Instant::now());
    }
    assert!(seen[2] - seen[0] >= Duration::from_secs(1), "they came together");
}

/// An instance that counts the body bytes it reads, and reads only while it may.
struct Reader {
    raw: Raw,
    bytes: Arc<AtomicUsize>,
    may_read: Arc<AtomicBool>,
}

fn slow_reader() -> Reader {
    let (bytes, may_read) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, gate) = (bytes.clone(), may_read.clone());
    let raw = Raw::start(move |_, mut client| {
        client.read_request();
        wait::block_until(PATIENCE, "permission to read", || gate.load(Ordering::SeqCst).then_some(()));
        while count.load(Ordering::SeqCst) < 20 << 20 {
            count.fetch_add(client.bytes(1 << 16).len(), Ordering::SeqCst);
        }
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    Reader { raw, bytes, may_read }
}

#[tokio::test]
async fn an_upload_stops_when_the_instance_does_not_read() {
    let reader = slow_reader();
    let rig = rig(reader.raw.address).await;
    let mut client = rig.client();
    client.send(format!("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: {}\r\n\r\n", 20 << 20));
    let sent = Arc::new(AtomicUsize::new(0));
    let (mut stream, count) = (client.stream.try_clone().unwrap(), sent.clone());
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        for _ in 0..20 * 16 {
            stream.write_all(&[7; 1 << 16]).unwrap();
            count.fetch_add(1 << 16, Ordering::SeqCst);
        }
    });
    let held = settled(&sent);
    assert!(held < 16 << 20, "{held} bytes went somewhere although nobody reads");
    reader.may_read.store(true, Ordering::SeqCst);
    assert_eq!(client.answer().status, 200);
    writer.join().unwrap();
    assert_eq!(reader.bytes.load(Ordering::SeqCst), 20 << 20);
}

#[tokio::test]
async fn a_download_stops_when_the_client_does_not_read() {
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    let raw = Raw::start(move |_, mut client| {
        client.read_request();
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 20 << 20));
        for _ in 0..20 * 16 {
            client.send([7; 1 << 16]);
            count.fetch_add(1 << 16, Ordering::SeqCst);
        }
        client.read_request();
    });
    let rig = rig(raw.address).await;
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    let held = settled(&sent);
    assert!(held < 16 << 20, "{held} bytes went somewhere although nobody reads");
    assert_eq!(client.answer().body.len(), 20 << 20);
}

/// The value once it has not changed for a while.
fn settled(value: &AtomicUsize) -> usize {
    let mut last = (0, Instant::now());
    wait::block_until(PATIENCE, "a value that stays", || {
        let now = value.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.1.elapsed() > Duration::from_millis(300)).then_some(last.0)
    })
}

#[tokio::test]
async fn trailers_reach_clients_that_want_them() {
    let raw = Raw::start(|_, mut client| {
        let head = client.read_request();
        let wants = head.iter().any(|line| line == "te: trailers");
        assert!(wants, "{head:?}");
        client.send("HTTP/1.1 200 OK\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 42\r\n\r\n");
        client.read_request();
    });
    let rig = rig(raw.address).await;
    let answer = rig
        .client()
        .request("GET / HTTP/1.1\r\nHost: shop.localhost\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
    assert_eq!((answer.text().as_str(), answer.header("trailer:x-sum")), ("hi", Some("42")));
}

#[tokio::test]
async fn trailers_of_requests_reach_the_instance() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line: &String| !line.is_empty())
            || !lines.iter().any(|line| line == "0")
        {
            lines.push(client.line());
        }
        let body = lines.join("|");
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        client.read_request();
    });
    let rig = rig(raw.address).await;
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nX-Sum: 42\r\nX-Forwarded-For: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\n\
        X-Request-Id: x\r\nTowpath-Lane: blue\r\nX_Real_IP: 9.9.9.9\r\n\r\n");
    assert_eq!(
        client.answer().text(),
        "2|hi|0|x-sum: 42|",
        "what has a meaning in heads has none in trailers"
    );
}

#[tokio::test]
async fn a_body_that_waits_for_100_is_sent_when_the_instance_says_so() {
    let asked = Arc::new(AtomicBool::new(false));
    let flag = asked.clone();
    let raw = Raw::start(move |_, mut client| {
        let head = client.read_request();
        assert!(head.iter().any(|line| line == "expect: 100-continue"), "{head:?}");
        wait::block_until(PATIENCE, "permission to go on", || flag.load(Ordering::SeqCst).then_some(()));
        client.send("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(client.bytes(3), b"abc");
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        client.read_request();
    });
    let rig = Rig::start_with(
        World::new().app("shop", json!({})).instance("shop", raw.address),
        |settings| settings.timeouts.expect_ms = 60_000,
        None,
    )
    .await;
    let mut client = rig.client();
    client
        .send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    client.stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    assert!(
        std::io::Read::read(&mut client.stream, &mut [0; 1]).is_err(),
        "100 came before the instance wanted the body"
    );
    client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    asked.store(true, Ordering::SeqCst);
    assert_eq!(client.answer().status, 100);
    client.send("abc");
    assert_eq!(client.answer().text(), "ok");
}

#[tokio::test]
async fn an_instance_may_refuse_a_body_before_it_is_sent_and_an_old_one_gets_it_anyway() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n");
        client.read_request();
    });
    let refusing = rig(raw.address).await;
    let mut client = refusing.client();
    client
        .send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 413);

    let app = HttpApp::start("a");
    let old = rig(app.address()).await;
    let mut client = old.client();
    client
        .send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("abc");
    assert_eq!(client.answer().json()["body"], "abc");

    let silent = Raw::start(|_, mut client| {
        client.read_request();
        let body = client.bytes(3);
        client.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}",
            String::from_utf8(body).unwrap()
        ));
        client.read_request();
    });
    let silent = rig(silent.address).await;
    let mut client = silent.client();
    client
        .send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100, "after a second without a word from the instance");
    client.send("abc");
    assert_eq!(client.answer().text(), "abc");
}

#[tokio::test]
async fn an_answer_may_come_before_the_request_is_read() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        client.rest();
    });
    let rig = rig(raw.address).await;
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 100000\r\n\r\nsome");
    let answer = client.answer();
    assert_eq!((answer.status, answer.text().as_str()), (403, "no"));
}

#[tokio::test]
async fn a_response_that_breaks_off_is_not_passed_on_as_a_whole_one() {
    let raw = Raw::saying("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789");
    let sized = self::rig(raw.address).await;
    let mut client = sized.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("100")));
    assert_eq!(client.rest(), b"0123456789", "the connection ends with what there was");
    let raw = Raw::saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel");
    let chunked = self::rig(raw.address).await;
    let mut client = chunked.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    assert!(!client.rest().ends_with(b"0\r\n\r\n"));
}

#[tokio::test]
async fn a_client_that_goes_away_ends_the_instances_work_and_is_no_failure() {
    let gone = Arc::new(AtomicBool::new(false));
    let flag = gone.clone();
    let raw = Raw::start(move |_, mut client: Client| {
        client.read_request();
        if client.rest().is_empty() {
            flag.store(true, Ordering::SeqCst);
        }
    });
    let world =
        World::new().app("shop", json!({"ejection": {"consecutive": 1}})).instance("shop", raw.address);
    let rig = Rig::start(world).await;
    let mut client = rig.client();
    client.send("GET / HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    wait::block_until(PATIENCE, "the request at the instance", || (raw.connections() > 0).then_some(()));
    // One that ends its side at once may only have nothing more to say (ADR 0038).
    tokio::time::sleep(Duration::from_millis(1200)).await;
    drop(client);
    wait::block_until(PATIENCE, "the instance's connection closed", || {
        gone.load(Ordering::SeqCst).then_some(())
    });
    wait::block_until(PATIENCE, "the count", || {
        (rig.metric("towpath_gateway_clients_gone_total") >= 1.0).then_some(())
    });
    let in_flight = format!(
        "towpath_endpoint_in_flight{{app=\"default/default/shop\",lane=\"base\",instance=\"{}\"}}",
        crate::support::instance_id(1)
    );
    assert!(rig.metric(&in_flight) == 0.0);
    assert!(rig.metric("towpath_gateway_ejections_total") == 0.0);
}

/// An upload of five pieces that takes three times as long as an instance may take for its answer.
async fn slow_upload(rig: &Rig) -> crate::support::Answer {
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_millis(900)).await;
        client.send("2\r\nhi\r\n");
    }
    client.send("0\r\n\r\n");
    client.answer()
}

#[tokio::test]
async fn a_slow_upload_is_neither_an_http_2_instances_delay_nor_any_instances_latency() {
    for protocol in ["http1", "h2c"] {
        let app = HttpApp::start("a");
        let spec = json!({"timeouts": {"response": "1500ms", "idle": "30s"}});
        let world = World::new().app("shop", spec);
        let rig = Rig::start(world.instance_with("shop", app.address(), json!({"protocol": protocol}))).await;
        let answer = slow_upload(&rig).await;
        assert_eq!((answer.status, &answer.json()["body"]), (200, &json!("hihihihihi")), "{protocol}");
        let dir = rig.stop().await;
        let log = std::fs::read_to_string(dir.path().join("access.log")).unwrap();
        let line: serde_json::Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        assert!(line["us"].as_u64().unwrap() > 1_000_000, "{log}");
        assert!(line["upstream_us"].as_u64().unwrap() < 500_000, "{log}");
    }
}

#[tokio::test]
async fn a_client_that_stalls_its_upload_to_an_http_2_instance_gets_408_and_the_instance_no_blame() {
    let app = HttpApp::start("a");
    let spec = json!({"timeouts": {"response": "5s", "idle": "200ms"}, "ejection": {"consecutive": 1}});
    let world =
        World::new().app("shop", spec).instance_with("shop", app.address(), json!({"protocol": "h2c"}));
    let rig = Rig::start(world).await;
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 10\r\n\r\nabc");
    assert_eq!(client.answer().status, 408);
    assert!(rig.metric("towpath_gateway_ejections_total") == 0.0);
}

#[tokio::test]
async fn an_early_answer_does_not_reset_the_connection_under_the_upload() {
    let raw = Raw::start(|_, mut client| {
        client.read_request();
        client.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
        client.rest();
    });
    let world = World::new().app("shop", json!({})).instance("shop", raw.address);
    let rig = Rig::start_with(world, |settings| settings.timeouts.linger = PATIENCE, None).await;
    let mut client = rig.client();
    client.send("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 1000000\r\n\r\nsome");
    assert_eq!(client.answer().status, 403);
    assert!(client.is_closed());
    for _ in 0..100 {
        client.send([7; 1000]);
    }
}
