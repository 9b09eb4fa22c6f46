//! Commits, one at a time.

use crate::rig::{Rig, app, commit, delete, key_in, new_id, plain, put, put_status, write};
use serde_json::json;
use towpath_store::{Expect, Idempotency, Query, StoreError, Transaction, Write};
use towpath_types::{Generation, Kind, Revision};

pub(crate) async fn what_is_put_is_got(rig: &impl Rig) {
    let store = rig.open().await;
    let before = store.now_ms().await.unwrap();
    let id = new_id();
    let (spec, status) = (json!({"count": 2}), json!({"ready": 1}));
    let put = Write::Put {
        key: app("shop"),
        id: id.clone(),
        expect: Expect::Absent,
        spec: Some(spec.clone()),
        status: Some(status.clone()),
    };
    let commit = commit(&*store, vec![put]).await.unwrap();
    assert_eq!(commit.revision, Revision(1));
    let record = commit.records[0].clone().unwrap();
    assert_eq!(store.get(&app("shop")).await.unwrap(), Some(record.clone()));
    assert_eq!((record.id, record.key, record.spec, record.status), (id, app("shop"), spec, status));
    assert_eq!((record.generation, record.revision), (Generation(1), Revision(1)));
    assert!((before..=store.now_ms().await.unwrap()).contains(&record.created_ms));
    assert_eq!(record.created_ms, record.updated_ms);
    assert_eq!(store.get(&app("other")).await.unwrap(), None);
    assert_eq!(store.get(&key_in(Kind::App, None, None, "shop")).await.unwrap(), None);
}

pub(crate) async fn expectations_are_checked(rig: &impl Rig) {
    let store = rig.open().await;
    let (there, missing) = (app("there"), app("missing"));
    write(&*store, put(&there, Expect::Absent, 1)).await;
    let refused = [
        (put(&there, Expect::Absent, 2), Some(Revision(1))),
        (put(&there, Expect::At(Revision(9)), 2), Some(Revision(1))),
        (put(&missing, Expect::Present, 2), None),
        (put(&missing, Expect::At(Revision(1)), 2), None),
        (delete(&there, Expect::Absent), Some(Revision(1))),
        (delete(&there, Expect::At(Revision(9))), Some(Revision(1))),
        (delete(&missing, Expect::Present), None),
        (delete(&missing, Expect::At(Revision(1))), None),
    ];
    for (write, present) in refused {
        let result = commit(&*store, vec![write.clone()]).await;
        let conflict = matches!(&result, Err(StoreError::Conflict { actual, .. }) if *actual == present);
        assert!(conflict, "{write:?} gave {result:?}");
    }
    assert_eq!(*store.watch().borrow(), Revision(1));

    write(&*store, put(&there, Expect::Any, 2)).await.unwrap();
    write(&*store, put(&there, Expect::Present, 3)).await.unwrap();
    let third = write(&*store, put(&there, Expect::At(Revision(3)), 4)).await.unwrap();
    assert_eq!(third.revision, Revision(4));
    assert_eq!(write(&*store, delete(&there, Expect::At(Revision(4)))).await, None);
    assert_eq!(write(&*store, delete(&missing, Expect::Any)).await, None);
    assert_eq!(write(&*store, delete(&missing, Expect::Absent)).await, None);
    assert_eq!(store.list(&Query::default()).await.unwrap().records, []);
}

pub(crate) async fn a_transaction_is_all_or_nothing(rig: &impl Rig) {
    let store = rig.open().await;
    write(&*store, put(&app("old"), Expect::Absent, 1)).await;
    let writes = vec![
        put(&app("new"), Expect::Absent, 1),
        delete(&app("old"), Expect::Any),
        put(&app("other"), Expect::Present, 1),
    ];
    let refused = commit(&*store, writes).await;
    assert!(matches!(refused, Err(StoreError::Conflict { key, actual: None }) if key == app("other")));
    assert_eq!(store.get(&app("new")).await.unwrap(), None);
    assert!(store.get(&app("old")).await.unwrap().is_some());
    assert_eq!(store.changes(Revision(1), 0).await.unwrap(), []);

    let writes = vec![put(&app("new"), Expect::Absent, 1), delete(&app("old"), Expect::Present)];
    let done = commit(&*store, writes).await.unwrap();
    assert_eq!(done.revision, Revision(2));
    assert_eq!(done.records[0].as_ref().unwrap().revision, Revision(2));
    assert_eq!(done.records[1], None);
}

