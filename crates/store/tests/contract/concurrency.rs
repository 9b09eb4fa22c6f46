//! Many writers at once.

use crate::rig::{Rig, SOON, app, commit, put};
use std::collections::BTreeSet;
use std::sync::Arc;
use towpath_store::{Expect, Store, StoreError};
use towpath_types::Revision;

pub(crate) async fn concurrent_commits_have_revisions_of_their_own(rig: &impl Rig) {
    let store = rig.open().await;
    let mut tasks = Vec::new();
    for number in 0..200 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let key = app(&format!("a{number}"));
            let done = commit(&*store, vec![put(&key, Expect::Absent, number)]).await.unwrap();
            // What was acknowledged can be read at once.
            assert_eq!(store.get(&key).await.unwrap(), done.records[0]);
            done.revision.0
        }));
    }
    let mut revisions = BTreeSet::new();
    for task in tasks {
        assert!(revisions.insert(task.await.unwrap()), "a revision was given out twice");
    }
    assert_eq!(revisions, (1..=200).collect());
    let feed: Vec<u64> = store.changes(Revision(0), 0).await.unwrap().iter().map(|c| c.revision.0).collect();
    assert_eq!(feed, (1..=200).collect::<Vec<_>>());
}

pub(crate) async fn compare_and_set_loses_no_update(rig: &impl Rig) {
    let store = rig.open().await;
    let key = app("counter");
    commit(&*store, vec![put(&key, Expect::Absent, 0)]).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (store, key) = (store.clone(), key.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                loop {
                    let seen = store.get(&key).await.unwrap().unwrap();
                    let next = seen.spec.as_i64().unwrap() + 1;
                    match commit(&*store, vec![put(&key, Expect::At(seen.revision), next)]).await {
                        Ok(_) => break,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let counter = store.get(&key).await.unwrap().unwrap();
    assert_eq!((counter.spec.as_i64(), counter.generation.0), (Some(160), 161));
}

pub(crate) async fn one_conflict_does_not_harm_others(rig: &impl Rig) {
    let store = rig.open().await;
    let mut tasks = Vec::new();
    for number in 0..100 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            // Five want each name; one gets it.
            commit(&*store, vec![put(&app(&format!("a{}", number % 20)), Expect::Absent, number)]).await
        }));
    }
    let mut done = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => done += 1,
            Err(StoreError::Conflict { actual, .. }) => assert!(actual.is_some()),
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(done, 20);
    assert_eq!(*store.watch().borrow(), Revision(20));
}

/// Reads the feed like a manager does until it has seen `last`; panics if it missed a revision.
pub(crate) async fn follow(store: Arc<dyn Store>, last: u64) {
    let mut watch = store.watch();
    let mut seen = Revision(0);
    while seen.0 < last {
        let newest = *watch.borrow_and_update();
        if newest <= seen {
            tokio::time::timeout(SOON, watch.changed()).await.expect("news in time").unwrap();
            continue;
        }
        let changes = store.changes(seen, 7).await.unwrap();
        assert!(!changes.is_empty(), "the watch shows {newest}, the feed ends at {seen}");
        for change in changes {
            assert!(
                change.revision == seen || change.revision.0 == seen.0 + 1,
                "{} follows {seen}",
                change.revision
            );
            seen = change.revision;
        }
    }
}

pub(crate) async fn a_reader_misses_nothing(rig: &impl Rig) {
    let store = rig.open().await;
    let readers: Vec<_> = (0..2).map(|_| tokio::spawn(follow(store.clone(), 300))).collect();
    let mut writers = Vec::new();
    for writer in 0..10 {
        let store = store.clone();
        writers.push(tokio::spawn(async move {
            for number in 0..30 {
                let key = app(&format!("a{}", number % 5));
                commit(&*store, vec![put(&key, Expect::Any, writer * 1000 + number)]).await.unwrap();
            }
        }));
    }
    for task in writers.into_iter().chain(readers) {
        task.await.unwrap();
    }
}
