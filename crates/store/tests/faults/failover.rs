//! The server is gone for good, and its standby takes over.

use crate::rig::{app, put, until, write};
use crate::writers::Writers;
use std::sync::Arc;
use towpath_store::{Expect, PostgresConfig, PostgresStore};
use towpath_testkit::Postgres;
use towpath_testkit::postgres::Stop;
use towpath_testkit::standby::Standby;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standby_takes_over_with_every_acknowledged_write() {
    let mut primary = Postgres::start();
    let standby = Standby::of(&primary);
    // The one that takes writes is found, wherever it stands in the list.
    let url = format!(
        "postgres://postgres@127.0.0.1:{},127.0.0.1:{}/postgres?target_session_attrs=read-write",
        standby.port(),
        primary.port()
    );
    let store = Arc::new(PostgresStore::connect(PostgresConfig::new(url)).await.unwrap());
    let writers = Writers::start(&store, 4);
    writers.go_on(100).await;
    tokio::task::block_in_place(|| {
        primary.stop(Stop::Kill);
        standby.promote();
    });
    writers.go_on(100).await;
    writers.end(&store).await;
    let newest = write(&*store, put(&app("last"), Expect::Any, 1)).await.unwrap().revision;
    until(&*store, newest).await;
}
