//! Static upstreams: nodes, hosts, retries, TLS, health.

use crate::alone::{Alone, until, upstream};
use crate::support::{Raw, dead_address};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use towpath_testkit::HttpApp;

fn to(upstream: Value) -> Value {
    json!({"routes": [{"id": "1", "uri": "/*", "upstream": upstream}]})
}

fn nodes(weights: &[(SocketAddr, u32)]) -> Value {
    let nodes = weights.iter().map(|(address, weight)| (address.to_string(), json!(weight)));
    Value::Object(nodes.collect())
}

#[tokio::test]
async fn weights_are_obeyed_and_a_node_of_none_gets_nothing_at_once() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let weights = |a_weight, b_weight| {
        to(json!({"type": "roundrobin", "nodes": nodes(&[(a.address(), a_weight), (b.address(), b_weight)])}))
    };
    let alone = Alone::start(weights(3, 1)).await;
    for _ in 0..40 {
        assert_eq!(alone.get("/").status, 200);
    }
    assert_eq!((a.requests(), b.requests()), (30, 10));
    alone.write(weights(0, 1));
    until("the edit is there", || {
        let before = b.requests();
        (0..4).for_each(|_| drop(alone.get("/")));
        b.requests() == before + 4
    });
    let before = a.requests();
    (0..20).for_each(|_| drop(alone.get("/")));
    assert_eq!(a.requests(), before);
}

#[tokio::test]
async fn the_host_is_passed_on_rewritten_or_the_nodes() {
    let app = HttpApp::start("a");
    let with = |more: Value| {
        let mut spec = upstream(&[app.address()]);
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        to(spec)
    };
    for (more, host) in [
        (json!({}), "a.test".to_owned()),
        (json!({"pass_host": "rewrite", "upstream_host": "up.test"}), "up.test".to_owned()),
        (json!({"pass_host": "node"}), app.address().to_string()),
    ] {
        let alone = Alone::start(with(more)).await;
        assert_eq!(alone.get("/").seen("host").unwrap(), host);
    }
    let named = json!({"type": "roundrobin", "pass_host": "node", "nodes": [{"host": "localhost", "port": app.address().port(), "weight": 1}]});
    let alone = Alone::start(to(named)).await;
    let answer = alone.get("/");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.seen("host").unwrap(), format!("localhost:{}", app.address().port()));
}

#[tokio::test]
async fn three_stale_nodes_in_a_row_do_not_matter_and_no_retries_are_no_retries() {
    let good: Vec<_> = ["a", "b", "c"].map(HttpApp::start).into_iter().collect();
    let mut all = vec![dead_address(), dead_address(), dead_address()];
    all.extend(good.iter().map(HttpApp::address));
    let alone = Alone::start(to(upstream(&all))).await;
    for _ in 0..30 {
        assert_eq!(alone.get("/").status, 200);
    }
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let closing = Raw::start(move |_, mut client| {
        client.read_request();
        seen.fetch_add(1, SeqCst);
    });
    let mut spec = upstream(&[closing.address, good[0].address()]);
    spec["retries"] = json!(0);
    let alone = Alone::start(to(spec)).await;
    let statuses: Vec<_> = (0..4).map(|_| alone.get("/").status).collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert_eq!(failed, count.load(SeqCst), "{statuses:?}");
    assert!(failed > 0);
}

#[tokio::test]
async fn nodes_are_asked_fall_come_back_and_are_left_alone_once_gone() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let checks = json!({"active": {"http_path": "/healthz", "healthy": {"interval": 1, "successes": 1}, "unhealthy": {"interval": 1, "http_failures": 1}}});
    let with = |addresses: &[SocketAddr]| {
        let mut spec = upstream(addresses);
        spec["checks"] = checks.clone();
        to(spec)
    };
    let alone = Alone::start(with(&[a.address(), b.address()])).await;
    b.set_status(500);
    let only_a = || {
        let before = a.requests();
        (0..6).for_each(|_| drop(alone.get("/")));
        a.requests() >= before + 6
    };
    until("b has fallen", only_a);
    b.set_status(200);
    until("b has come back", || !only_a());
    alone.write(with(&[a.address()]));
    until("b is gone", || {
        let (asked, before) = (a.requests(), b.requests());
        until("a is asked twice more", || a.requests() >= asked + 2);
        b.requests() == before
    });
}

