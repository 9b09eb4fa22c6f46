//! Certificates of resources, served by name.

use crate::alone::{Alone, route, until};
use crate::tls_client::{Dialer, Visit};
use rustls::{HandshakeKind, SignatureScheme};
use serde_json::{Value, json};
use std::io::Read;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use towpath_gateway::{GatewaySettings, TlsSettings};
use towpath_testkit::HttpApp;
use towpath_testkit::tls::{Authority, Certificate};

/// An `ssls` resource, with more fields.
fn ssl(id: &str, names: &[&str], certificate: &Certificate, more: &Value) -> Value {
    let mut ssl = json!({"id": id, "snis": names, "cert": certificate.certificate, "key": certificate.key});
    for (name, value) in more.as_object().into_iter().flatten() {
        ssl[name] = value.clone();
    }
    ssl
}

fn at_any_port() -> TlsSettings {
    TlsSettings::at("127.0.0.1:0".parse().unwrap())
}

fn one_listener(settings: &mut GatewaySettings) {
    settings.tls = vec![at_any_port()];
}

fn world(app: SocketAddr, ssls: &[Value]) -> Value {
    json!({"routes": [route(app, json!({}))], "ssls": ssls})
}

/// With one TLS listener, and its address.
async fn start(app: &HttpApp, ssls: &[Value]) -> (Alone, SocketAddr) {
    let alone = Alone::start_with(world(app.address(), ssls), one_listener).await;
    let address = alone.addresses()[1];
    (alone, address)
}

/// A certificate whose subject is `name`, so that a client can tell which one it got.
fn certificate(name: &str) -> Certificate {
    Authority::new().issue(&[name])
}

#[tokio::test]
async fn names_choose_exact_then_one_label_then_nothing() {
    let app = HttpApp::start("a");
    let made: Vec<_> = ["exact", "one", "two"].iter().map(|name| certificate(name)).collect();
    let ssls = [
        ssl("1", &["a.one.test", "Other.Test"], &made[0], &json!({})),
        ssl("2", &["*.one.test"], &made[1], &json!({})),
        ssl("3", &["*.two.test"], &made[2], &json!({})),
        ssl("4", &["off.test"], &made[2], &json!({"status": 0})),
    ];
    let (alone, address) = start(&app, &ssls).await;
    let serves = |name: &str, which: &Certificate| {
        let visit = Dialer::new().visit(address, Some(name)).unwrap();
        assert!(visit.shows(which), "{name}");
    };
    serves("a.one.test", &made[0]);
    serves("other.test", &made[0]);
    serves("b.one.test", &made[1]);
    serves("a.two.test", &made[2]);
    serves("b.two.test", &made[2]);
    for name in [Some("x.b.one.test"), Some("one.test"), Some("off.test"), Some("nobody.test"), None] {
        let error = Dialer::new().visit(address, name).map(drop).unwrap_err();
        assert!(error.contains("UnrecognisedName"), "{name:?}: {error}");
    }
    let mut visit = Dialer::new().visit(address, Some("a.two.test")).unwrap();
    assert_eq!(visit.get("a.two.test", "/x").json()["path"], "/x");
    assert!(alone.metric("towpath_gateway_tls_handshakes_total") >= 6.0);
    assert!(alone.metric("towpath_gateway_tls_handshake_failures_total") >= 5.0);
    let left = alone.metric("towpath_gateway_certificate_expiry_seconds{id=\"1\"}");
    assert!(left > 86_400.0, "{left}");
}

#[tokio::test]
async fn listeners_have_their_own_certificates_by_label_and_by_file() {
    let app = HttpApp::start("a");
    let made: Vec<_> = ["outside", "inside", "own"].iter().map(|name| certificate(name)).collect();
    let dir = towpath_testkit::temp_dir();
    let files = ["own.crt", "own.key"].map(|name| dir.path().join(name));
    std::fs::write(&files[0], &made[2].certificate).unwrap();
    std::fs::write(&files[1], &made[2].key).unwrap();
    let ssls = [
        ssl("1", &["a.test"], &made[0], &json!({"labels": {"net": "outside"}})),
        ssl("2", &["a.test"], &made[1], &json!({"labels": {"net": "inside", "more": "x"}})),
    ];
    let labels = |net: &str| [("net".to_owned(), net.to_owned())].into();
    let alone = Alone::start_with(world(app.address(), &ssls), |settings| {
        let own = Some((files[0].clone(), files[1].clone()));
        settings.tls = vec![
            TlsSettings { labels: labels("outside"), own, ..at_any_port() },
            TlsSettings { labels: labels("inside"), fallback_sni: Some("A.test".into()), ..at_any_port() },
            TlsSettings { labels: labels("nowhere"), ..at_any_port() },
        ];
    })
    .await;
    let addresses = alone.addresses();
    let shown = |at: usize, name: Option<&str>, which: usize| {
        assert!(Dialer::new().visit(addresses[at], name).unwrap().shows(&made[which]), "{at} {name:?}");
    };
    shown(1, Some("a.test"), 0);
    shown(1, Some("b.test"), 2);
    shown(1, None, 2);
    shown(2, Some("a.test"), 1);
    shown(2, None, 1);
    assert!(Dialer::new().visit(addresses[2], Some("b.test")).is_err());
    assert!(Dialer::new().visit(addresses[3], Some("a.test")).is_err());
}

