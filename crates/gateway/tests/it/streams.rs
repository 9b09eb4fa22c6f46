//! Stream routes: TCP, TLS that is passed on, UDP, and the listeners that come and go.

use crate::alone::{Alone, until};
use crate::support::{Client, PATIENCE, Raw, dead_address};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use towpath_testkit::{HttpApp, free_port};

/// A server that says its name, then everything back, in capitals.
fn echo(name: &'static str) -> Raw {
    Raw::start(move |_, mut client| {
        client.send(name);
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = client.stream.read(&mut bytes) {
            client.send(bytes[..read].to_ascii_uppercase());
        }
    })
}

fn nodes(weights: &[(SocketAddr, u32)]) -> Value {
    Value::Object(weights.iter().map(|(address, weight)| (address.to_string(), json!(weight))).collect())
}

fn to(addresses: &[SocketAddr]) -> Value {
    let weights: Vec<_> = addresses.iter().map(|address| (*address, 1)).collect();
    json!({"stream_routes": [{"id": "1", "upstream": {"nodes": nodes(&weights)}}]})
}

/// A gateway with a TCP, a passing and a UDP listener.
async fn start(resources: Value) -> (Alone, [SocketAddr; 3]) {
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let alone = Alone::start_with(resources, |settings| {
        settings.stream.tcp = vec![any];
        settings.stream.passthrough = vec![any];
        settings.stream.udp = vec![any];
    })
    .await;
    let addresses = alone.gateway.stream_addresses().try_into().unwrap();
    (alone, addresses)
}

fn connect(address: SocketAddr) -> Client {
    Client::connect(address)
}

/// Whether the other side ends the connection without a byte.
fn is_refused(address: SocketAddr) -> bool {
    let mut client = connect(address);
    let mut byte = [0];
    !matches!(client.stream.read(&mut byte), Ok(1))
}

fn log_lines(alone: &Alone) -> Vec<Value> {
    let text = std::fs::read_to_string(alone.dir().join("access.log")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn bytes_go_both_ways_and_each_side_ends_by_itself() {
    let server = echo("hi ");
    let (alone, [tcp, ..]) = start(to(&[server.address])).await;
    let mut client = connect(tcp);
    assert_eq!(client.bytes(3), b"hi ");
    client.send("some");
    assert_eq!(client.bytes(4), b"SOME");
    client.send("more");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest(), b"MORE", "what was sent before the end is answered");
    until("the session is counted", || {
        alone.metric("towpath_gateway_stream_sessions_total{protocol=\"tcp\",end=\"served\"}") == 1.0
    });
    assert_eq!(alone.metric("towpath_gateway_stream_sessions{protocol=\"tcp\"}"), 0.0);
    assert_eq!(alone.metric("towpath_gateway_stream_received_bytes_total{protocol=\"tcp\"}"), 8.0);
    assert_eq!(alone.metric("towpath_gateway_stream_sent_bytes_total{protocol=\"tcp\"}"), 11.0);
    until("the line is written", || log_lines(&alone).len() == 1);
    let line = log_lines(&alone).remove(0);
    let part = |name: &str| line[name].clone();
    assert_eq!(
        (part("scheme"), part("status"), part("in"), part("out")),
        (json!("tcp"), json!(200), json!(8), json!(11))
    );
    assert_eq!(line.get("complete"), None, "{line}");
}

#[tokio::test]
async fn the_server_may_end_first() {
    let server = Raw::start(|_, mut client| {
        client.send("bye");
        client.stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"last words");
    });
    let (alone, [tcp, ..]) = start(to(&[server.address])).await;
    let mut client = connect(tcp);
    assert_eq!(client.rest(), b"bye");
    client.send("last words");
    drop(client);
    until("the session is over", || {
        alone.metric("towpath_gateway_stream_sessions_total{protocol=\"tcp\",end=\"served\"}") == 1.0
    });
}

