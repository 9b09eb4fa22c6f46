//! The change feed and its watch.

use crate::rig::{Rig, app, commit, delete, put, until, write};
use serde_json::json;
use towpath_store::{Expect, StoreError};
use towpath_types::resource::Key;
use towpath_types::{Kind, Revision};

pub(crate) async fn the_feed_has_whole_revisions_in_order(rig: &impl Rig) {
    let store = rig.open().await;
    assert_eq!(store.changes(Revision(0), 0).await.unwrap(), []);
    let mut expected = Vec::new();
    for number in 0..10 {
        // Not in the order of names: the feed has the order of the writes.
        let keys = [app(&format!("z{number}")), app(&format!("a{number}")), app(&format!("m{number}"))];
        let writes = keys.iter().map(|key| put(key, Expect::Absent, number)).collect();
        let done = commit(&*store, writes).await.unwrap();
        expected.extend(keys.into_iter().map(|key| (done.revision, key)));
    }
    let all = store.changes(Revision(0), 0).await.unwrap();
    let seen: Vec<_> = all.iter().map(|change| (change.revision, change.key.clone())).collect();
    assert_eq!(seen, expected);
    assert!(all.iter().all(|change| change.record.is_some()));
    for limit in 1..12 {
        let mut paged = Vec::new();
        let mut after = Revision(0);
        while let Some(last) = {
            let page = store.changes(after, limit).await.unwrap();
            assert_eq!(page.len() % 3, 0, "a revision was torn apart");
            assert!(page.len() < limit + 3);
            let last = page.last().map(|change| change.revision);
            paged.extend(page);
            last
        } {
            after = last;
        }
        assert_eq!(paged, all);
    }
    assert_eq!(store.changes(Revision(10), 1).await.unwrap(), []);
}

pub(crate) async fn the_feed_names_entries_of_the_audit_log_without_their_content(rig: &impl Rig) {
    let store = rig.open().await;
    let entry = Key { kind: Kind::Audit, ..app("entry") };
    let writes = vec![put(&app("a"), Expect::Absent, 1), put(&entry, Expect::Absent, 2)];
    commit(&*store, writes).await.unwrap();
    let changes = store.changes(Revision(0), 0).await.unwrap();
    let seen: Vec<_> =
        changes.into_iter().map(|change| (change.key, change.record.map(|r| r.spec))).collect();
    assert_eq!(seen, [(app("a"), Some(json!(1))), (entry.clone(), None)]);
    assert_eq!(store.get(&entry).await.unwrap().map(|record| record.spec), Some(json!(2)));
}

pub(crate) async fn the_feed_shows_the_newest_content(rig: &impl Rig) {
    let store = rig.open().await;
    let (kept, gone, back) = (app("kept"), app("gone"), app("back"));
    for key in [&kept, &gone, &back] {
        write(&*store, put(key, Expect::Absent, 1)).await;
    }
    write(&*store, put(&kept, Expect::Present, 2)).await;
    write(&*store, delete(&gone, Expect::Present)).await;
    write(&*store, delete(&back, Expect::Present)).await;
    write(&*store, put(&back, Expect::Absent, 3)).await;
    let changes = store.changes(Revision(0), 0).await.unwrap();
    let seen: Vec<_> = changes
        .into_iter()
        .map(|change| (change.revision.0, change.key, change.record.map(|r| r.spec)))
        .collect();
    assert_eq!(
        seen,
        [
            (1, kept.clone(), Some(json!(2))),
            (2, gone.clone(), None),
            (3, back.clone(), Some(json!(3))),
            (4, kept, Some(json!(2))),
            (5, gone, None),
            (6, back.clone(), Some(json!(3))),
            (7, back, Some(json!(3))),
        ]
    );
}