/// RSA is not made by the library of the tests.
fn rsa(name: &str) -> Certificate {
    let dir = towpath_testkit::temp_dir();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (key, cert) = (path("key"), path("cert"));
    let subject = format!("/CN={name}");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", &subject])
        .args(["-keyout", &key, "-out", &cert])
        .output()
        .expect("openssl is here (apt-get install openssl)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    Certificate { certificate: read(&cert), key: read(&key) }
}

#[tokio::test]
async fn one_name_has_rsa_and_elliptic_curves_and_a_staple() {
    let app = HttpApp::start("a");
    let (rsa, curve) = (rsa("a.test"), certificate("a.test"));
    // An OCSP response says first that it is one: SEQUENCE { ENUMERATED successful }.
    let (one, other) = ([0x30, 3, 10, 1, 0], [0x30, 0x81, 3, 10, 1, 0]);
    let base64 = |bytes: &[u8]| base64_of(bytes);
    let more = json!({"certs": [curve.certificate], "keys": [curve.key],
        "ocsp_response": base64(&one), "ocsp_responses": [base64(&other)]});
    let (_alone, address) = start(&app, &[ssl("1", &["a.test"], &rsa, &more)]).await;
    let modern = Dialer::new().visit(address, Some("a.test")).unwrap();
    assert!(modern.shows(&curve), "a client that can verify both gets the cheaper one");
    assert_eq!(modern.staple, other);
    let old = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256];
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let visit = Dialer::new().schemes(&old).version(version).visit(address, Some("a.test")).unwrap();
        assert!(visit.shows(&rsa), "{version:?}");
        assert_eq!(visit.staple, one);
    }
}

fn base64_of(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[tokio::test]
async fn versions_differ_by_name() {
    let app = HttpApp::start("a");
    let made = certificate("x");
    let ssls = [
        ssl("1", &["new.test"], &made, &json!({"ssl_protocols": ["TLSv1.3"]})),
        ssl("2", &["old.test"], &made, &json!({"ssl_protocols": ["TLSv1.2"]})),
        ssl("3", &["both.test"], &made, &json!({})),
    ];
    let (_alone, address) = start(&app, &ssls).await;
    let speaks = |name: &str, version: &'static rustls::SupportedProtocolVersion| {
        Dialer::new().version(version).visit(address, Some(name)).is_ok()
    };
    let (old, new) = (&rustls::version::TLS12, &rustls::version::TLS13);
    assert_eq!((speaks("new.test", old), speaks("new.test", new)), (false, true));
    assert_eq!((speaks("old.test", old), speaks("old.test", new)), (true, false));
    assert_eq!((speaks("both.test", old), speaks("both.test", new)), (true, true));
}

