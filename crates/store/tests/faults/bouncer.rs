//! PgBouncer between the store and its server, in session mode.

use crate::rig::{SOON, app, put, until, write};
use crate::writers::Writers;
use std::sync::Arc;
use std::time::Duration;
use towpath_store::{Expect, PostgresConfig, PostgresStore};
use towpath_testkit::Postgres;
use towpath_testkit::standby::Bouncer;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pooled_connections_write_read_and_notify() {
    let server = Postgres::start();
    let mut bouncer = Bouncer::before(&server);
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", bouncer.port());
    // Notifications pass: nobody looks for himself within this test.
    let config = || PostgresConfig { poll_interval: SOON * 10, ..PostgresConfig::new(&url) };
    let here = Arc::new(PostgresStore::connect(config()).await.unwrap());
    let there = PostgresStore::connect(config()).await.unwrap();
    let writers = Writers::start(&here, 3);
    writers.go_on(50).await;
    tokio::task::block_in_place(|| bouncer.restart());
    writers.go_on(50).await;
    server.cut_connections();
    writers.go_on(50).await;
    writers.end(&here).await;
    // The listening session needs a moment to be there again, and looks when it is.
    tokio::time::sleep(Duration::from_millis(1)).await;
    let newest = write(&*here, put(&app("last"), Expect::Any, 1)).await.unwrap().revision;
    until(&there, newest).await;
}
