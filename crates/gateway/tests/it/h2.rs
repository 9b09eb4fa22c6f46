//! HTTP/2 on both sides, and TLS.

use crate::support::{Raw, Rig, World, dead_address};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, Version};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use towpath_gateway::TlsSettings;
use towpath_testkit::{HttpApp, tls::Authority};

type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

fn full(text: &'static str) -> Body {
    Full::new(Bytes::from_static(text.as_bytes())).boxed()
}

async fn connect(address: SocketAddr) -> SendRequest<Body> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (send, conn) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(conn);
    send
}

fn get(path: &str) -> Request<Body> {
    Request::get(format!("http://shop.localhost{path}")).body(full("")).unwrap()
}

async fn read(response: Response<Incoming>) -> (Bytes, Option<HeaderMap>) {
    let body = response.into_body().collect().await.unwrap();
    let trailers = body.trailers().cloned();
    (body.to_bytes(), trailers)
}

async fn json_of(response: Response<Incoming>) -> Value {
    serde_json::from_slice(&read(response).await.0).unwrap()
}

fn world(app: SocketAddr, protocol: &str) -> World {
    World::new().app("shop", json!({})).instance_with("shop", app, json!({"protocol": protocol}))
}

#[tokio::test]
async fn both_versions_are_spoken_on_one_port_and_towards_both_kinds_of_instances() {
    for (protocol, version) in [("http1", "HTTP/1.1"), ("h2c", "HTTP/2.0")] {
        let app = HttpApp::start("a");
        let rig = Rig::start(world(app.address(), protocol)).await;
        assert_eq!(rig.get("shop.localhost", "/").json()["version"], version);
        let mut send = connect(rig.address).await;
        let response = send.send_request(get("/x?y=1")).await.unwrap();
        assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2));
        assert!(response.headers().contains_key("x-request-id"));
        let seen = json_of(response).await;
        assert_eq!((&seen["version"], &seen["path"]), (&json!(version), &json!("/x?y=1")));
        let post = Request::post("http://shop.localhost/body").body(full("hello")).unwrap();
        assert_eq!(read(send.send_request(post).await.unwrap()).await.0, "hello");
        let mut many = Vec::new();
        for _ in 0..50 {
            let mut send = send.clone();
            many.push(tokio::spawn(async move {
                read(send.send_request(get("/bytes/5000")).await.unwrap()).await.0.len()
            }));
        }
        for one in many {
            assert_eq!(one.await.unwrap(), 5000);
        }
    }
}

#[tokio::test]
async fn cookies_are_joined_and_the_host_is_written_for_http_1_instances() {
    let app = HttpApp::start("a");
    let rig = Rig::start(world(app.address(), "http1")).await;
    let mut request = get("/");
    request.headers_mut().append("cookie", "a=1".parse().unwrap());
    request.headers_mut().append("cookie", "b=2".parse().unwrap());
    let seen = json_of(connect(rig.address).await.send_request(request).await.unwrap()).await;
    let headers = seen["headers"].as_array().unwrap();
    let values =
        |name: &str| headers.iter().filter(|pair| pair[0] == name).map(|pair| &pair[1]).collect::<Vec<_>>();
    assert_eq!(values("cookie"), [&json!("a=1; b=2")]);
    assert_eq!(values("host"), [&json!("shop.localhost")]);
    assert_eq!(values("via"), [&json!("2 towpath")]);
}

/// What a gRPC server is to the gateway: HTTP/2, a stream of messages, the status in trailers.
async fn grpc_like() -> SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = hyper::service::service_fn(|request: Request<Incoming>| async move {
                assert_eq!(request.headers()["te"], "trailers");
                assert_eq!(request.headers()["content-type"], "application/grpc");
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                let frames = vec![Ok::<_, Infallible>(Frame::data(body)), Ok(Frame::trailers(trailers))];
                Ok::<_, Infallible>(
                    Response::builder()
                        .header("content-type", "application/grpc")
                        .body(StreamBody::new(futures::stream::iter(frames)))
                        .unwrap(),
                )
            });
            tokio::spawn(
                hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service),
            );
        }
    });
    address
}