#[tokio::test]
async fn a_reader_that_is_slow_slows_the_writer_and_loses_nothing() {
    const LENGTH: usize = 24 << 20;
    let server = Raw::start(|_, mut client| {
        let piece: Vec<u8> = (0..=255).cycle().take(1 << 16).collect();
        for _ in 0..LENGTH >> 16 {
            client.stream.write_all(&piece).unwrap();
        }
    });
    let (alone, [tcp, ..]) = start(to(&[server.address])).await;
    let mut stream = connect(tcp).stream;
    let mut bytes = vec![0; 1 << 16];
    stream.read_exact(&mut bytes[..1]).unwrap();
    assert_eq!(bytes[0], 0);
    // Nobody reads now: what is under way is what the kernel's buffers hold, and one piece.
    assert_eq!(alone.metric("towpath_gateway_stream_sessions{protocol=\"tcp\"}"), 1.0);
    let mut read = 1;
    loop {
        let length = stream.read(&mut bytes).unwrap();
        if length == 0 {
            break;
        }
        assert!(
            bytes[..length].iter().enumerate().all(|(at, byte)| *byte == ((read + at) % 256) as u8),
            "at {read}"
        );
        read += length;
    }
    assert_eq!(read, LENGTH);
}

#[tokio::test]
async fn another_node_is_tried_when_one_takes_no_connection_and_a_client_that_goes_is_no_failure() {
    let server = echo("a");
    let dead = dead_address();
    let (alone, [tcp, ..]) = start(to(&[dead, server.address])).await;
    for _ in 0..6 {
        assert_eq!(connect(tcp).bytes(1), b"a");
    }
    assert!(alone.metric("towpath_gateway_connect_failures_total") >= 1.0);
    // Many clients that go at once: the endpoint stays.
    let ejected = alone.metric("towpath_gateway_ejections_total");
    for _ in 0..30 {
        let client = connect(tcp);
        let linger = socket2::SockRef::from(&client.stream);
        linger.set_linger(Some(Duration::ZERO)).unwrap();
    }
    until("all are gone", || alone.metric("towpath_gateway_stream_sessions{protocol=\"tcp\"}") == 0.0);
    assert_eq!(alone.metric("towpath_gateway_ejections_total"), ejected);
    assert_eq!(connect(tcp).bytes(1), b"a");
}

#[tokio::test]
async fn no_retries_is_one_attempt() {
    let (alone, [tcp, ..]) = start(json!({"stream_routes": [{"id": "1", "upstream": {
        "nodes": nodes(&[(dead_address(), 1), (dead_address(), 1), (dead_address(), 1)]), "retries": 0}}]}))
    .await;
    assert!(is_refused(tcp));
    until("it is counted", || {
        alone.metric("towpath_gateway_stream_sessions_total{protocol=\"tcp\",end=\"failed\"}") == 1.0
    });
    assert_eq!(alone.metric("towpath_gateway_connect_failures_total"), 1.0);
    until("the line is written", || log_lines(&alone).len() == 1);
    assert_eq!(log_lines(&alone)[0]["status"], 502);
}

#[tokio::test]
async fn weight_none_is_obeyed_at_once_and_sessions_that_are_there_go_on() {
    let (a, b) = (echo("a"), echo("b"));
    let weights = |of_a: u32| json!({"stream_routes": [{"id": "1", "upstream": {"nodes": nodes(&[(a.address, of_a), (b.address, 1)])}}]});
    let (alone, [tcp, ..]) = start(weights(3)).await;
    let mut kept = Vec::new();
    for _ in 0..8 {
        let mut client = connect(tcp);
        let name = client.bytes(1);
        kept.push((client, name));
    }
    assert_eq!(kept.iter().filter(|(_, name)| name == b"a").count(), 6);
    alone.write(weights(0));
    until("the edit is there", || (0..4).all(|_| connect(tcp).bytes(1) == b"b"));
    let before = a.connections();
    for _ in 0..12 {
        assert_eq!(connect(tcp).bytes(1), b"b");
    }
    assert_eq!(a.connections(), before);
    for (client, _) in &mut kept {
        client.send("x");
        assert_eq!(client.bytes(1), b"X");
    }
}

#[tokio::test]
async fn chash_keeps_a_client_at_its_node() {
    let servers = [echo("a"), echo("b"), echo("c")];
    let all: Vec<_> = servers.iter().map(|server| (server.address, 1)).collect();
    let resources = |key: &str| json!({"stream_routes": [{"id": "1", "upstream": {"type": "chash", "key": key, "nodes": nodes(&all)}}]});
    let (alone, [tcp, ..]) = start(resources("remote_addr")).await;
    let first = connect(tcp).bytes(1);
    for _ in 0..20 {
        assert_eq!(connect(tcp).bytes(1), first);
    }
    alone.write(resources("remote_port"));
    until("ports are told apart", || (0..8).any(|_| connect(tcp).bytes(1) != first));
}