#[tokio::test]
async fn clients_show_what_their_name_asks_for() {
    let app = HttpApp::start("a");
    let (made, trusted, foreign) = (certificate("x"), Authority::new(), Authority::new());
    let (near, far) =
        (trusted.issue_authority("near"), trusted.issue_authority("near").issue_authority("far"));
    let client = |more: Value| {
        let mut client = json!({"ca": trusted.pem()});
        client.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "client": client })
    };
    let ssls = [
        ssl("1", &["strict.test"], &made, &client(json!({}))),
        ssl("2", &["flat.test"], &made, &client(json!({"depth": 0}))),
        ssl("3", &["skips.test"], &made, &client(json!({"skip_mtls_uri_regex": ["^/open/"]}))),
        ssl("4", &["free.test"], &made, &json!({})),
    ];
    let (_alone, address) = start(&app, &ssls).await;
    // A refusal of the client's certificate comes after TLS 1.3's handshake, with the first read.
    let asks = |dialer: Dialer, name: &str, path: &str| -> Option<u16> {
        let mut visit = dialer.visit(address, Some(name)).ok()?;
        visit.try_get(name, path).map(|answer| answer.status)
    };
    let with = |certificate: &Certificate| Dialer::new().showing(certificate);
    let direct = trusted.issue(&["me"]);
    assert_eq!(asks(with(&direct), "strict.test", "/"), Some(200));
    assert_eq!(asks(with(&near.issue(&["me"])), "strict.test", "/"), Some(200));
    assert_eq!(asks(with(&far.issue(&["me"])), "strict.test", "/"), None, "two between, one allowed");
    assert_eq!(asks(with(&direct), "flat.test", "/"), Some(200));
    assert_eq!(asks(with(&near.issue(&["me"])), "flat.test", "/"), None);
    assert_eq!(asks(with(&foreign.issue(&["me"])), "strict.test", "/"), None);
    assert_eq!(asks(Dialer::new(), "strict.test", "/"), None);
    assert_eq!(asks(Dialer::new(), "free.test", "/"), Some(200));
    assert_eq!(asks(Dialer::new(), "skips.test", "/open/x"), Some(200));
    assert_eq!(asks(Dialer::new(), "skips.test", "/x"), Some(400));
    assert_eq!(asks(Dialer::new(), "skips.test", "/open/../x"), Some(400));
    assert_eq!(asks(Dialer::new(), "skips.test", "/open%2f..%2fx"), Some(400));
    assert_eq!(asks(with(&direct), "skips.test", "/x"), Some(200));
    assert_eq!(asks(with(&foreign.issue(&["me"])), "skips.test", "/open/x"), None);
}

#[tokio::test]
async fn a_connection_for_one_name_does_not_reach_another_that_asks_for_more() {
    let app = HttpApp::start("a");
    let (made, one, other) = (certificate("x"), Authority::new(), Authority::new());
    let asks = |authority: &Authority| json!({"client": {"ca": authority.pem()}});
    let ssls = [
        ssl("1", &["*.one.test"], &made, &asks(&one)),
        ssl("2", &["other.test"], &made, &asks(&other)),
        ssl("3", &["free.test"], &made, &json!({})),
    ];
    let (alone, address) = start(&app, &ssls).await;
    let status = |name: &str, host: &str, dialer: Dialer| {
        dialer.visit(address, Some(name)).unwrap().get(host, "/").status
    };
    let me = one.issue(&["me"]);
    let known = || Dialer::new().showing(&me);
    assert_eq!(status("a.one.test", "b.one.test", known()), 200, "the same rule");
    assert_eq!(status("a.one.test", "free.test", known()), 200);
    assert_eq!(status("a.one.test", "other.test", known()), 421);
    for host in ["a.one.test", "A.One.Test.:443", "blue--a.one.test", "other.test"] {
        assert_eq!(status("free.test", host, Dialer::new()), 421, "{host}");
    }
    assert_eq!(status("free.test", "nobody.test", Dialer::new()), 200);
    let free = Dialer::new();
    assert_eq!(crate::tls_client::h2_status(address, &free, "free.test", "other.test").await, 421);
    assert_eq!(crate::tls_client::h2_status(address, &free, "free.test", "free.test").await, 200);
    // A rule that comes later holds for connections that are there.
    let mut visit = Dialer::new().visit(address, Some("free.test")).unwrap();
    assert_eq!(visit.get("free.test", "/").status, 200);
    let mut stricter = ssls.clone();
    stricter[2] = ssl("3", &["free.test"], &made, &asks(&one));
    alone.write(world(app.address(), &stricter));
    until("the rule holds", || visit.get_again(address, "free.test") == 421);
}

#[tokio::test]
async fn sessions_resume_across_gateways_with_one_key_but_not_under_another_rule() {
    let app = HttpApp::start("a");
    let (made, authority) = (certificate("x"), Authority::new());
    let dir = towpath_testkit::temp_dir();
    let key = dir.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    let free = world(app.address(), &[ssl("1", &["a.test"], &made, &json!({}))]);
    let asking =
        world(app.address(), &[ssl("1", &["a.test"], &made, &json!({"client": {"ca": authority.pem()}}))]);
    let start = async |world: &Value, shared: bool| {
        let alone = Alone::start_with(world.clone(), |settings| {
            one_listener(settings);
            settings.workers = 2;
            settings.sticky_key = shared.then(|| key.clone());
        })
        .await;
        let address = alone.addresses()[1];
        (alone, address)
    };
    let gateways = [
        start(&free, true).await,
        start(&free, true).await,
        start(&free, false).await,
        start(&asking, true).await,
    ];
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let dialer = Dialer::new().version(version);
        let kind = |at: usize| {
            let mut visit = dialer.visit(gateways[at].1, Some("a.test")).ok()?;
            let answer = visit.try_get("a.test", "/")?;
            assert_eq!(answer.status, 200);
            visit.kind()
        };
        assert_eq!(kind(0), Some(HandshakeKind::Full));
        for _ in 0..4 {
            assert_eq!(kind(0), Some(HandshakeKind::Resumed), "whichever worker it meets");
        }
        assert_eq!(kind(1), Some(HandshakeKind::Resumed), "another gateway with the same key");
        assert_eq!(kind(3), None, "whoever showed no certificate shows none by resuming");
        assert_eq!(kind(2), Some(HandshakeKind::Full), "a gateway with a key of its own");
    }
}