#[tokio::test]
async fn grpc_goes_through_with_its_trailers() {
    let rig = Rig::start(world(grpc_like().await, "h2c")).await;
    let request = Request::post("http://shop.localhost/pkg.Service/Method")
        .header("te", "trailers")
        .header("content-type", "application/grpc")
        .body(full("\0\0\0\0\x02hi"))
        .unwrap();
    let response = connect(rig.address).await.send_request(request).await.unwrap();
    let (body, trailers) = read(response).await;
    assert_eq!(
        (&body[..], &trailers.unwrap()["grpc-status"]),
        (b"\0\0\0\0\x02hi".as_slice(), &"0".parse::<http::HeaderValue>().unwrap())
    );
}

#[tokio::test]
async fn tls_serves_what_the_client_asks_for_by_alpn() {
    let (authority, app) = (Authority::new(), HttpApp::start("a"));
    let certificate = authority.issue(&["shop.localhost"]);
    let dir = towpath_testkit::temp_dir();
    let (chain, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    std::fs::write(&chain, certificate.certificate).unwrap();
    std::fs::write(&key, certificate.key).unwrap();
    let rig = Rig::start_with(
        world(app.address(), "http1"),
        |settings| {
            settings.tls = vec![TlsSettings {
                own: Some((chain, key)),
                ..TlsSettings::at("127.0.0.1:0".parse().unwrap())
            }]
        },
        None,
    )
    .await;
    let address = rig.gateway.as_ref().unwrap().addresses()[1];
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject;
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    for protocol in ["h2", "http/1.1"] {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let name = "shop.localhost".try_into().unwrap();
        let stream = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        let response = if protocol == "h2" {
            let (mut send, conn) =
                http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
            tokio::spawn(conn);
            send.send_request(get("/")).await.unwrap()
        } else {
            let (mut send, conn) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(conn);
            let request = Request::get("/").header("host", "shop.localhost").body(full("")).unwrap();
            send.send_request(request).await.unwrap()
        };
        let seen = json_of(response).await;
        let headers = seen["headers"].as_array().unwrap();
        assert!(headers.iter().any(|pair| pair[0] == "x-forwarded-proto" && pair[1] == "https"), "{seen}");
    }
}

#[tokio::test]
async fn a_client_that_only_resets_streams_is_sent_away() {
    let app = HttpApp::start("a");
    let rig = Rig::start(world(app.address(), "http1")).await;
    let mut client = rig.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    // GET http://shop.localhost/ by the static table: :method, :scheme, :path, :authority as a literal.
    let mut block = vec![0x82, 0x86, 0x84, 0x41, 14];
    block.extend_from_slice(b"shop.localhost");
    let mut frames = Vec::new();
    for n in 0..2000_u32 {
        let stream = (2 * n + 1).to_be_bytes();
        frames.extend_from_slice(&[0, 0, block.len() as u8, 1, 5]);
        frames.extend_from_slice(&stream);
        frames.extend_from_slice(&block);
        frames.extend_from_slice(&[0, 0, 4, 3, 0]);
        frames.extend_from_slice(&stream);
        frames.extend_from_slice(&[0, 0, 0, 8]);
    }
    let mut stream = client.stream.try_clone().unwrap();
    std::thread::spawn(move || std::io::Write::write_all(&mut stream, &frames));
    let rest = client.rest();
    let goaway = rest.windows(9).any(|frame| frame[..4] == [0, 0, frame[2], 7] && frame[4] == 0);
    assert!(goaway || rest.len() < 100_000, "the connection ended with {} bytes", rest.len());
    assert_eq!(rig.get("shop.localhost", "/status/200").status, 200, "others are served");
}

#[tokio::test]
async fn a_stream_that_the_instance_refused_unprocessed_is_sent_again_even_a_post() {
    // One endpoint answers every stream with REFUSED_STREAM; the other one serves.
    let raw = Raw::start(|_, mut client| {
        client.bytes(24);
        client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
        loop {
            let frame = client.bytes(9);
            client.bytes(usize::from(frame[1]) << 8 | usize::from(frame[2]));
            if frame[3] == 1 {
                client.send([[0, 0, 4, 3, 0].as_slice(), &frame[5..9], &[0, 0, 0, 7]].concat());
            }
        }
    });
    let app = HttpApp::start("a");
    let h2c = json!({"protocol": "h2c"});
    let world = World::new()
        .app("shop", json!({"balancer": "roundrobin"}))
        .instance_with("shop", raw.address, h2c.clone())
        .instance_with("shop", app.address(), h2c);
    let rig = Rig::start(world).await;
    for _ in 0..4 {
        let answer = rig
            .client()
            .request("POST /status/200 HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answer.status, 200);
    }
    assert!(raw.connections() > 0);
    assert!(rig.metric("towpath_gateway_retries_total") > 0.0);
}

/// Reads the frames of an HTTP/2 client and tells of each `HEADERS` by its stream.
fn each_request(
    client: &mut crate::support::Client,
    mut answer: impl FnMut(&mut crate::support::Client, &[u8]),
) {
    client.bytes(24);
    client.send([0, 0, 0, 4, 0, 0, 0, 0, 0]);
    loop {
        let frame = client.bytes(9);
        client.bytes(usize::from(frame[1]) << 8 | usize::from(frame[2]));
        if frame[3] == 1 {
            answer(client, &frame[5..9]);
        }
    }
}

/// `HEADERS` with status 200 that end the stream.
fn ok_on(stream: &[u8]) -> Vec<u8> {
    [[0, 0, 1, 1, 5].as_slice(), stream, &[0x88]].concat()
}

#[tokio::test]
async fn a_kept_http_2_connection_that_says_goodbye_is_replaced_unseen() {
    let raw = Raw::start(|number, mut client| {
        let mut requests = 0;
        each_request(&mut client, |client, stream| {
            requests += 1;
            if number == 0 && requests == 2 {
                client.send([0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
            } else {
                client.send(ok_on(stream));
            }
        });
    });
    let spec = json!({"retry": {"retries": 0}});
    let world = World::new().app("shop", spec).instance_with("shop", raw.address, json!({"protocol": "h2c"}));
    let rig = Rig::start(world).await;
    for _ in 0..3 {
        let answer =
            rig.client().request("POST / HTTP/1.1\r\nHost: shop.localhost\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(answer.status, 200);
    }
    assert_eq!(raw.connections(), 2);
}

#[tokio::test]
async fn an_http_2_connection_that_does_not_answer_pings_is_given_up() {
    let raw = Raw::start(|number, mut client| {
        each_request(&mut client, |client, stream| {
            if number > 0 {
                client.send(ok_on(stream));
            }
        });
    });
    let spec = json!({"retry": {"retries": 0}, "ejection": {"consecutive": 0, "rate": 0.0}});
    let world = World::new().app("shop", spec).instance_with("shop", raw.address, json!({"protocol": "h2c"}));
    let rig = Rig::start(world).await;
    assert_eq!(rig.get("shop.localhost", "/").status, 502, "long before the response timeout");
    assert_eq!(rig.get("shop.localhost", "/").status, 200, "over a new connection");
}

#[tokio::test]
async fn heads_are_judged_as_those_of_http_1_are() {
    let app = HttpApp::start("a");
    let rig = Rig::start(world(app.address(), "http1")).await;
    let send = connect(rig.address).await;
    let with = |change: fn(&mut Request<Body>)| {
        let mut request = get("/");
        change(&mut request);
        request
    };
    for request in [
        with(|request| *request.method_mut() = "get".parse().unwrap()),
        with(|request| *request.method_mut() = "PRI".parse().unwrap()),
        with(|request| *request.uri_mut() = "http://shop.localhost/\u{e9}".parse().unwrap()),
        with(|request| *request.uri_mut() = "http://shop.localhost!/".parse().unwrap()),
        with(|request| drop(request.headers_mut().insert("transfer_encoding", "chunked".parse().unwrap()))),
        with(|request| drop(request.headers_mut().insert("content_length", "5".parse().unwrap()))),
    ] {
        let what = format!("{request:?}");
        let response = send.clone().send_request(request).await.unwrap();
        assert_eq!(response.status(), 400, "{what}");
    }
    assert_eq!(app.requests(), 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_loses_the_stream_and_not_the_connection() {
    let ended = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let flag = ended.clone();
    let raw = Raw::start(move |_, mut client| {
        while let Some(head) = client.try_read_request() {
            if head[0].starts_with("GET /small") {
                client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
                continue;
            }
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
            while std::io::Write::write_all(&mut client.stream, &[7; 1 << 16]).is_ok() {}
            flag.store(true, std::sync::atomic::Ordering::SeqCst);
            return;
        }
    });
    let spec = json!({"timeouts": {"idle": "300ms"}});
    let rig = Rig::start(World::new().app("shop", spec).instance("shop", raw.address)).await;
    let mut send = connect(rig.address).await;
    let unread = send.send_request(get("/large")).await.unwrap();
    assert_eq!(unread.status(), 200);
    let waited = tokio::task::spawn_blocking(move || {
        towpath_testkit::wait::block_until(crate::support::PATIENCE, "the end of the stream", || {
            ended.load(std::sync::atomic::Ordering::SeqCst).then_some(())
        });
    });
    waited.await.unwrap();
    assert_eq!(read(send.send_request(get("/small")).await.unwrap()).await.0, "ok");
    drop(unread);
}

#[tokio::test]
async fn stalled_uploads_do_not_stop_the_others_of_their_connection() {
    let app = HttpApp::start("a");
    // Never says 100: uploads that wait for it stay where they are.
    let stalling = Raw::start(|_, mut client| {
        client.read_request();
        client.rest();
    });
    let world = World::new().app("shop", json!({})).instance("shop", app.address()).app("stall", json!({}));
    let world = world.instance("stall", stalling.address);
    let rig = Rig::start_with(world, |settings| settings.timeouts.expect_ms = 600_000, None).await;
    let send = connect(rig.address).await;
    let body = || Full::new(Bytes::from(vec![7; 400 * 1024])).boxed();
    for _ in 0..8 {
        let stalled =
            Request::post("http://stall.localhost/").header("expect", "100-continue").body(body()).unwrap();
        tokio::spawn(send.clone().send_request(stalled));
    }
    while stalling.connections() < 8 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let other = Request::post("http://shop.localhost/body").body(body()).unwrap();
    let answered = async { read(send.clone().send_request(other).await.unwrap()).await.0.len() };
    assert_eq!(tokio::time::timeout(crate::support::PATIENCE, answered).await.unwrap(), 400 * 1024);
}

#[tokio::test]
async fn a_burst_of_requests_to_a_cold_instance_shares_one_connection() {
    let app = HttpApp::start("a");
    let cold =
        World::new().app("shop", json!({})).instance_with("shop", app.address(), json!({"protocol": "h2c"}));
    let spec = json!({"retry": {"retries": 0}, "ejection": {"consecutive": 0, "rate": 0.0}});
    let dead = json!({"protocol": "h2c"});
    let rig = Rig::start(cold.app("dead", spec).instance_with("dead", dead_address(), dead)).await;
    let send = connect(rig.address).await;
    for (host, status) in [("shop", 200), ("dead", 502)] {
        let mut burst = Vec::new();
        for _ in 0..40 {
            let request = Request::get(format!("http://{host}.localhost/status/200")).body(full("")).unwrap();
            burst.push(tokio::spawn(send.clone().send_request(request)));
        }
        for one in burst {
            assert_eq!(one.await.unwrap().unwrap().status(), status);
        }
    }
    assert_eq!(app.connections(), 1);
}
