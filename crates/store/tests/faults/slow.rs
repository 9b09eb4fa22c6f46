//! A slow way to the server, one that stalls for a while, and a way that counts who comes.

use crate::rig::{PostgresRig, app, put, write};
use crate::writers::Writers;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use towpath_store::{Expect, PostgresConfig, PostgresStore};

/// Passes everything on, after a while; or throws everybody out, and counts.
pub(crate) struct Way {
    pub(crate) address: SocketAddr,
    pub(crate) arrivals: Arc<AtomicU64>,
    shut: Arc<AtomicBool>,
}

impl Way {
    pub(crate) async fn to(port: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let way =
            Self { address: listener.local_addr().unwrap(), arrivals: Arc::default(), shut: Arc::default() };
        let (arrivals, shut) = (way.arrivals.clone(), way.shut.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                arrivals.fetch_add(1, Ordering::SeqCst);
                if shut.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
                let ((from, to), (back_from, back_to)) = (client.into_split(), server.into_split());
                tokio::spawn(carry(from, back_to, delay, shut.clone()));
                tokio::spawn(carry(back_from, to, delay, shut.clone()));
            }
        });
        way
    }

    pub(crate) fn url(&self) -> String {
        format!("postgres://postgres@{}/postgres", self.address)
    }

    pub(crate) fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Duration, shut: Arc<AtomicBool>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(size @ 1..) = from.read(&mut buffer).await {
        tokio::time::sleep(delay).await;
        if shut.load(Ordering::SeqCst) || to.write_all(&buffer[..size]).await.is_err() {
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_server_slows_each_write_and_not_their_number() {
    let rig = PostgresRig::new();
    drop(rig.connect().await);
    let way = Way::to(rig.server.port(), Duration::from_millis(40)).await;
    let store = Arc::new(PostgresStore::connect(PostgresConfig::new(way.url())).await.unwrap());
    write(&*store, put(&app("first"), Expect::Any, 1)).await;
    // Those that wait share a database transaction, so that many are done in the time of a few.
    let before: u64 = transactions(&rig);
    let writers = Writers::start(&store, 50);
    writers.go_on(200).await;
    writers.end(&store).await;
    let (used, writes) = (transactions(&rig) - before, 200);
    assert!(used < writes / 2, "{used} database transactions for more than {writes} writes");
    assert!(way.arrivals.load(Ordering::SeqCst) <= 7, "no session was given up");
}

/// How many database transactions have left their mark on counters.
fn transactions(rig: &PostgresRig) -> u64 {
    let sql = "SELECT coalesce(max(records::bigint), 0) FROM towpath.idempotency WHERE key LIKE E'\\x01%'";
    rig.server.psql(sql).parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_for_a_while_is_waited_for_or_left_and_found_again() {
    let rig = PostgresRig::new();
    let proxy = towpath_testkit::TcpProxy::start(([127, 0, 0, 1], rig.server.port()).into());
    let config = PostgresConfig {
        statement_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(500),
        ..PostgresConfig::new(format!("postgres://postgres@{}/postgres", proxy.address()))
    };
    let store = Arc::new(PostgresStore::connect(config).await.unwrap());
    let writers = Writers::start(&store, 4);
    for stall in [50, 1500] {
        writers.go_on(20).await;
        proxy.freeze();
        tokio::time::sleep(Duration::from_millis(stall)).await;
        proxy.thaw();
    }
    writers.go_on(20).await;
    writers.end(&store).await;
}
