//! The end of a gateway: nothing under way is lost.

use crate::support::{Client, Rig, World};
use serde_json::json;
use std::net::TcpStream;
use std::time::Duration;
use towpath_gateway::{Gateway, GatewayError, GatewaySettings};
use towpath_testkit::HttpApp;

#[tokio::test]
async fn requests_under_way_finish_and_idle_connections_close() {
    let app = HttpApp::start("a");
    let mut rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let (mut busy, mut idle) = (rig.client(), rig.client());
    assert_eq!(idle.request("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n").status, 200);
    busy.send("GET /delay/500 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    towpath_testkit::wait::block_until(crate::support::PATIENCE, "the request at the app", || {
        (app.in_flight() > 0).then_some(())
    });
    let address = rig.address;
    let draining = tokio::spawn(rig.gateway.take().unwrap().drain(Duration::from_secs(10)));
    let clients = tokio::task::spawn_blocking(move || {
        assert!(idle.is_closed());
        let answer = busy.answer();
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
        assert!(busy.is_closed());
    });
    clients.await.unwrap();
    draining.await.unwrap();
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[tokio::test]
async fn the_deadline_ends_what_does_not_end() {
    let app = HttpApp::start("a");
    let mut rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let mut client = rig.client();
    client.send("GET /delay/60000 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    towpath_testkit::wait::block_until(crate::support::PATIENCE, "the request at the app", || {
        (app.in_flight() > 0).then_some(())
    });
    let begun = std::time::Instant::now();
    rig.gateway.take().unwrap().drain(Duration::from_millis(200)).await;
    assert!(begun.elapsed() < Duration::from_secs(50), "long before the answer");
    assert!(client.rest().is_empty());
}

#[tokio::test]
async fn who_sent_nothing_holds_nobody_up_and_who_waits_to_be_accepted_is_served() {
    let app = HttpApp::start("a");
    let mut rig = Rig::start(World::new().app("shop", json!({})).instance("shop", app.address())).await;
    let quiet = rig.client();
    let mut asked: Vec<_> = (0..100).map(|_| rig.client()).collect();
    for client in &mut asked {
        client.send("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n");
    }
    let begun = std::time::Instant::now();
    rig.gateway.take().unwrap().drain(Duration::from_secs(300)).await;
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    for client in &mut asked {
        assert_eq!(client.answer().status, 200);
    }
    drop(quiet);
}

#[tokio::test]
async fn a_taken_port_and_an_unusable_directory_are_said() {
    let rig = Rig::start(World::new()).await;
    for workers in [1, 2] {
        let dir = towpath_testkit::temp_dir();
        let mut settings = GatewaySettings::in_dir(dir.path());
        settings.listen = vec![rig.address];
        settings.workers = workers;
        let error = Gateway::start(settings, None).await.err().unwrap();
        assert!(matches!(error, GatewayError::Listen { address, .. } if address == rig.address), "{error}");
    }
    let mut settings = GatewaySettings::in_dir("/proc/nowhere");
    settings.listen = vec!["127.0.0.1:0".parse().unwrap()];
    let error = Gateway::start(settings, None).await.err().unwrap();
    assert!(error.to_string().contains("/proc/nowhere"), "{error}");
}

#[tokio::test]
async fn several_workers_share_a_port() {
    let app = HttpApp::start("a");
    let world = World::new().app("shop", json!({})).instance("shop", app.address());
    let rig = Rig::start_with(world, |settings| settings.workers = 3, None).await;
    for _ in 0..30 {
        assert_eq!(
            Client::connect(rig.address)
                .request("GET /status/200 HTTP/1.1\r\nHost: shop.localhost\r\n\r\n")
                .status,
            200
        );
    }
    assert!(
        (2..=3).contains(&app.connections()) || app.connections() == 1,
        "each worker keeps its own connection"
    );
}
