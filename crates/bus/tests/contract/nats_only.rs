//! What only a server has: credentials, encryption, being slow to come, being frozen.

use crate::rig::{SOON, next_text, until};
use bytes::Bytes;
use std::time::Duration;
use towpath_bus::{Bus, BusError, BusState, NatsAuth, NatsBus, NatsConfig, NatsTls};
use towpath_testkit::tls::Authority;
use towpath_testkit::{NatsOptions, NatsServer, free_port};

async fn works(config: NatsConfig) {
    let bus = NatsBus::connect(config).await.unwrap();
    let mut subscription = bus.subscribe("a").await.unwrap();
    bus.publish("a", Bytes::from_static(b"b")).await.unwrap();
    assert_eq!(next_text(&mut subscription).await, "b");
}

fn server(config: &str) -> NatsServer {
    NatsServer::start_with(&NatsOptions { config: config.to_owned(), ..NatsOptions::default() })
}

#[tokio::test]
async fn a_user_and_password() {
    let server = server("authorization { user: \"tow\", password: \"path\" }");
    let auth = |password: &str| NatsAuth::User { user: "tow".to_owned(), password: password.to_owned() };
    works(NatsConfig { auth: auth("path"), ..NatsConfig::new(server.url()) }).await;
    works(NatsConfig::new(format!("nats://tow:path@127.0.0.1:{}", server.port()))).await;
    let refused = NatsBus::connect(NatsConfig { auth: auth("wrong"), ..NatsConfig::new(server.url()) }).await;
    assert!(matches!(&refused, Err(BusError::Unreachable(why)) if why.contains("authorization")), "refused");
}

#[tokio::test]
async fn a_token() {
    let server = server("authorization { token: \"s3cret\" }");
    works(NatsConfig { auth: NatsAuth::Token("s3cret".to_owned()), ..NatsConfig::new(server.url()) }).await;
    assert!(NatsBus::connect(NatsConfig::new(server.url())).await.is_err());
}

#[tokio::test]
async fn an_nkey() {
    let pair = nkeys::KeyPair::new_user();
    let server = server(&format!("authorization {{ users: [ {{ nkey: \"{}\" }} ] }}", pair.public_key()));
    let file = server.directory().join("user.nk");
    std::fs::write(&file, format!("{}\n", pair.seed().unwrap())).unwrap();
    works(NatsConfig { auth: NatsAuth::NkeyFile(file), ..NatsConfig::new(server.url()) }).await;
    let missing = NatsAuth::NkeyFile("/nowhere/user.nk".into());
    let refused = NatsBus::connect(NatsConfig { auth: missing, ..NatsConfig::new(server.url()) }).await;
    assert!(matches!(&refused, Err(BusError::Invalid(why)) if why.contains("/nowhere/user.nk")), "refused");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_or_awaited() {
    let url = format!("nats://127.0.0.1:{}", free_port());
    let refused = NatsBus::connect(NatsConfig::new(&url)).await;
    assert!(matches!(refused, Err(BusError::Unreachable(_))));

    let mut server = NatsServer::start();
    server.stop();
    let config = NatsConfig { retry_initial: true, ..NatsConfig::new(server.url()) };
    let bus = NatsBus::connect(config).await.unwrap();
    assert_eq!(*bus.state().borrow(), BusState::Down);
    assert!(matches!(bus.publish("a", Bytes::new()).await, Err(BusError::Unreachable(_))));
    assert!(matches!(bus.flush().await, Err(BusError::Unreachable(_))));
    let mut subscription = bus.subscribe("a").await.unwrap();
    server.restart();
    until(&bus, BusState::Up).await;
    bus.publish("a", Bytes::from_static(b"b")).await.unwrap();
    assert_eq!(next_text(&mut subscription).await, "b");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_server_is_an_outage() {
    let server = NatsServer::start();
    let config = NatsConfig {
        ping_interval: Duration::from_millis(100),
        connect_timeout: Duration::from_millis(500),
        ..NatsConfig::new(server.url())
    };
    let bus = NatsBus::connect(config).await.unwrap();
    let mut subscription = bus.subscribe("a").await.unwrap();
    server.pause();
    until(&bus, BusState::Down).await;
    assert!(matches!(bus.request("a", Bytes::new(), SOON).await, Err(BusError::Unreachable(_))));
    server.resume();
    until(&bus, BusState::Up).await;
    bus.publish("a", Bytes::from_static(b"awake")).await.unwrap();
    assert_eq!(next_text(&mut subscription).await, "awake");
}

#[tokio::test]
async fn a_servers_smaller_limit_is_respected() {
    let server = server("max_payload: 1000");
    let bus = NatsBus::connect(NatsConfig::new(server.url())).await.unwrap();
    let refused = bus.publish("a", Bytes::from(vec![0; 1001])).await;
    assert!(matches!(refused, Err(BusError::TooLarge(1001))), "{refused:?}");
}

#[tokio::test]
async fn encryption_with_certificates_on_both_sides() {
    let authority = Authority::new();
    let certificate = authority.issue(&["127.0.0.1"]);
    let mine = authority.issue(&["client"]);
    let config = "tls { cert_file: \"$DIR/server.pem\", key_file: \"$DIR/server.key\", ca_file: \"$DIR/ca.pem\", verify: true }";
    let file = |name: &str, content: &str| (name.to_owned(), content.to_owned());
    let server = NatsServer::start_with(&NatsOptions {
        config: config.to_owned(),
        files: vec![
            file("ca.pem", &authority.pem()),
            file("server.pem", &certificate.certificate),
            file("server.key", &certificate.key),
            file("client.pem", &mine.certificate),
            file("client.key", &mine.key),
        ],
        ..NatsOptions::default()
    });
    let path = |name: &str| server.directory().join(name);
    let tls = NatsTls {
        required: true,
        ca: Some(path("ca.pem")),
        certificate: Some((path("client.pem"), path("client.key"))),
    };
    works(NatsConfig { tls: tls.clone(), ..NatsConfig::new(server.url()) }).await;
    let unknown = NatsTls { certificate: None, ..tls.clone() };
    assert!(NatsBus::connect(NatsConfig { tls: unknown, ..NatsConfig::new(server.url()) }).await.is_err());
    let distrusting = NatsTls { ca: Some(path("client.pem")), ..tls };
    assert!(
        NatsBus::connect(NatsConfig { tls: distrusting, ..NatsConfig::new(server.url()) }).await.is_err()
    );

    let plain = NatsServer::start();
    let insisting = NatsTls { required: true, ..NatsTls::default() };
    assert!(NatsBus::connect(NatsConfig { tls: insisting, ..NatsConfig::new(plain.url()) }).await.is_err());
}