/// Ends loops, whatever ends the test.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_is_replaced_under_load_without_an_error() {
    let app = HttpApp::start("a");
    let made = [certificate("one"), certificate("two")];
    let ssls = |which: usize| [ssl("1", &["a.test", "*.a.test"], &made[which], &json!({}))];
    let (alone, address) = start(&app, &ssls(0)).await;
    let (stop, seen) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let requests = AtomicUsize::new(0);
    let mut lasting = Dialer::new().visit(address, Some("a.test")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(SeqCst) {
                    // One that resumes is not shown a certificate.
                    let mut visit: Visit =
                        Dialer::new().visit(address, Some("b.a.test")).expect("a handshake");
                    assert_eq!(visit.get("b.a.test", "/").status, 200);
                    let which = made.iter().position(|one| visit.shows(one)).expect("one of both");
                    seen[which].fetch_add(1, SeqCst);
                    requests.fetch_add(1, SeqCst);
                }
            });
        }
        let _ends = Ends(&stop);
        for turn in 1..=6 {
            let new = turn % 2;
            let before = seen[new].load(SeqCst);
            alone.write(world(app.address(), &ssls(new)));
            until("the new one is shown", || seen[new].load(SeqCst) > before + 2);
            assert_eq!(lasting.get("a.test", "/").status, 200, "the old connection lasts");
        }
    });
    assert!(lasting.shows(&made[0]) && requests.load(SeqCst) > 12);
    assert_eq!(alone.metric("towpath_gateway_tls_handshake_failures_total"), 0.0);
}

#[tokio::test]
async fn handshakes_that_do_not_go_on_end_and_leave_room() {
    let app = HttpApp::start("a");
    let made = certificate("x");
    let alone =
        Alone::start_with(world(app.address(), &[ssl("1", &["a.test"], &made, &json!({}))]), |settings| {
            settings.tls = vec![TlsSettings { handshakes: 2, ..at_any_port() }];
            settings.timeouts.handshake_ms = 700;
        })
        .await;
    let address = alone.addresses()[1];
    let mut silent: Vec<_> = (0..2).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
    until("both are begun", || alone.metric("towpath_gateway_connections") >= 2.0);
    assert!(Dialer::new().visit(address, Some("a.test")).is_err(), "there is no room for a third");
    assert_eq!(alone.metric("towpath_gateway_tls_handshakes_refused_total"), 1.0);
    for stream in &mut silent {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        assert_eq!(stream.read(&mut [0; 16]).unwrap(), 0, "it is over");
    }
    assert_eq!(Dialer::new().visit(address, Some("a.test")).unwrap().get("a.test", "/").status, 200);
    assert_eq!(alone.metric("towpath_gateway_tls_handshake_failures_total"), 2.0);
}

#[tokio::test]
async fn openssl_and_curl_are_served_too() {
    let app = HttpApp::start("a");
    let (authority, dir) = (Authority::new(), towpath_testkit::temp_dir());
    let (_alone, address) =
        start(&app, &[ssl("1", &["*.a.test"], &authority.issue(&["*.a.test"]), &json!({}))]).await;
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let run = async |command: &mut tokio::process::Command| {
        let output = command.stdin(std::process::Stdio::null()).output().await.unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let mut curl = tokio::process::Command::new("curl");
        curl.args(["-sS", flag, "--cacert"])
            .arg(&ca)
            .arg("--resolve")
            .arg(format!("x.a.test:{}:127.0.0.1", address.port()));
        curl.args(["-o", "/dev/null", "-w", "%{http_version} %{http_code} %{ssl_verify_result}"]);
        let said = run(curl.arg(format!("https://x.a.test:{}/", address.port()))).await;
        assert_eq!(said, format!("{version} 200 0"));
    }
    let mut openssl = tokio::process::Command::new("openssl");
    openssl.args(["s_client", "-connect", &address.to_string(), "-servername", "x.a.test", "-alpn", "h2"]);
    let said = run(openssl.args(["-verify_hostname", "x.a.test", "-CAfile"]).arg(&ca)).await;
    for line in ["ALPN protocol: h2", "Verify return code: 0 (ok)", "Verified peername: *.a.test"] {
        assert!(said.contains(line), "{line} is not in {said}");
    }
}
