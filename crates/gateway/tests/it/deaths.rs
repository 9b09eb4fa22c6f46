//! Instances that die with requests in flight.

use crate::support::{Client, PATIENCE, Rig, World, dead_address};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use towpath_testkit::HttpApp;
use towpath_testkit::wait::block_until;

const CLIENTS: usize = 12;

fn policy() -> Value {
    json!({"retry": {"retries": 2, "min_per_10s": 1000}, "balancer": "roundrobin", "slow_start": 0})
}

/// What the instances of a test have seen.
#[derive(Default)]
struct Seen {
    met: AtomicUsize,
    held: AtomicUsize,
    answered: AtomicUsize,
    dead: AtomicBool,
}

/// An instance that answers `/meet` when all clients are there. `/last` it answers if it is not `mortal`; else it holds it until
/// it is dead: then it closes its listener, and its connections one after another.
fn instance(seen: &Arc<Seen>, mortal: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    let seen = seen.clone();
    std::thread::spawn(move || {
        while !(mortal && seen.dead.load(SeqCst)) {
            if let Ok((stream, _)) = listener.accept() {
                stream.set_nonblocking(false).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                let (client, seen) = (Client::of(stream), seen.clone());
                std::thread::spawn(move || serve(client, &seen, mortal));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    address
}

fn serve(mut client: Client, seen: &Seen, mortal: bool) {
    while let Some(head) = client.try_read_request() {
        if head[0].starts_with("GET /meet ") {
            seen.met.fetch_add(1, SeqCst);
            block_until(PATIENCE, "the others", || (seen.met.load(SeqCst) >= CLIENTS).then_some(()));
        } else if mortal {
            let turn = seen.held.fetch_add(1, SeqCst);
            block_until(PATIENCE, "death", || seen.dead.load(SeqCst).then_some(()));
            // The listener goes first, and the gateway sees some ends before others.
            std::thread::sleep(Duration::from_millis(20 + 3 * turn as u64));
            return;
        } else {
            seen.answered.fetch_add(1, SeqCst);
        }
        client.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    }
}

#[tokio::test]
async fn of_all_requests_that_a_dying_instance_held_one_finds_out() {
    one_finds_out(1).await;
}

#[tokio::test]
async fn of_all_that_it_held_of_several_workers_one_of_each_finds_out() {
    one_finds_out(3).await;
}

async fn one_finds_out(workers: usize) {
    let seen = Arc::<Seen>::default();
    let world = World::new()
        .app("shop", policy())
        .instance("shop", instance(&seen, true))
        .instance("shop", instance(&seen, false));
    let rig = Rig::start_with(world, |settings| settings.workers = workers, None).await;
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let mut client = rig.client();
            std::thread::spawn(move || {
                ["/meet", "/last"]
                    .map(|path| {
                        client.request(&format!("GET {path} HTTP/1.1\r\nHost: shop.localhost\r\n\r\n"))
                    })
                    .map(|answer| answer.status)
            })
        })
        .collect();
    block_until(PATIENCE, "the last requests", || {
        (seen.held.load(SeqCst) + seen.answered.load(SeqCst) >= CLIENTS).then_some(())
    });
    let held = seen.held.load(SeqCst);
    assert!(held >= 2, "{held}");
    seen.dead.store(true, SeqCst);
    for client in clients {
        assert_eq!(client.join().unwrap(), [200, 200]);
    }
    let failures = rig.metric("towpath_gateway_connect_failures_total");
    assert!(
        failures <= workers as f64,
        "{failures} connections to a dead instance, which held {held} requests"
    );
}

#[tokio::test]
async fn one_that_refuses_a_connection_is_not_chosen_again_by_any_worker() {
    let app = HttpApp::start("a");
    let world =
        World::new().app("shop", policy()).instance("shop", dead_address()).instance("shop", app.address());
    let rig = Rig::start_with(world, |settings| settings.workers = 2, None).await;
    for _ in 0..10 {
        assert_eq!(rig.get("shop.localhost", "/status/200").status, 200);
    }
    assert_eq!(rig.metric("towpath_gateway_connect_failures_total"), 1.0);
    assert_eq!(rig.metric("towpath_gateway_ejections_total"), 1.0);
}

#[tokio::test]
async fn the_only_instance_is_asked_again_each_time() {
    let rig = Rig::start(World::new().app("shop", policy()).instance("shop", dead_address())).await;
    for _ in 0..3 {
        assert_eq!(rig.get("shop.localhost", "/").json()["code"], "connect_failed");
    }
    assert_eq!(rig.metric("towpath_gateway_connect_failures_total"), 3.0);
}