#[tokio::test]
async fn plugins_keep_others_out_and_give_places_back() {
    let server = echo("a");
    let with = |plugins: Value| json!({"stream_routes": [{"id": "1", "plugins": plugins, "upstream": {"nodes": nodes(&[(server.address, 1)])}}]});
    let limit =
        json!({"limit-conn": {"conn": 2, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr"}});
    let (alone, [tcp, ..]) = start(with(limit.clone())).await;
    let (mut one, mut two) = (connect(tcp), connect(tcp));
    assert_eq!((one.bytes(1), two.bytes(1)), (b"a".to_vec(), b"a".to_vec()));
    assert!(is_refused(tcp), "a third");
    until("it is counted", || {
        alone.metric("towpath_gateway_stream_sessions_total{protocol=\"tcp\",end=\"refused\"}") == 1.0
    });
    drop(one);
    until("its place is free", || !is_refused(tcp));
    let not_us = json!({"ip-restriction": {"blacklist": ["127.0.0.0/8"]}});
    alone.write(with(not_us));
    until("we are kept out", || is_refused(tcp));
    alone.write(with(json!({"ip-restriction": {"whitelist": ["127.0.0.0/8"]}})));
    until("we may come", || !is_refused(tcp));
    two.send("x");
    assert_eq!(two.bytes(1), b"X", "a session that is there goes on");
}

#[tokio::test]
async fn silence_ends_a_session() {
    let server = echo("a");
    let (alone, [tcp, ..]) = start(json!({"stream_routes": [{"id": "1", "upstream": {
        "nodes": nodes(&[(server.address, 1)]), "timeout": {"connect": 1, "send": 0.2, "read": 0.2}}}]}))
    .await;
    let mut client = connect(tcp);
    assert_eq!(client.rest(), b"a");
    until("the line is written", || log_lines(&alone).len() == 1);
    assert_eq!(log_lines(&alone)[0]["complete"], false);
}

#[tokio::test]
async fn unhealthy_nodes_get_no_sessions_and_probes_end_with_their_node() {
    let probed = Arc::new(AtomicUsize::new(0));
    let count = probed.clone();
    let bad = Raw::start(move |_, mut client| {
        if client.try_read_request().is_some() {
            count.fetch_add(1, SeqCst);
            client.send("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n");
        }
    });
    let good = echo("a");
    let checks = json!({"active": {"type": "http", "http_path": "/", "port": bad.address.port(), "timeout": 1,
        "healthy": {"interval": 1, "successes": 1}, "unhealthy": {"interval": 1, "http_failures": 1}}});
    let resources = |addresses: &[SocketAddr], checks: &Value| {
        let weights: Vec<_> = addresses.iter().map(|address| (*address, 1)).collect();
        json!({"stream_routes": [{"id": "1", "upstream": {"nodes": nodes(&weights), "checks": checks}}]})
    };
    let (alone, [tcp, ..]) = start(resources(&[bad.address], &checks)).await;
    until("it is probed", || probed.load(SeqCst) >= 1);
    alone.write(resources(&[good.address], &json!({"active": {"type": "tcp"}})));
    until("the edit is there", || {
        let mut client = connect(tcp);
        client.send("x\r\n\r\n");
        client.bytes(1) == b"a"
    });
    let before = probed.load(SeqCst);
    // Longer than the interval at which it was probed.
    let end = std::time::Instant::now() + Duration::from_millis(1_600);
    while std::time::Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(probed.load(SeqCst), before, "a node that is gone is asked for nothing");
    }
}

/// A TLS server that says its certificate's name.
fn tls_server(authority: &towpath_testkit::tls::Authority, name: &'static str) -> Raw {
    use rustls::pki_types::pem::PemObject;
    let issued = authority.issue(&[name]);
    let chain = rustls::pki_types::CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain.collect::<Result<_, _>>().unwrap(), key)
        .unwrap();
    let config = Arc::new(config);
    Raw::start(move |_, client| {
        let connection = rustls::ServerConnection::new(config.clone()).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, client.stream);
        let _ = stream.write_all(name.as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
    })
}

fn tls_client(
    authority: &towpath_testkit::tls::Authority,
    address: SocketAddr,
    name: &str,
) -> std::io::Result<String> {
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from(name.to_owned()).unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut text = String::new();
    rustls::StreamOwned::new(connection, stream).read_to_string(&mut text)?;
    Ok(text)
}

#[tokio::test]
async fn tls_is_passed_on_by_its_server_name_and_what_is_no_tls_goes_where_none_is_asked_for() {
    let authority = towpath_testkit::tls::Authority::new();
    let (a, b, plain) =
        (tls_server(&authority, "a.test"), tls_server(&authority, "deep.b.test"), echo("plain"));
    let route = |id: &str, sni: Option<&str>, address: SocketAddr| {
        let mut route = json!({"id": id, "upstream": {"nodes": nodes(&[(address, 1)])}});
        if let Some(sni) = sni {
            route["sni"] = json!(sni);
        }
        route
    };
    let named = vec![route("1", Some("a.test"), a.address), route("2", Some("*.b.test"), b.address)];
    let (alone, [_, passing, _]) = start(json!({"stream_routes": named})).await;
    assert_eq!(tls_client(&authority, passing, "a.test").unwrap(), "a.test");
    assert_eq!(tls_client(&authority, passing, "deep.b.test").unwrap(), "deep.b.test");
    assert!(tls_client(&authority, passing, "c.test").is_err());
    until("it is counted", || {
        alone.metric("towpath_gateway_stream_sessions_total{protocol=\"tls\",end=\"no_route\"}") == 1.0
    });
    let mut client = connect(passing);
    client.send("GET / HTTP/1.1\r\n\r\n");
    assert!(client.is_closed());
    let mut all = named.clone();
    all.push(route("3", None, plain.address));
    alone.write(json!({"stream_routes": all}));
    until("there is a route for others", || {
        let mut client = connect(passing);
        client.send("hello");
        client.stream.shutdown(Shutdown::Write).unwrap();
        client.rest() == b"plainHELLO"
    });
    until("the names are logged", || log_lines(&alone).iter().any(|line| line["host"] == "deep.b.test"));
}

#[tokio::test]
async fn tls_ends_at_the_gateway_where_the_listener_says_so() {
    let authority = towpath_testkit::tls::Authority::new();
    let issued = authority.issue(&["a.test", "b.test"]);
    let says = |name: &'static str| Raw::start(move |_, mut client| client.send(name));
    let (a, others) = (says("plain a"), says("plain others"));
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let alone = Alone::start(json!({
        "ssls": [{"id": "1", "cert": issued.certificate, "key": issued.key, "snis": ["a.test", "b.test"]}],
        "listeners": [{"id": "1", "listen": address.to_string(), "protocol": "tls"}],
        "stream_routes": [{"id": "1", "sni": "a.test", "upstream": {"nodes": nodes(&[(a.address, 1)])}},
            {"id": "2", "upstream": {"nodes": nodes(&[(others.address, 1)])}}],
    }))
    .await;
    assert_eq!(tls_client(&authority, address, "a.test").unwrap(), "plain a");
    assert_eq!(tls_client(&authority, address, "b.test").unwrap(), "plain others");
    assert!(tls_client(&authority, address, "c.test").is_err(), "there is no certificate for it");
    until("sessions are counted", || {
        alone.metric("towpath_gateway_stream_sessions_total{protocol=\"tls\",end=\"served\"}") == 2.0
    });
}

#[tokio::test]
async fn tls_towards_nodes_asks_for_the_name_that_the_upstream_says() {
    let authority = towpath_testkit::tls::Authority::new();
    let server = tls_server(&authority, "a.test");
    let with = |host: &str| {
        json!({"stream_routes": [{"id": "1", "upstream": {"scheme": "tls", "pass_host": "rewrite", "upstream_host": host,
            "nodes": nodes(&[(server.address, 1)]), "tls": {"verify": true, "ca": authority.pem()}}}]})
    };
    let (alone, [tcp, ..]) = start(with("a.test")).await;
    assert_eq!(connect(tcp).rest(), b"a.test");
    alone.write(with("other.test"));
    until("another name is refused", || is_refused(tcp));
}

/// A UDP server that says everything back behind its name.
fn udp_echo(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok((length, peer)) = socket.recv_from(&mut bytes) {
            let answer = [name.as_bytes(), &bytes[..length]].concat();
            let _ = socket.send_to(&answer, peer);
        }
    });
    address
}