pub(crate) async fn later_writes_of_a_transaction_see_earlier_ones(rig: &impl Rig) {
    let store = rig.open().await;
    let key = app("a");
    let writes = vec![
        put(&key, Expect::Absent, 1),
        put_status(&key, Expect::Present, "up"),
        put(&key, Expect::At(Revision(1)), 2),
        delete(&key, Expect::Present),
        put(&key, Expect::Absent, 3),
    ];
    let done = commit(&*store, writes).await.unwrap();
    assert_eq!(done.revision, Revision(1));
    let record = store.get(&key).await.unwrap().unwrap();
    assert_eq!((record.spec.clone(), record.status.clone()), (json!(3), json!({})));
    assert_eq!(record.generation, Generation(1));
    assert_eq!(done.records[4], Some(record));
    assert_eq!(done.records[2].as_ref().unwrap().status, json!("up"));
    assert_eq!(store.changes(Revision(0), 0).await.unwrap().len(), 1);
}

pub(crate) async fn generation_follows_the_spec_alone(rig: &impl Rig) {
    let store = rig.open().await;
    let key = app("a");
    let created = write(&*store, put(&key, Expect::Absent, 1)).await.unwrap();
    assert_eq!((created.spec.clone(), created.status.clone()), (json!(1), json!({})));
    let reported = write(&*store, put_status(&key, Expect::Any, "up")).await.unwrap();
    assert_eq!((reported.generation, reported.revision), (Generation(1), Revision(2)));
    assert_eq!((reported.spec, reported.status), (json!(1), json!("up")));
    let changed = write(&*store, put(&key, Expect::Any, 2)).await.unwrap();
    assert_eq!((changed.generation, changed.revision), (Generation(2), Revision(3)));
    assert_eq!((changed.id, changed.created_ms), (created.id.clone(), created.created_ms));
    assert_eq!(changed.status, json!("up"));
    write(&*store, delete(&key, Expect::Any)).await;
    let again = write(&*store, put_status(&key, Expect::Any, "new")).await.unwrap();
    assert_eq!((again.generation, again.revision), (Generation(1), Revision(5)));
    assert_eq!(again.spec, json!({}));
    assert_ne!(again.id, created.id);
}

pub(crate) async fn what_changes_nothing_burns_no_revision(rig: &impl Rig) {
    let store = rig.open().await;
    let key = app("a");
    let spec = json!({"b": [1, 0.1, null], "a": "x"});
    let created = write(&*store, put(&key, Expect::Absent, spec.clone())).await;
    let nothing = [
        vec![put(&key, Expect::Any, spec.clone())],
        vec![put(&key, Expect::Present, json!({"a": "x", "b": [1, 0.1, null]}))],
        vec![put_status(&key, Expect::At(Revision(1)), json!({}))],
        vec![Write::Put { key: key.clone(), id: new_id(), expect: Expect::Any, spec: None, status: None }],
        vec![delete(&app("missing"), Expect::Any)],
        vec![],
    ];
    for writes in nothing {
        let puts = writes.iter().any(|write| matches!(write, Write::Put { .. }));
        let done = commit(&*store, writes).await.unwrap();
        assert_eq!(done.revision, Revision(1));
        if puts {
            assert_eq!(done.records, std::slice::from_ref(&created));
        }
    }
    assert_eq!(store.get(&key).await.unwrap(), created);
    assert_eq!(store.changes(Revision(1), 0).await.unwrap(), []);
    // In one transaction with a change it is not touched either.
    let writes = vec![put(&key, Expect::Any, spec), put(&app("b"), Expect::Any, 1)];
    let done = commit(&*store, writes).await.unwrap();
    assert_eq!((done.revision, done.records[0].clone()), (Revision(2), created));
    assert_eq!(store.changes(Revision(1), 0).await.unwrap().len(), 1);
}

