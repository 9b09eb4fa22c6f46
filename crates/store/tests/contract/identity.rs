//! What the platform keeps of orgs, spaces, users, members, sessions, tokens, and of who changed what.

use crate::rig::{Rig, commit, delete, key_in, put, put_status, write};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use towpath_store::{Expect, Query, Store, StoreError};
use towpath_types::identity::{
    Actor, AuditField, AuditSpec, MemberSpec, OrgSpec, Quota, SessionSpec, UserSpec,
};
use towpath_types::resource::Key;
use towpath_types::spec::{Role, SpaceSpec, TokenSpec};
use towpath_types::{ByteSize, Digest, Generation, Kind, OrgName, Revision};

fn org(name: &str) -> OrgName {
    name.parse().unwrap()
}

fn spec(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

fn user(password: &str, epoch: u64) -> UserSpec {
    UserSpec { password: Some(password.into()), operator: false, disabled: false, epoch }
}

fn session(epoch: u64) -> SessionSpec {
    SessionSpec { user: "ann".parse().unwrap(), id: "u-1".into(), epoch, expires_ms: u64::MAX / 4 }
}

fn token(org: Option<&str>, n: u8) -> TokenSpec {
    TokenSpec {
        hash: Digest::from_bytes([n; 32]),
        role: Role::Developer,
        org: org.map(|org| org.parse().unwrap()),
        space: Some("test".parse().unwrap()),
        expires_ms: Some(1),
    }
}

fn entry(org: Option<&str>, n: u64) -> AuditSpec {
    AuditSpec {
        by: Actor::Token { name: "t".into(), org: org.map(|org| org.parse().unwrap()) },
        action: "org.quota".into(),
        org: org.map(|org| org.parse().unwrap()),
        space: None,
        kind: "org".into(),
        name: format!("n{n}"),
        from: Some(Revision(n)),
        fields: vec![AuditField { field: "quota.memory".into(), from: Value::Null, to: json!("4G") }],
        operation: None,
        request: "r\u{1}\"\\ä".into(),
        source: Some("2001:db8::1".into()),
    }
}

/// Entries sort the newest first.
fn entry_key(org: Option<&str>, n: u64) -> Key {
    key_in(Kind::Audit, org, None, &format!("{:016x}-{n:08x}", u64::MAX - n))
}

async fn keeps<S>(store: &dyn Store, key: Key, value: S)
where
    S: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let made = write(store, put(&key, Expect::Absent, spec(&value))).await.unwrap();
    let record = store.get(&key).await.unwrap().unwrap();
    assert_eq!(record, made);
    assert_eq!(record.spec::<S>().unwrap(), value, "{key:?}");
    // Set again to the same it stays as it is.
    let again = write(store, put(&key, Expect::At(made.revision), spec(&value))).await.unwrap();
    assert_eq!(again.generation, Generation(1), "{key:?}");
}

pub(crate) async fn every_kind_comes_back_as_it_was(rig: &impl Rig) {
    let store = rig.open().await;
    let store = &*store;
    let quota = Quota { memory: Some(ByteSize((1 << 53) - 1)), lanes: Some(0), ..Quota::default() };
    keeps(store, key_in(Kind::Org, None, None, "acme"), OrgSpec { quota }).await;
    keeps(store, key_in(Kind::Space, Some("acme"), None, "test"), SpaceSpec::default()).await;
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$aGFzaA";
    keeps(store, key_in(Kind::User, None, None, "ann"), user(hash, u64::MAX / 4)).await;
    let member = MemberSpec { user: "u-1".into(), role: Role::Owner };
    keeps(store, key_in(Kind::Member, Some("acme"), None, "ann"), member).await;
    keeps(store, key_in(Kind::Session, None, None, &Digest::from_bytes([7; 32]).hex()), session(3)).await;
    keeps(store, key_in(Kind::Token, Some("acme"), None, "ci"), token(Some("acme"), 1)).await;
    keeps(store, key_in(Kind::Token, None, None, "ci"), token(None, 2)).await;
    keeps(store, entry_key(Some("acme"), 1), entry(Some("acme"), 1)).await;
    keeps(store, entry_key(None, 1), entry(None, 1)).await;
    let all = store.list(&Query::default()).await.unwrap().records;
    let kinds: Vec<Kind> = all.iter().map(|record| record.key.kind).collect();
    assert_eq!(kinds.len(), 9);
    assert!(
        kinds.is_sorted() && kinds.last() == Some(&Kind::Audit),
        "the log stays the last kind: {kinds:?}"
    );
}