struct UdpClient(UdpSocket);

impl UdpClient {
    fn new(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(address).unwrap();
        Self(socket)
    }

    /// Asks until there is an answer.
    fn ask(&self, text: &str) -> String {
        let mut bytes = vec![0; 65_536];
        self.0.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        for _ in 0..300 {
            self.0.send(text.as_bytes()).unwrap();
            if let Ok(length) = self.0.recv(&mut bytes) {
                return String::from_utf8_lossy(&bytes[..length]).into_owned();
            }
        }
        panic!("no answer to {text}");
    }
}

#[tokio::test]
async fn datagrams_go_both_ways_and_clients_keep_their_node() {
    let (a, b) = (udp_echo("a"), udp_echo("b"));
    let (alone, [_, _, udp]) = start(to(&[a, b])).await;
    let clients: Vec<_> = (0..4).map(|_| UdpClient::new(udp)).collect();
    let first: Vec<_> = clients.iter().map(|client| client.ask("1").remove(0)).collect();
    assert!(first.contains(&'a') && first.contains(&'b'), "{first:?}");
    for (client, first) in clients.iter().zip(&first) {
        let large = "x".repeat(9_000);
        for text in ["2", "three", large.as_str()] {
            assert_eq!(client.ask(text), format!("{first}{text}"));
        }
    }
    assert_eq!(alone.metric("towpath_gateway_stream_sessions{protocol=\"udp\"}"), 4.0);
}