pub(crate) async fn awkward_content_comes_back_unchanged(rig: &impl Rig) {
    let store = rig.open().await;
    let spec = json!({
        "": "\u{0}\u{1f}\"\\ \u{2028} 𝄞 ä",
        "numbers": [0.1, 1e-7, 1.7976931348623157e308, 5e-324, 0.30000000000000004, 123456789012345680.0, -0.0],
        "integers": [u64::MAX, i64::MIN, 0],
        "deep": [[[[[[{}]]]]]],
    });
    for name in [
        "example.com/a b?c='d'\"e\\%_",
        "ä𝄞",
        "-",
        "shop:lane-1:eu'; DROP TABLE resources; --",
        &"n".repeat(1024),
    ] {
        let key = key_in(Kind::Route, Some("o"), None, name);
        let written = write(&*store, put(&key, Expect::Absent, spec.clone())).await;
        let read = store.get(&key).await.unwrap();
        assert_eq!(read, written);
        assert_eq!(read.unwrap().spec.to_string(), spec.to_string());
        let same = commit(&*store, vec![put(&key, Expect::Present, spec.clone())]).await.unwrap();
        assert_eq!(same.records, [written]);
    }
    let large = json!("x".repeat(2_000_000));
    let written = write(&*store, put(&app("large"), Expect::Absent, large.clone())).await.unwrap();
    assert_eq!(written.spec, large);
    assert_eq!(store.get(&app("large")).await.unwrap().unwrap().spec, large);
}

pub(crate) async fn impossible_writes_are_refused(rig: &impl Rig) {
    let store = rig.open().await;
    let mut impossible = Vec::new();
    for name in ["", "a\0b", &"n".repeat(1025)] {
        impossible.push(plain(vec![put(&app(name), Expect::Any, 1)]));
        impossible.push(plain(vec![delete(&app(name), Expect::Any)]));
    }
    for id in ["", "a\0b"] {
        let key = app("a");
        let put = Write::Put { key, id: id.to_owned(), expect: Expect::Any, spec: None, status: None };
        impossible.push(plain(vec![put]));
    }
    for key in ["", "a\0b"] {
        impossible.push(Transaction { idempotency: Some(key.into()), ..plain(vec![]) });
    }
    // An id that another resource has, from before or from the same transaction.
    let id = |name: &str| Write::Put {
        key: app(name),
        id: "same".to_owned(),
        expect: Expect::Any,
        spec: None,
        status: None,
    };
    impossible.push(plain(vec![id("b"), id("c")]));
    for transaction in impossible {
        let refused = store.commit(transaction.clone()).await;
        assert!(matches!(refused, Err(StoreError::Invalid(_))), "{transaction:?} gave {refused:?}");
    }
    write(&*store, id("b")).await;
    assert!(matches!(commit(&*store, vec![id("c")]).await, Err(StoreError::Invalid(_))));
    // For one that is there, the id does not matter.
    write(&*store, put(&app("c"), Expect::Absent, 1)).await;
    commit(&*store, vec![id("c")]).await.unwrap();
}