pub(crate) async fn what_is_of_an_org_is_found_and_goes_without_that_of_others(rig: &impl Rig) {
    let store = rig.open().await;
    let places = [None, Some("acme"), Some("acme-2"), Some("acm")];
    for kind in [Kind::Token, Kind::Member, Kind::Audit, Kind::Space] {
        for place in places {
            write(&*store, put(&key_in(kind, place, None, "ann"), Expect::Absent, 1)).await;
        }
    }
    let of = async |kind: Kind, place: &str| {
        let query = Query { kind: Some(kind), org: Some(org(place)), ..Query::default() };
        let records = store.list(&query).await.unwrap().records;
        records.into_iter().map(|record| record.key.org.unwrap().to_string()).collect::<Vec<_>>()
    };
    for kind in [Kind::Token, Kind::Member, Kind::Audit, Kind::Space] {
        assert_eq!(of(kind, "acme").await, ["acme"]);
        let all = store.list(&Query { kind: Some(kind), ..Query::default() }).await.unwrap().records;
        assert_eq!(all.len(), places.len(), "one name in each org, and in none");
    }
    // An org goes with what is in it, and leaves its log.
    let gone = [Kind::Token, Kind::Member, Kind::Space];
    let writes = gone.iter().map(|kind| delete(&key_in(*kind, Some("acme"), None, "ann"), Expect::Any));
    commit(&*store, writes.collect()).await.unwrap();
    for kind in gone {
        assert!(of(kind, "acme").await.is_empty());
        assert_eq!((of(kind, "acme-2").await.len(), of(kind, "acm").await.len()), (1, 1));
    }
    assert_eq!(of(Kind::Audit, "acme").await.len(), 1);
}

pub(crate) async fn an_entry_is_there_with_its_change_or_not_at_all(rig: &impl Rig) {
    let store = rig.open().await;
    let acme = key_in(Kind::Org, None, None, "acme");
    write(&*store, put(&acme, Expect::Absent, json!({}))).await;
    let change = |expect: Expect, n: u64| {
        vec![
            put(&acme, expect, json!({"quota": {"lanes": n}})),
            put(&entry_key(Some("acme"), n), Expect::Absent, spec(&entry(Some("acme"), n))),
        ]
    };
    let lost = commit(&*store, change(Expect::At(Revision(9)), 1)).await;
    assert!(matches!(lost, Err(StoreError::Conflict { .. })), "{lost:?}");
    assert_eq!(store.get(&entry_key(Some("acme"), 1)).await.unwrap(), None);
    let done = commit(&*store, change(Expect::At(Revision(1)), 1)).await.unwrap();
    let written = store.get(&entry_key(Some("acme"), 1)).await.unwrap().unwrap();
    assert_eq!(written.revision, done.revision, "it has the revision of its change");
    // An entry is never written over.
    let twice = commit(&*store, change(Expect::Any, 1)).await;
    assert!(matches!(twice, Err(StoreError::Conflict { .. })), "{twice:?}");
    assert_eq!(store.get(&acme).await.unwrap().unwrap().revision, done.revision);
}

