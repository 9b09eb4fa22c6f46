//! The PROXY protocol, in both directions.

use crate::alone::{Alone, route, until, upstream};
use crate::support::{Client, Raw};
use crate::tls_client::Dialer;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;
use towpath_gateway::{GatewaySettings, ProxyProtocolSettings, TlsSettings};
use towpath_testkit::tls::Authority;
use towpath_testkit::{HttpApp, Process, free_port};

/// A listener on port 0 whose proxies are in this network.
fn from(network: &str) -> impl FnOnce(&mut GatewaySettings) {
    let from = vec![network.parse().unwrap()];
    move |settings| {
        let listen = settings.listen[0];
        settings.proxy_protocol = vec![ProxyProtocolSettings { listen, from }];
    }
}

/// What a client gets that says these bytes first.
fn after(address: SocketAddr, first: &[u8]) -> Option<crate::support::Answer> {
    let mut stream = TcpStream::connect(address).unwrap();
    // Byte by byte in part: a header may come in pieces.
    let (pieces, rest) = first.split_at(first.len().min(20));
    for piece in pieces.chunks(7) {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
    }
    stream.write_all(rest).unwrap();
    // The other side may have closed already.
    let _ = stream.write_all(b"GET /x HTTP/1.1\r\nHost: a.test\r\n\r\n");
    let mut seen = [0; 1];
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    match stream.peek(&mut seen) {
        Ok(1) => Some(Client::of(stream).answer()),
        _ => None,
    }
}

/// The header of version 2 for 192.0.2.7:4711.
fn binary() -> Vec<u8> {
    let block = [192, 0, 2, 7, 10, 0, 0, 1, 0x12, 0x67, 0x01, 0xbb];
    [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[0x21, 0x11, 0, 12], &block].concat()
}

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 443\r\n";