pub(crate) async fn an_idempotency_key_gives_the_first_result_again(rig: &impl Rig) {
    let store = rig.open().await;
    let once = |name: &str, spec: i64, key: &str| Transaction {
        idempotency: Some(key.into()),
        ..plain(vec![put(&app(name), Expect::Absent, spec), delete(&app("missing"), Expect::Any)])
    };
    let first = store.commit(once("a", 1, "k1")).await.unwrap();
    write(&*store, put(&app("a"), Expect::Any, 2)).await;
    // The same again, and even something else under the same key.
    assert_eq!(store.commit(once("a", 1, "k1")).await.unwrap(), first);
    assert_eq!(store.commit(once("b", 1, "k1")).await.unwrap(), first);
    assert_eq!(store.get(&app("b")).await.unwrap(), None);
    assert_eq!(*store.watch().borrow(), Revision(2));
    // A failed one is not remembered.
    assert!(matches!(store.commit(once("a", 1, "k2")).await, Err(StoreError::Conflict { .. })));
    write(&*store, delete(&app("a"), Expect::Any)).await;
    assert_eq!(store.commit(once("a", 1, "k2")).await.unwrap().revision, Revision(4));
    // One that changed nothing is.
    let nothing = Transaction { idempotency: Some("k3".into()), ..plain(vec![]) };
    let first_nothing = store.commit(nothing.clone()).await.unwrap();
    write(&*store, put(&app("a"), Expect::Any, 5)).await;
    assert_eq!(store.commit(nothing).await.unwrap(), first_nothing);
    // It survives a restart.
    drop(store);
    let store = rig.open().await;
    assert_eq!(store.commit(once("a", 1, "k1")).await.unwrap(), first);
}

pub(crate) async fn an_idempotency_key_belongs_to_one_request_and_is_looked_up(rig: &impl Rig) {
    let store = rig.open().await;
    let named =
        |request: Option<&str>| Idempotency { request: request.map(Into::into), ..Idempotency::from("k") };
    let as_named = |name: &str, request| Transaction {
        idempotency: Some(named(request)),
        ..plain(vec![put(&app(name), Expect::Absent, 1)])
    };
    assert_eq!(store.answered(&named(None)).await.unwrap(), None);
    let first = store.commit(as_named("a", Some("digest-1"))).await.unwrap();
    for same in [Some("digest-1"), None] {
        assert_eq!(store.commit(as_named("a", same)).await.unwrap(), first);
        assert_eq!(store.answered(&named(same)).await.unwrap().as_ref(), Some(&first));
    }
    let other = Some("digest-2");
    assert!(matches!(store.commit(as_named("b", other)).await, Err(StoreError::KeyReused)));
    assert!(matches!(store.answered(&named(other)).await, Err(StoreError::KeyReused)));
    assert_eq!(store.get(&app("b")).await.unwrap(), None);
    // One that was remembered without a digest is any request's: a build of the version before made it.
    let plain_key = Idempotency::from("old");
    let old =
        Transaction { idempotency: Some(plain_key.clone()), ..plain(vec![delete(&app("x"), Expect::Any)]) };
    let old_first = store.commit(old).await.unwrap();
    let asked = Idempotency { request: other.map(Into::into), ..plain_key };
    assert_eq!(store.answered(&asked).await.unwrap(), Some(old_first));
    // What is not to be kept for a day is stored, and not remembered.
    let brief = Idempotency { spec: Some(serde_json::json!({"brief": true})), ..Idempotency::from("brief") };
    let write =
        Transaction { idempotency: Some(brief.clone()), ..plain(vec![put(&app("c"), Expect::Absent, 7)]) };
    let made = store.commit(write.clone()).await.unwrap().records.remove(0).unwrap();
    assert_eq!(store.get(&app("c")).await.unwrap().unwrap().spec, made.spec);
    for again in [store.commit(write).await.unwrap(), store.answered(&brief).await.unwrap().unwrap()] {
        assert_eq!(again.records[0].as_ref().unwrap().spec, serde_json::json!({"brief": true}));
    }
}

pub(crate) async fn everything_is_there_after_a_restart(rig: &impl Rig) {
    let store = rig.open().await;
    for number in 0..10 {
        write(&*store, put(&app(&format!("a{number}")), Expect::Absent, number)).await;
    }
    let page = store.list(&Query::default()).await.unwrap();
    let changes = store.changes(Revision(0), 0).await.unwrap();
    drop(store);
    let store = rig.open().await;
    assert_eq!(*store.watch().borrow(), Revision(10));
    assert_eq!(store.list(&Query::default()).await.unwrap(), page);
    assert_eq!(store.changes(Revision(0), 0).await.unwrap(), changes);
    assert_eq!(write(&*store, put(&app("b"), Expect::Absent, 1)).await.unwrap().revision, Revision(11));
}