pub(crate) async fn the_log_is_read_newest_first_and_cut_behind_while_it_grows(rig: &impl Rig) {
    let store = rig.open().await;
    let log = async |from: u64, to: u64| {
        for place in [None, Some("acme"), Some("rival")] {
            let write = |n| put(&entry_key(place, n), Expect::Absent, spec(&entry(place, n)));
            commit(&*store, (from..to).map(write).collect()).await.unwrap();
        }
    };
    log(0, 25).await;
    let mut query = Query { kind: Some(Kind::Audit), org: Some(org("acme")), limit: 10, ..Query::default() };
    let (mut told, mut round) = (Vec::new(), 0);
    loop {
        let page = store.list(&query).await.unwrap();
        told.extend(page.records.iter().map(|record| record.spec::<AuditSpec>().unwrap().name));
        // What a page ended with may be gone, and newer ones come, before the next is asked for.
        let last = page.records.last().unwrap().key.clone();
        commit(&*store, vec![delete(&last, Expect::Any)]).await.unwrap();
        log(100 + round, 101 + round).await;
        round += 1;
        query.after = Some(last);
        if !page.more {
            break;
        }
    }
    let expected: Vec<String> = (0..25).rev().map(|n| format!("n{n}")).collect();
    assert_eq!(told, expected, "each once, none of another org");
}

pub(crate) async fn a_session_is_made_only_for_the_password_that_was_looked_at(rig: &impl Rig) {
    let store = rig.open().await;
    let ann = key_in(Kind::User, None, None, "ann");
    let looked_at = write(&*store, put(&ann, Expect::Absent, spec(&user("old", 0)))).await.unwrap();
    let login = |n: u8, revision: Revision| {
        let key = key_in(Kind::Session, None, None, &Digest::from_bytes([n; 32]).hex());
        let touch = towpath_store::Write::Put {
            key: ann.clone(),
            id: looked_at.id.clone(),
            expect: Expect::At(revision),
            spec: None,
            status: None,
        };
        (key.clone(), vec![put(&key, Expect::Absent, spec(&session(0))), touch])
    };
    write(&*store, put(&ann, Expect::Any, spec(&user("new", 1)))).await;
    let (key, writes) = login(1, looked_at.revision);
    let lost = commit(&*store, writes).await;
    assert!(matches!(&lost, Err(StoreError::Conflict { key, .. }) if *key == ann), "{lost:?}");
    assert_eq!(store.get(&key).await.unwrap(), None);
    let present = store.get(&ann).await.unwrap().unwrap();
    let (key, writes) = login(2, present.revision);
    commit(&*store, writes).await.unwrap();
    assert!(store.get(&key).await.unwrap().is_some());
    assert_eq!(store.get(&ann).await.unwrap().unwrap().spec::<UserSpec>().unwrap(), user("new", 1));
}

pub(crate) async fn of_claims_at_the_same_time_one_comes_first(rig: &impl Rig) {
    let store = rig.open().await;
    let acme = key_in(Kind::Org, None, None, "acme");
    let made = write(&*store, put(&acme, Expect::Absent, json!({"quota": {"lanes": 1}}))).await.unwrap();
    let claim = |n: u32| {
        let lane = key_in(Kind::Lane, Some("acme"), Some("test"), &format!("l{n}"));
        let store = store.clone();
        let acme = acme.clone();
        async move {
            let claimed = put_status(&acme, Expect::At(made.revision), json!({"claim": n}));
            commit(&*store, vec![put(&lane, Expect::Absent, json!({})), claimed]).await
        }
    };
    let results = futures::future::join_all((0..16).map(claim)).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let lost = |result: &Result<_, StoreError>| matches!(result, Err(StoreError::Conflict { .. }));
    assert_eq!(results.iter().filter(|result| lost(result)).count(), 15);
    let lanes = store.list(&Query { kind: Some(Kind::Lane), ..Query::default() }).await.unwrap();
    assert_eq!(lanes.records.len(), 1);
    let claimed = store.get(&acme).await.unwrap().unwrap();
    assert_eq!((claimed.generation, &claimed.spec), (Generation(1), &made.spec), "the quota is as it was");
}
