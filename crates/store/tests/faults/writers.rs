//! Writers that go on through faults, each step with a key of its own, and what must be true afterwards.

use crate::rig::{SOON, app, plain, put};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use towpath_store::{Expect, PostgresStore, Store, StoreError, Transaction};
use towpath_testkit::poll_until_async;

/// Counters that are raised one by one.
pub(crate) struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    tasks: Vec<JoinHandle<u64>>,
}

impl Writers {
    pub(crate) fn start(store: &Arc<PostgresStore>, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let acknowledged = Arc::new(AtomicU64::new(0));
        let mut tasks = Vec::new();
        for writer in 0..count {
            let (store, stop, acknowledged) = (store.clone(), stop.clone(), acknowledged.clone());
            tasks.push(tokio::spawn(async move {
                let mut number = 0;
                while !stop.load(Ordering::Relaxed) {
                    number += 1;
                    step(&store, writer, number).await;
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                number
            }));
        }
        Self { stop, acknowledged, tasks }
    }

    /// Waits until so many more steps are done.
    pub(crate) async fn go_on(&self, steps: u64) {
        let goal = self.acknowledged.load(Ordering::Relaxed) + steps;
        poll_until_async(SOON, "writers go on", async || {
            (self.acknowledged.load(Ordering::Relaxed) >= goal).then_some(())
        })
        .await;
    }

    /// Ends them; each counter must have been raised exactly as often as was acknowledged.
    pub(crate) async fn end(self, store: &PostgresStore) {
        self.stop.store(true, Ordering::Relaxed);
        for (writer, task) in self.tasks.into_iter().enumerate() {
            let steps = tokio::time::timeout(SOON, task).await.expect("a writer ends").unwrap();
            let record = poll_until_async(SOON, "a read", async || store.get(&app(&name(writer))).await.ok());
            let record = record.await.expect("a counter");
            assert_eq!((record.spec.as_u64(), record.generation.0), (Some(steps), steps), "writer {writer}");
        }
    }
}

fn name(writer: usize) -> String {
    format!("counter{writer}")
}

/// Sets a counter to `number`, and only from the number before; again and again until it is acknowledged.
async fn step(store: &PostgresStore, writer: usize, number: u64) {
    let key = app(&name(writer));
    let mut expect = None;
    loop {
        if expect.is_none() {
            expect = store.get(&key).await.ok().map(|seen| {
                seen.map_or(Expect::Absent, |record| {
                    assert_eq!(
                        record.spec.as_u64(),
                        Some(number - 1),
                        "an acknowledged write is lost, or done twice"
                    );
                    Expect::At(record.revision)
                })
            });
        }
        if let Some(expect) = expect {
            let idempotency = Some(format!("{writer}-{number}").into());
            match store.commit(Transaction { idempotency, ..plain(vec![put(&key, expect, number)]) }).await {
                Ok(_) => return,
                Err(StoreError::Unavailable { .. }) => {}
                Err(other) => panic!("writer {writer}, step {number}: {other}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