#[tokio::test]
async fn proxies_that_are_believed_say_who_the_client_is() {
    let app = HttpApp::start("a");
    let plugins = json!({
        "proxy-rewrite": {"headers": {"set": {"X-Who": "$remote_addr:$remote_port at $server_addr"}}},
        "ip-restriction": {"blacklist": ["192.0.2.66"]},
    });
    let alone =
        Alone::start_with(json!({"routes": [route(app.address(), plugins)]}), from("127.0.0.0/8")).await;
    for first in [LINE.to_vec(), binary()] {
        let answer = after(alone.address, &first).expect("an answer");
        assert_eq!(answer.status, 200);
        assert_eq!(answer.seen("x-who").unwrap(), "192.0.2.7:4711 at 10.0.0.1");
    }
    let banned = b"PROXY TCP4 192.0.2.66 10.0.0.1 4711 443\r\n";
    assert_eq!(after(alone.address, banned).unwrap().status, 403);
    for (itself, first) in
        [b"PROXY UNKNOWN\r\n".as_slice(), b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00"].iter().enumerate()
    {
        let seen = after(alone.address, first).unwrap().seen("x-who").unwrap();
        assert!(seen.starts_with("127.0.0.1:"), "{itself}: {seen}");
    }
    for malformed in [
        b"".as_slice(),
        b"PROXY TCP4 1.1.1.1\r\n",
        b"PROXY TCP9 a b c d\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x00",
    ] {
        assert!(after(alone.address, malformed).is_none(), "{malformed:?}");
    }
    assert_eq!(alone.metric("towpath_gateway_proxy_headers_refused_total"), 4.0);
}

#[tokio::test]
async fn others_are_as_they_come() {
    let app = HttpApp::start("a");
    let plugins = json!({"proxy-rewrite": {"headers": {"set": {"X-Who": "$remote_addr"}}}});
    let alone =
        Alone::start_with(json!({"routes": [route(app.address(), plugins)]}), from("10.0.0.0/8")).await;
    assert_eq!(alone.get("/").seen("x-who").unwrap(), "127.0.0.1");
    assert_eq!(after(alone.address, LINE).unwrap().status, 400);
}

/// Started, and stopped with its guard.
fn haproxy(listen: u16, to: SocketAddr, how: &str) -> (Process, towpath_testkit::TempDir) {
    let dir = towpath_testkit::temp_dir();
    let path = dir.path().join("haproxy.cfg");
    let text = format!(
        "defaults\n mode tcp\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n\
         listen in\n bind 127.0.0.1:{listen}\n server gateway {to} {how}\n"
    );
    std::fs::write(&path, text).unwrap();
    let mut command = Command::new("haproxy");
    command
        .arg("-db")
        .arg("-f")
        .arg(&path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    let process = Process::spawn(command);
    until("haproxy listens", || TcpStream::connect(("127.0.0.1", listen)).is_ok());
    (process, dir)
}

#[tokio::test]
async fn haproxy_in_front_is_understood_in_clear_text_and_before_tls() {
    let (app, certificate) = (HttpApp::start("a"), Authority::new().issue(&["a.test"]));
    let plugins = json!({"proxy-rewrite": {"headers": {"set": {"X-Port": "$remote_port"}}}});
    let world = json!({
        "routes": [route(app.address(), plugins)],
        "ssls": [{"id": "1", "sni": "a.test", "cert": certificate.certificate, "key": certificate.key}],
    });
    let alone = Alone::start_with(world, |settings| {
        let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
        settings.tls = vec![TlsSettings::at(listen)];
        settings.proxy_protocol =
            vec![ProxyProtocolSettings { listen, from: vec!["127.0.0.1".parse().unwrap()] }];
    })
    .await;
    let addresses = alone.addresses();
    for how in ["send-proxy", "send-proxy-v2"] {
        let (clear, secure) = (free_port(), free_port());
        let _clear = haproxy(clear, addresses[0], how);
        let _secure = haproxy(secure, addresses[1], how);
        let mut client = Client::connect(SocketAddr::from(([127, 0, 0, 1], clear)));
        let own = client.stream.local_addr().unwrap().port();
        for _ in 0..2 {
            let answer = client.request("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
            assert_eq!(answer.seen("x-port").unwrap(), own.to_string(), "{how}");
        }
        let mut visit =
            Dialer::new().visit(SocketAddr::from(([127, 0, 0, 1], secure)), Some("a.test")).unwrap();
        let own = visit.port();
        assert_eq!(visit.get("a.test", "/").seen("x-port").unwrap(), own.to_string(), "{how}");
    }
}

#[tokio::test]
async fn upstreams_are_told_who_the_client_is_on_a_connection_for_each_request() {
    let raw = Raw::start(|_, mut client| {
        let mut first = [0; 12];
        client.stream.read_exact(&mut first).unwrap();
        let told = if first.starts_with(b"PROXY") {
            let mut line = first.to_vec();
            while !line.ends_with(b"\n") {
                let mut byte = [0];
                client.stream.read_exact(&mut byte).unwrap();
                line.push(byte[0]);
            }
            line
        } else {
            let mut rest = [0; 16];
            client.stream.read_exact(&mut rest[..4]).unwrap();
            let len = usize::from(rest[3]);
            let mut block = vec![0; len];
            client.stream.read_exact(&mut block).unwrap();
            format!(
                "{}.{}.{}.{}:{}",
                block[0],
                block[1],
                block[2],
                block[3],
                u16::from_be_bytes([block[8], block[9]])
            )
            .into_bytes()
        };
        client.read_request();
        let told = String::from_utf8(told).unwrap().trim_end().to_owned();
        client.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{told}", told.len()));
    });
    let world = |version: Value| {
        let mut to = upstream(&[raw.address]);
        to["proxy_protocol"] = version;
        json!({"routes": [{"id": "1", "uri": "/*", "upstream": to}]})
    };
    let alone = Alone::start(world(json!("v1"))).await;
    let mut client = alone.client();
    let local = client.stream.local_addr().unwrap();
    let get = "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n";
    for turn in 1..=2 {
        let text = client.request(get).text();
        let expected = format!("PROXY TCP4 127.0.0.1 127.0.0.1 {} {}", local.port(), alone.address.port());
        assert_eq!((text, raw.connections()), (expected, turn));
    }
    alone.write(world(json!("v2")));
    until("the binary form", || client.request(get).text() == format!("127.0.0.1:{}", local.port()));
}