pub(crate) async fn an_old_feed_is_compacted(rig: &impl Rig) {
    let store = rig.open_keeping(20).await;
    for number in 0..60 {
        write(&*store, put(&app("a"), Expect::Any, number)).await;
    }
    let Err(StoreError::Compacted { after, oldest }) = store.changes(Revision(0), 0).await else {
        panic!("the feed should not reach back to the beginning");
    };
    assert_eq!(after, Revision(0));
    assert!((37..=41).contains(&oldest.0), "the oldest kept is {oldest}");
    assert!(matches!(store.changes(Revision(oldest.0 - 2), 0).await, Err(StoreError::Compacted { .. })));
    let kept = store.changes(Revision(oldest.0 - 1), 0).await.unwrap();
    assert_eq!(kept.first().unwrap().revision, oldest);
    assert_eq!(kept.len() as u64, 60 - oldest.0 + 1);
    // The bound is remembered, and resources are not touched by it.
    drop(store);
    let store = rig.open().await;
    assert!(matches!(store.changes(Revision(0), 0).await, Err(StoreError::Compacted { .. })));
    assert_eq!(store.get(&app("a")).await.unwrap().unwrap().spec, json!(59));
}

pub(crate) async fn a_reader_ahead_of_the_store_is_told_so(rig: &impl Rig) {
    let store = rig.open().await;
    write(&*store, put(&app("a"), Expect::Any, 1)).await;
    assert_eq!(store.changes(Revision(1), 0).await.unwrap(), []);
    assert!(matches!(store.changes(Revision(2), 0).await, Err(StoreError::Compacted { .. })));
}

pub(crate) async fn a_reader_of_what_was_set_back_is_told_so_however_far_the_store_is_now(rig: &impl Rig) {
    let store = rig.open().await;
    for name in ["a", "b", "c"] {
        write(&*store, put(&app(name), Expect::Absent, 1)).await;
    }
    let kept = store.changes_since(Revision(0), 0, 0).await.unwrap();
    assert_ne!(kept.stamp, 0);
    rig.note();
    for name in ["lost-4", "lost-5"] {
        write(&*store, put(&app(name), Expect::Absent, 1)).await;
    }
    let lost = store.changes_since(Revision(3), kept.stamp, 0).await.unwrap();
    assert_eq!(lost.changes.len(), 2);
    let again = store.changes_since(Revision(5), lost.stamp, 0).await.unwrap();
    assert_eq!((again.changes.len(), again.stamp), (0, lost.stamp), "nothing new");

    let store = rig.set_back(store, 3).await;
    for name in ["new-4", "new-5", "new-6"] {
        write(&*store, put(&app(name), Expect::Absent, 1)).await;
    }
    let told = store.changes_since(Revision(5), lost.stamp, 0).await;
    assert!(matches!(told, Err(StoreError::Compacted { .. })), "{told:?}");
    // Who reads from the beginning, or knows no stamp, reads on.
    assert_eq!(store.changes(Revision(5), 0).await.unwrap().len(), 1);
    let fresh = store.changes_since(Revision(0), 0, 0).await.unwrap();
    assert_eq!(fresh.changes.last().map(|change| change.key.clone()), Some(app("new-6")));
    assert_eq!(store.changes_since(Revision(6), fresh.stamp, 0).await.unwrap().changes, []);
}

pub(crate) async fn the_watch_follows_commits(rig: &impl Rig) {
    let store = rig.open().await;
    let mut watch = store.watch();
    assert_eq!(*watch.borrow_and_update(), Revision(0));
    write(&*store, put(&app("a"), Expect::Any, 1)).await;
    until(&*store, Revision(1)).await;
    assert!(watch.has_changed().unwrap());
    watch.mark_unchanged();
    // What changes nothing wakes nobody up.
    write(&*store, put(&app("a"), Expect::Any, 1)).await;
    assert!(!watch.has_changed().unwrap());
    assert!(commit(&*store, vec![put(&app("a"), Expect::Absent, 2)]).await.is_err());
    assert!(!watch.has_changed().unwrap());
}