#[tokio::test]
async fn passive_checks_take_a_node_out() {
    let (a, b) = (HttpApp::start("a"), HttpApp::start("b"));
    let mut spec = upstream(&[a.address(), b.address()]);
    spec["checks"] = json!({
        "active": {"type": "tcp", "healthy": {"interval": 3600}, "unhealthy": {"interval": 3600}},
        "passive": {"unhealthy": {"http_statuses": [500], "http_failures": 2}},
    });
    let alone = Alone::start(to(spec)).await;
    b.set_status(500);
    until("b has been taken out", || (0..6).all(|_| alone.get("/").status == 200));
    assert!(b.requests() >= 2);
}

/// A node that speaks TLS as this configuration says, and answers with the name that it was asked for and whether the client
/// showed a certificate.
fn tls_node(config: rustls::ServerConfig) -> SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let config = Arc::new(config);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let config = config.clone();
            std::thread::spawn(move || {
                let connection = rustls::ServerConnection::new(config).unwrap();
                let mut stream = rustls::StreamOwned::new(connection, stream.unwrap());
                let (mut head, mut byte) = (Vec::new(), [0]);
                loop {
                    while !head.ends_with(b"\r\n\r\n") {
                        if stream.read(&mut byte).unwrap_or(0) == 0 {
                            return;
                        }
                        head.push(byte[0]);
                    }
                    head.clear();
                    let name = stream.conn.server_name().unwrap_or_default().to_owned();
                    let shown = stream.conn.peer_certificates().is_some();
                    let text = format!("{name} {shown}");
                    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
                    if stream.write_all(answer.as_bytes()).and_then(|()| stream.flush()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn tls_nodes_are_verified_and_shown_a_certificate_where_asked() {
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use towpath_testkit::tls::Authority;
    let ca = Authority::new();
    let (node, client) = (ca.issue(&["a.test"]), ca.issue(&["client"]));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chain = || vec![CertificateDer::from_pem_slice(node.certificate.as_bytes()).unwrap()];
    let key = || PrivateKeyDer::from_pem_slice(node.key.as_bytes()).unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.pem().as_bytes()).unwrap()).unwrap();
    let builder = || {
        rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .unwrap()
    };
    let open = tls_node(builder().with_no_client_auth().with_single_cert(chain(), key()).unwrap());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let strict = builder().with_client_cert_verifier(verifier.build().unwrap());
    let strict = tls_node(strict.with_single_cert(chain(), key()).unwrap());

    let ask = async |address: SocketAddr, tls: Value, more: Value| {
        let mut spec = upstream(&[address]);
        spec["scheme"] = json!("https");
        spec["tls"] = tls;
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let alone = Alone::start(to(spec)).await;
        let mut client = alone.client();
        let mut ask = || client.request("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
        let (first, second) = (ask(), ask());
        assert_eq!(first.status, second.status);
        (first.status, if first.status == 200 { first.text() } else { String::new() })
    };
    let good = |text: &str| (200, text.to_owned());
    let none = json!({});
    assert_eq!(ask(open, json!({"verify": false}), none.clone()).await, good("a.test false"));
    assert_eq!(ask(open, json!({"verify": true, "ca": ca.pem()}), none.clone()).await, good("a.test false"));
    assert_eq!(
        ask(open, json!({"verify": true}), none.clone()).await.0,
        502,
        "the system does not know this authority"
    );
    let other = json!({"pass_host": "rewrite", "upstream_host": "b.test"});
    assert_eq!(
        ask(open, json!({"verify": true, "ca": ca.pem()}), other.clone()).await.0,
        502,
        "another name"
    );
    assert_eq!(ask(open, json!({"verify": false}), other).await, good("b.test false"));
    assert_eq!(ask(strict, json!({"verify": false}), none.clone()).await.0, 502, "no certificate was shown");
    let shown = json!({"client_cert": client.certificate, "client_key": client.key});
    assert_eq!(ask(strict, shown, none).await, good("a.test true"));
}

#[tokio::test]
async fn connections_carry_as_many_requests_as_their_pool_says() {
    let app = HttpApp::start("a");
    let mut spec = upstream(&[app.address()]);
    spec["keepalive_pool"] = json!({"size": 1, "idle_timeout": 60, "requests": 2});
    let alone = Alone::start(to(spec)).await;
    let mut client = alone.client();
    for _ in 0..6 {
        assert_eq!(client.request("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n").status, 200);
    }
    assert_eq!(app.connections(), 3);
}
