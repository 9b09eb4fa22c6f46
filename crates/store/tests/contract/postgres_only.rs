//! What only a server has: several managers at it, outages, lost answers, encryption.

use crate::concurrency::follow;
use crate::rig::{PostgresRig, Rig as _, SOON, app, commit, fence, plain, put, row, until, write};
use std::sync::Arc;
use std::time::{Duration, Instant};
use towpath_store::{Expect, PostgresConfig, PostgresStore, Query, Store, StoreError, Transaction};
use towpath_testkit::postgres::Stop;
use towpath_testkit::tls::Authority;
use towpath_testkit::{Fault, Postgres, PostgresOptions, TcpProxy, poll_until_async};
use towpath_types::Revision;

/// A session beside the store.
async fn session(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// A writer of a naive design: its revision comes from a sequence, and it is slow to commit.
#[tokio::test]
async fn a_sequence_would_lose_writes() {
    let rig = PostgresRig::new();
    let (slow, quick) = (session(&rig.server.url()).await, session(&rig.server.url()).await);
    slow.batch_execute("CREATE SEQUENCE s; CREATE TABLE feed (revision bigint)").await.unwrap();
    slow.batch_execute("BEGIN; INSERT INTO feed VALUES (nextval('s'))").await.unwrap();
    quick.batch_execute("INSERT INTO feed VALUES (nextval('s'))").await.unwrap();
    // A reader sees 2, and goes on behind it.
    let newest: i64 = quick.query_one_scalar("SELECT max(revision) FROM feed", &[]).await.unwrap();
    assert_eq!(newest, 2);
    slow.batch_execute("COMMIT").await.unwrap();
    let later = quick.query("SELECT revision FROM feed WHERE revision > 2", &[]).await.unwrap();
    assert!(later.is_empty(), "revision 1 became visible behind the reader's back, and it never comes");
}

/// The store's design under the same conditions: two processes write, and a third one is slow to commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_processes_and_a_slow_one_keep_revisions_in_order() {
    let rig = PostgresRig::new();
    let stores: [Arc<dyn Store>; 2] = [rig.connect().await, rig.connect().await];
    let total = 2 * 4 * 25 + 5;
    let mut tasks: Vec<_> = stores.iter().map(|store| tokio::spawn(follow(store.clone(), total))).collect();
    for writer in 0..8 {
        let store = stores[writer % 2].clone();
        tasks.push(tokio::spawn(async move {
            for number in 0..25 {
                commit(&*store, vec![put(&app(&format!("a{writer}-{number}")), Expect::Absent, 1)])
                    .await
                    .unwrap();
            }
        }));
    }
    let slow = session(&rig.server.url()).await;
    for number in 0..5 {
        let name = format!("slow{number}");
        slow.batch_execute("BEGIN").await.unwrap();
        let revision: i64 = slow
            .query_one_scalar("UPDATE towpath.meta SET revision = revision + 1 RETURNING revision", &[])
            .await
            .unwrap();
        let sql = "INSERT INTO towpath.changes VALUES ($1, 0, 'app', 'o', 's', $2)";
        slow.execute(sql, &[&revision, &name]).await.unwrap();
        // Long enough for the others to have written, if they could.
        slow.batch_execute("SELECT pg_sleep(0.1)").await.unwrap();
        slow.batch_execute("COMMIT").await.unwrap();
    }
    for task in tasks {
        tokio::time::timeout(SOON, task).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_share_a_database_transaction() {
    let rig = PostgresRig::new();
    let store = rig.connect().await;
    write(&*store, put(&app("first"), Expect::Any, 1)).await;
    // A lock of somebody else holds the writer up, so that all hundred wait for sure.
    let other = session(&rig.server.url()).await;
    other.batch_execute("BEGIN; SELECT * FROM towpath.meta FOR UPDATE").await.unwrap();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            commit(&*store, vec![put(&app(&format!("a{number}")), Expect::Absent, number)])
                .await
                .unwrap()
                .revision
                .0
        }));
    }
    tokio::time::timeout(Duration::from_millis(100), futures::future::pending::<()>()).await.unwrap_err();
    other.batch_execute("COMMIT").await.unwrap();
    let mut revisions = Vec::new();
    for task in tasks {
        revisions.push(task.await.unwrap());
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=101).collect::<Vec<_>>());
    // Rows tell which database transaction wrote them.
    let count =
        rig.server.psql("SELECT count(DISTINCT xmin::text) FROM towpath.resources WHERE name <> 'first'");
    assert!(
        (1..=10).contains(&count.parse::<u32>().unwrap()),
        "100 commits took {count} database transactions"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_seen_by_the_watch_of_another_process() {
    let rig = PostgresRig::new();
    let (here, there) = (rig.connect().await, rig.connect().await);
    let done = commit(&*here, vec![put(&app("a"), Expect::Any, 1)]).await.unwrap();
    until(&*there, done.revision).await;
    assert_eq!(there.get(&app("a")).await.unwrap(), done.records[0]);
    // Without notifications, by looking from time to time.
    let config = PostgresConfig { poll_interval: Duration::from_millis(20), ..rig.config() };
    let looking = PostgresStore::connect(config).await.unwrap();
    rig.server.psql("UPDATE towpath.meta SET revision = 7");
    until(&looking, Revision(7)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_start_at_once_make_the_tables_once() {
    let rig = PostgresRig::new();
    let starts: Vec<_> = (0..6)
        .map(|_| {
            let config = rig.config();
            tokio::spawn(async move { PostgresStore::connect(config).await.map(drop) })
        })
        .collect();
    for start in starts {
        start.await.unwrap().unwrap();
    }
    rig.server.psql("UPDATE towpath.meta SET schema = 99");
    let refused = PostgresStore::connect(rig.config()).await.err();
    assert!(matches!(&refused, Some(StoreError::Corrupt(why)) if why.contains("99")), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_the_server_is_survived() {
    let mut rig = PostgresRig::new();
    let config = PostgresConfig { reconnect_grace: Duration::from_millis(50), ..rig.config() };
    let store = PostgresStore::connect(config).await.unwrap();
    let member = fence(1, 1);
    store.register_manager(&row(member)).await.unwrap();
    let first = commit(&store, vec![put(&app("a"), Expect::Any, 1)]).await.unwrap();
    for how in [Stop::Fast, Stop::Immediate, Stop::Kill] {
        rig.server.stop(how);
        let begin = Instant::now();
        let refused = commit(&store, vec![put(&app("b"), Expect::Any, 1)]).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { uncertain: false, .. })), "{refused:?}");
        for refused in [
            store.get(&app("a")).await.err(),
            store.list(&Query::default()).await.err(),
            store.heartbeat(member).await.err(),
        ] {
            assert!(matches!(refused, Some(StoreError::Unavailable { uncertain: false, .. })), "{refused:?}");
        }
        assert!(begin.elapsed() < SOON, "an outage took {:?} to be reported", begin.elapsed());
        rig.server.restart();
        poll_until_async(SOON, "a commit after the restart", async || {
            let writes = vec![put(&app("c"), Expect::Any, format!("{how:?}"))];
            commit(&store, writes).await.ok()
        })
        .await;
        // Each session that is still the old one is replaced; after a failed attempt it takes a moment.
        for _ in 0..5 {
            poll_until_async(SOON, "heartbeats after the restart", async || {
                store.heartbeat(member).await.ok()
            })
            .await;
            let read =
                poll_until_async(SOON, "reads after the restart", async || store.get(&app("a")).await.ok());
            assert_eq!(read.await, first.records[0]);
        }
    }
    let newest = commit(&store, vec![put(&app("d"), Expect::Any, 1)]).await.unwrap().revision;
    until(&store, newest).await;
    assert_eq!(store.get(&app("b")).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_connections_lose_nothing_and_do_nothing_twice() {
    let rig = PostgresRig::new();
    let store = rig.connect().await;
    let mut tasks = Vec::new();
    for writer in 0..4 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            for number in 0..50 {
                let key = app(&format!("a{writer}"));
                loop {
                    // Each increment once, however often it is tried.
                    let seen = match store.get(&key).await {
                        Ok(record) => record,
                        Err(StoreError::Unavailable { .. }) => continue,
                        Err(other) => panic!("{other}"),
                    };
                    let expect = seen.as_ref().map_or(Expect::Absent, |record| Expect::At(record.revision));
                    let transaction = Transaction {
                        idempotency: Some(format!("{writer}-{number}").into()),
                        ..plain(vec![put(&key, expect, number)])
                    };
                    match store.commit(transaction).await {
                        Ok(_) => break,
                        Err(StoreError::Unavailable { .. }) => {}
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }));
    }
    while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        rig.server.cut_connections();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    // The last cut may be found out only now.
    for writer in 0..4 {
        let key = app(&format!("a{writer}"));
        let record = answered(|| store.get(&key)).await.unwrap();
        assert_eq!((record.spec.as_i64(), record.generation.0), (Some(49), 50));
    }
    let all = Query::default();
    assert_eq!(answered(|| store.list(&all)).await.revision, Revision(200));
}

/// What a read says in the end, when connections that were cut are in its way.
async fn answered<T, F: Future<Output = Result<T, StoreError>>>(mut read: impl FnMut() -> F) -> T {
    // A pool has no more connections than this to find out about.
    for _ in 0..100 {
        match read().await {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    panic!("a read still meets connections that were cut");
}

/// A store behind a proxy.
async fn behind_proxy(
    rig: &PostgresRig,
    more: impl FnOnce(&mut PostgresConfig),
) -> (TcpProxy, PostgresStore) {
    let proxy = TcpProxy::start(([127, 0, 0, 1], rig.server.port()).into());
    let mut config = PostgresConfig::new(format!("postgres://postgres@{}/postgres", proxy.address()));
    more(&mut config);
    let store = PostgresStore::connect(config).await.unwrap();
    (proxy, store)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_looked_up() {
    let rig = PostgresRig::new();
    let (proxy, store) = behind_proxy(&rig, |_| ()).await;
    write(&store, put(&app("first"), Expect::Any, 1)).await;

    proxy.when_client_sends(b"COMMIT\0", Fault::LoseAnswer);
    let done = commit(&store, vec![put(&app("a"), Expect::Absent, 1)]).await.unwrap();
    assert_eq!((proxy.triggered(), done.revision), (1, Revision(2)));
    assert_eq!(store.get(&app("a")).await.unwrap(), done.records[0]);

    proxy.when_client_sends(b"COMMIT\0", Fault::LoseRequest);
    let refused = commit(&store, vec![put(&app("b"), Expect::Absent, 1)]).await;
    assert!(matches!(refused, Err(StoreError::Unavailable { uncertain: false, .. })), "{refused:?}");
    assert_eq!(proxy.triggered(), 2);
    assert_eq!(store.get(&app("b")).await.unwrap(), None);
    let done = commit(&store, vec![put(&app("b"), Expect::Absent, 1)]).await.unwrap();
    assert_eq!(done.revision, Revision(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_cannot_be_looked_up_is_uncertain_until_it_is_repeated() {
    let rig = PostgresRig::new();
    let (proxy, store) = behind_proxy(&rig, |config| {
        config.resolve_timeout = Duration::from_secs(1);
        config.connect_timeout = Duration::from_secs(1);
    })
    .await;
    for (number, fault) in [Fault::LoseAnswer, Fault::LoseRequest].into_iter().enumerate() {
        let once = || Transaction {
            idempotency: Some(format!("k{number}").into()),
            ..plain(vec![put(&app(&format!("a{number}")), Expect::Absent, 1)])
        };
        // Opens the session that is to be lost.
        poll_until_async(SOON, "a commit", async || commit(&store, vec![]).await.ok()).await;
        proxy.refuse();
        proxy.when_client_sends(b"COMMIT\0", fault);
        let refused = store.commit(once()).await;
        assert!(matches!(refused, Err(StoreError::Unavailable { uncertain: true, .. })), "{refused:?}");
        proxy.restore();
        let done = poll_until_async(SOON, "a commit", async || store.commit(once()).await.ok()).await;
        assert_eq!(store.commit(once()).await.unwrap(), done);
        let revision = number as u64 + 1;
        assert_eq!(done.revision, Revision(revision));
        assert_eq!(rig.server.psql("SELECT revision FROM towpath.meta"), revision.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_frozen_inside_a_transaction_holds_up_nobody_for_long() {
    let rig = PostgresRig::new();
    let (proxy, frozen) = behind_proxy(&rig, |config| {
        config.idle_in_transaction_timeout = Duration::from_secs(2);
    })
    .await;
    let member = fence(1, 1);
    frozen.register_manager(&row(member)).await.unwrap();
    let healthy = rig.connect().await;
    // It has the lock, and stops before it writes.
    proxy.when_client_sends(b"COMMIT\0", Fault::Freeze);
    let frozen = Arc::new(frozen);
    let late = tokio::spawn({
        let frozen = frozen.clone();
        async move {
            let writes = vec![put(&app("late"), Expect::Any, 1)];
            frozen.commit(Transaction { fence: Some(member), ..plain(writes) }).await
        }
    });
    poll_until_async(SOON, "a frozen commit", async || (proxy.triggered() == 1).then_some(())).await;
    commit(&*healthy, vec![put(&app("a"), Expect::Any, 1)]).await.unwrap();
    poll_until_async(SOON, "an eviction", async || {
        (healthy.evict_silent(100).await.unwrap() == [member.manager]).then_some(())
    })
    .await;
    // It goes on where it was, past its eviction: nothing of it takes effect.
    proxy.thaw();
    let refused = tokio::time::timeout(SOON, late).await.unwrap().unwrap();
    assert!(matches!(refused, Err(StoreError::Unavailable { uncertain: false, .. })), "{refused:?}");
    assert_eq!(healthy.get(&app("late")).await.unwrap(), None);
    let writes = vec![put(&app("late"), Expect::Any, 1)];
    let refused = frozen.commit(Transaction { fence: Some(member), ..plain(writes) }).await;
    assert!(matches!(refused, Err(StoreError::Fenced(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_unreadable_record_does_not_take_its_batch_with_it() {
    let rig = PostgresRig::new();
    let store = rig.connect().await;
    write(&*store, put(&app("bad"), Expect::Any, 1)).await;
    rig.server.psql("UPDATE towpath.resources SET spec = '{' WHERE name = 'bad'");
    assert!(matches!(store.get(&app("bad")).await, Err(StoreError::Corrupt(_))));
    let other = session(&rig.server.url()).await;
    other.batch_execute("BEGIN; SELECT * FROM towpath.meta FOR UPDATE").await.unwrap();
    let start = |name: &'static str| {
        let store = store.clone();
        tokio::spawn(async move { commit(&*store, vec![put(&app(name), Expect::Any, 2)]).await })
    };
    let (before, bad, after) = (start("before"), start("bad"), start("after"));
    tokio::time::timeout(Duration::from_millis(50), futures::future::pending::<()>()).await.unwrap_err();
    other.batch_execute("COMMIT").await.unwrap();
    before.await.unwrap().unwrap();
    after.await.unwrap().unwrap();
    let refused = bad.await.unwrap();
    assert!(matches!(refused, Err(StoreError::Corrupt(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_no_writes_is_unavailable() {
    let rig = PostgresRig::new();
    let store = rig.connect().await;
    write(&*store, put(&app("a"), Expect::Any, 1)).await;
    rig.server.psql("ALTER SYSTEM SET default_transaction_read_only = on");
    rig.server.psql("SELECT pg_reload_conf()");
    let refused = poll_until_async(SOON, "a refusal", async || {
        commit(&*store, vec![put(&app("a"), Expect::Any, rand_number())]).await.err()
    })
    .await;
    let clear =
        matches!(&refused, StoreError::Unavailable { why, uncertain: false } if why.contains("read-only"));
    assert!(clear, "{refused:?}");
    assert!(store.get(&app("a")).await.unwrap().is_some());
}

fn rand_number() -> u64 {
    fastrand::u64(..)
}

#[tokio::test]
async fn encryption_is_verified() {
    let authority = Authority::new();
    let certificate = authority.issue(&["127.0.0.1"]);
    let file = |name: &str, content: &str| (name.to_owned(), content.to_owned());
    let server = Postgres::start_with(&PostgresOptions {
        settings: ["ssl=on", "ssl_cert_file=$DIR/server.pem", "ssl_key_file=$DIR/server.key"]
            .map(Into::into)
            .into(),
        hba: Some("hostssl all all 127.0.0.1/32 trust\n".to_owned()),
        files: vec![file("server.pem", &certificate.certificate), file("server.key", &certificate.key)],
    });
    let directory = towpath_testkit::temp_dir();
    let ca = directory.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let store = PostgresStore::connect(PostgresConfig {
        tls_ca: Some(ca.clone()),
        ..PostgresConfig::new(server.url())
    });
    let store = store.await.unwrap();
    write(&store, put(&app("a"), Expect::Any, 1)).await;
    assert!(store.get(&app("a")).await.unwrap().is_some());

    // The server insists on encryption; and an authority that nobody here knows is not trusted.
    assert!(PostgresStore::connect(PostgresConfig::new(server.url())).await.is_err());
    let required = PostgresConfig::new(format!("{}?sslmode=require", server.url()));
    let refused = PostgresStore::connect(required).await.err();
    let clear = matches!(&refused, Some(StoreError::Unavailable { why, .. }) if why.contains("certificate"));
    assert!(clear, "{refused:?}");
    std::fs::write(&ca, "no certificate").unwrap();
    let unreadable = PostgresConfig { tls_ca: Some(ca), ..PostgresConfig::new(server.url()) };
    assert!(PostgresStore::connect(unreadable).await.is_err());
}

#[tokio::test]
async fn a_wrong_url_or_password_is_one_clear_line() {
    for bad in ["", "not a url", "postgres:///nohost", "postgres://host:notaport/x"] {
        let refused = PostgresStore::connect(PostgresConfig::new(bad)).await.err();
        assert!(matches!(refused, Some(StoreError::Invalid(_))), "{bad:?}: {refused:?}");
    }
    let server = Postgres::start_with(&PostgresOptions {
        hba: Some("host all all 127.0.0.1/32 scram-sha-256\n".to_owned()),
        ..PostgresOptions::default()
    });
    let url = server.url().replace("postgres@", "postgres:hunter2@");
    // At once: waiting would not make it right.
    let config = PostgresConfig { start_patience: Duration::from_secs(3600), ..PostgresConfig::new(url) };
    let refused = PostgresStore::connect(config).await.err().unwrap();
    let text = refused.to_string();
    assert!(text.contains("password") && !text.contains("hunter2") && !text.contains('\n'), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_waits_for_a_server_that_is_not_there_yet() {
    let mut rig = PostgresRig::new();
    let config = rig.config();
    let patience = |start_patience| PostgresConfig { start_patience, ..config.clone() };
    rig.server.stop(Stop::Fast);
    let refused = PostgresStore::connect(patience(Duration::from_millis(100))).await.err();
    assert!(matches!(refused, Some(StoreError::Unavailable { uncertain: false, .. })), "{refused:?}");
    let connecting = tokio::spawn(PostgresStore::connect(patience(SOON * 4)));
    tokio::time::timeout(Duration::from_millis(300), futures::future::pending::<()>()).await.unwrap_err();
    assert!(!connecting.is_finished(), "it waits");
    rig.server.restart();
    let store = connecting.await.unwrap().unwrap();
    write(&store, put(&app("a"), Expect::Absent, 1)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_in_a_session_that_was_cut_is_asked_again_in_another() {
    let rig = PostgresRig::new();
    let (proxy, store) = behind_proxy(&rig, |config| config.readers = 1).await;
    write(&store, put(&app("a"), Expect::Absent, 1)).await;
    for _ in 0..20 {
        assert!(store.get(&app("a")).await.unwrap().is_some());
        proxy.cut();
        proxy.restore();
        // Whether the store knows of it already or not.
        assert!(store.get(&app("a")).await.unwrap().is_some());
    }
    for _ in 0..5 {
        rig.server.psql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'towpath'",
        );
        assert!(store.get(&app("a")).await.unwrap().is_some());
    }
}

#[tokio::test]
async fn a_managers_weight_is_kept_and_one_of_the_build_before_has_the_normal_one() {
    let rig = PostgresRig::new();
    let store = rig.connect().await;
    store.register_manager(&towpath_store::ManagerRow { weight: 2.5, ..row(fence(1, 1)) }).await.unwrap();
    let session = session(&rig.server.url()).await;
    let other = row(fence(2, 1)).manager;
    // As a build without weights registers.
    let sql = format!(
        "INSERT INTO towpath.managers (manager, incarnation, address, version, started_at, seen_at, evicted)
         VALUES ('{other}', 1, '', '', clock_timestamp(), clock_timestamp(), false)"
    );
    session.batch_execute(&sql).await.unwrap();
    let mut weights: Vec<f32> = store.managers().await.unwrap().iter().map(|row| row.weight).collect();
    weights.sort_by(f32::total_cmp);
    assert_eq!(weights, [1.0, 2.5]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watch_goes_back_with_a_store_that_was_set_back() {
    let rig = PostgresRig::new();
    let config = PostgresConfig { poll_interval: Duration::from_millis(100), ..rig.config() };
    let store: Arc<dyn Store> = Arc::new(PostgresStore::connect(config).await.unwrap());
    for name in ["a", "b", "c"] {
        write(&*store, put(&app(name), Expect::Absent, 1)).await;
    }
    until(&*store, Revision(3)).await;
    let store = rig.set_back(store, 1).await;
    let mut watch = store.watch();
    // The answer holds the watch: it is not kept.
    let is_back = tokio::time::timeout(SOON, watch.wait_for(|seen| *seen == Revision(1))).await.is_ok();
    assert!(is_back, "it still shows {}", *store.watch().borrow());
    write(&*store, put(&app("d"), Expect::Absent, 1)).await;
    until(&*store, Revision(2)).await;
}
