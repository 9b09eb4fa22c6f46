//! The server is away while many want something of it. Attempts to reach it must be few, and it must not be run over when it
//! is back.

use crate::rig::{PostgresRig, SOON, app, commit, put};
use crate::slow::Way;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use towpath_store::{Expect, PostgresConfig, PostgresStore, Store, StoreError};
use towpath_testkit::poll_until_async;

const STORES: u64 = 10;
/// A writer, four readers, a listener.
const SESSIONS: u64 = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_callers_in_an_outage_make_few_attempts_and_each_session_comes_back_once() {
    let rig = PostgresRig::new();
    let way = Way::to(rig.server.port(), Duration::ZERO).await;
    let mut stores = Vec::new();
    for _ in 0..STORES {
        stores.push(Arc::new(PostgresStore::connect(PostgresConfig::new(way.url())).await.unwrap()));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for (number, store) in stores.iter().enumerate() {
        for caller in 0..20 {
            let (store, stop) = (store.clone(), stop.clone());
            callers.push(tokio::spawn(async move {
                let key = app(&format!("a{number}-{caller}"));
                let mut calls = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    calls += 1;
                    let outcome = if caller % 2 == 0 {
                        store.get(&key).await.map(drop)
                    } else {
                        commit(&*store, vec![put(&key, Expect::Any, calls)]).await.map(drop)
                    };
                    let expected = matches!(outcome, Ok(()) | Err(StoreError::Unavailable { .. }));
                    assert!(expected, "{outcome:?}");
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                calls
            }));
        }
    }
    way.shut(true);
    rig.server.cut_connections();
    // Until the first attempts have failed.
    poll_until_async(SOON, "an outage", async || stores[0].get(&app("x")).await.is_err().then_some(())).await;
    let (before, begin) = (way.arrivals.load(Ordering::SeqCst), Instant::now());
    tokio::time::sleep(Duration::from_secs(4)).await;
    let attempts = way.arrivals.load(Ordering::SeqCst) - before;
    // Pauses are 25 ms at the least, double each time, and end at half a second (readers) or more.
    let each = begin.elapsed().as_millis() as u64 / 500 + 6;
    let most = STORES * SESSIONS * each;
    assert!(attempts <= most, "{attempts} attempts, at most {most} would be moderate");

    let before = way.arrivals.load(Ordering::SeqCst);
    way.shut(false);
    for (number, store) in stores.iter().enumerate() {
        poll_until_async(SOON, "reads and writes", async || {
            let write = vec![put(&app(&format!("again{number}")), Expect::Any, 1)];
            (store.get(&app("x")).await.is_ok() && commit(&**store, write).await.is_ok()).then_some(())
        })
        .await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut calls = 0;
    for caller in callers {
        calls += caller.await.unwrap();
    }
    assert!(calls > attempts, "{calls} calls");
    // Every session is opened once; some attempts were still under way when the server came back.
    let came = way.arrivals.load(Ordering::SeqCst) - before;
    assert!(came <= 2 * STORES * SESSIONS, "{came} connections for {} sessions", STORES * SESSIONS);
}
