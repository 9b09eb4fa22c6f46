//! to be replaced by the contract suite
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]
use towpath_store::*;
use towpath_types::{Kind, Revision, resource::Key};

#[tokio::test]
async fn smoke() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(dir.path().join("store.db")).await.unwrap();
    let key = Key { kind: Kind::App, org: None, space: None, name: "a".into() };
    let put = |v: i64, expect| Transaction {
        writes: vec![Write::Put {
            key: key.clone(),
            id: "x".into(),
            expect,
            spec: Some(v.into()),
            status: None,
        }],
        fence: None,
        idempotency: None,
    };
    let a = store.commit(put(1, Expect::Absent)).await.unwrap();
    assert_eq!(a.revision, Revision(1));
    assert!(matches!(store.commit(put(1, Expect::Absent)).await, Err(StoreError::Conflict { .. })));
    let b = store.commit(put(2, Expect::At(Revision(1)))).await.unwrap();
    assert_eq!(b.revision, Revision(2));
    assert_eq!(store.get(&key).await.unwrap().unwrap(), b.records[0].clone().unwrap());
    assert_eq!(store.list(&Query::default()).await.unwrap().records.len(), 1);
    assert_eq!(store.changes(Revision(0), 0).await.unwrap().len(), 2);
    assert_eq!(*store.watch().borrow(), Revision(2));
}