#[tokio::test]
async fn a_node_of_udp_that_refuses_is_left_alone_and_silent_sessions_end() {
    let good = udp_echo("a");
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (alone, [_, _, udp]) = start(json!({"stream_routes": [{"id": "1", "upstream": {
        "nodes": nodes(&[(dead, 1), (good, 1)]), "timeout": {"connect": 1, "send": 0.3, "read": 0.3}}}]}))
    .await;
    for _ in 0..6 {
        assert_eq!(UdpClient::new(udp).ask("x"), "ax", "asking again finds the node that is there");
    }
    until("they are silent", || alone.metric("towpath_gateway_stream_sessions{protocol=\"udp\"}") == 0.0);
    assert_eq!(UdpClient::new(udp).ask("y"), "ay");
}

#[tokio::test]
async fn listeners_come_and_go_with_their_resources() {
    let (server, app) = (echo("a"), HttpApp::start("app"));
    let route = json!({"id": "1", "uri": "/*", "upstream": {"nodes": nodes(&[(app.address(), 1)])}});
    let stream = json!({"id": "1", "upstream": {"nodes": nodes(&[(server.address, 1)])}});
    let resources =
        |listeners: Value| json!({"routes": [route], "stream_routes": [stream], "listeners": listeners});
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let (one, two) = (address(free_port()), address(free_port()));
    let listener = |id: &str, at: SocketAddr, protocol: &str| json!({"id": id, "listen": at.to_string(), "protocol": protocol});
    let alone = Alone::start(resources(json!([listener("a", one, "tcp")]))).await;
    assert_eq!(connect(one).bytes(1), b"a", "it listens before the gateway says that it has started");
    let mut kept = connect(one);
    assert_eq!(kept.bytes(1), b"a");
    // Another one comes; the first one's protocol changes on the same socket.
    alone.write(resources(json!([listener("a", one, "http"), listener("b", two, "tcp")])));
    until("the second listens", || TcpStream::connect(two).is_ok());
    assert_eq!(connect(two).bytes(1), b"a");
    let answer = connect(one).request("GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!((answer.status, &answer.json()["path"]), (200, &json!("/x")));
    // Both go, and who is connected stays.
    alone.write(resources(json!([])));
    until("nobody listens", || TcpStream::connect(one).is_err() && TcpStream::connect(two).is_err());
    kept.send("x");
    assert_eq!(kept.bytes(1), b"X");
    // A port that is taken is told, and hinders no other.
    let foreign = std::net::TcpListener::bind(one).unwrap();
    alone.write(resources(json!([listener("a", one, "tcp"), listener("b", two, "http")])));
    until("the other listens", || TcpStream::connect(two).is_ok());
    until("the refusal is seen", || alone.metric("towpath_gateway_refused_items") == 1.0);
    drop(foreign);
    until("it listens as soon as it can", || TcpStream::connect(one).is_ok());
    assert_eq!(connect(one).bytes(1), b"a");
    until("nothing is refused any more", || alone.metric("towpath_gateway_refused_items") == 0.0);
}
