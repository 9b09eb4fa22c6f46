//! What only a file has: modes, locks, damage, a full disk, and a process that is killed while it writes.

use crate::rig::{Rig, SqliteRig, app, commit, delete, put, write};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use towpath_store::{Expect, SqliteOptions, SqliteStore, Store, StoreError};
use towpath_testkit::Process;
use towpath_types::Revision;

async fn open(rig: &SqliteRig, options: SqliteOptions) -> Result<SqliteStore, StoreError> {
    SqliteStore::open_with(rig.path(), options).await
}

/// Another process' connection.
fn other(rig: &SqliteRig) -> rusqlite::Connection {
    rusqlite::Connection::open(rig.path()).unwrap()
}

#[tokio::test]
async fn nobody_else_may_read_the_files() {
    let rig = SqliteRig::new();
    std::fs::write(rig.path(), "").unwrap();
    std::fs::set_permissions(rig.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let store = rig.open().await;
    write(&*store, put(&app("a"), Expect::Any, 1)).await;
    for ending in ["", "-wal", "-shm"] {
        let path = format!("{}{ending}", rig.path().display());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_wait_share_a_sql_transaction() {
    let rig = SqliteRig::new();
    let store = Arc::new(open(&rig, SqliteOptions::default()).await.unwrap());
    write(&*store, put(&app("first"), Expect::Any, 1)).await;
    let before = store.batches();
    // A lock of somebody else holds the writer up, so that all hundred wait for sure.
    let lock = other(&rig);
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let mut tasks = Vec::new();
    for number in 0..100 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            commit(&*store, vec![put(&app(&format!("a{number}")), Expect::Any, number)]).await.unwrap()
        }));
    }
    tokio::time::timeout(Duration::from_millis(50), futures::future::pending::<()>()).await.unwrap_err();
    lock.execute_batch("ROLLBACK").unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    let batches = store.batches() - before;
    assert!((1..=10).contains(&batches), "100 commits took {batches} SQL transactions");
}

#[tokio::test]
async fn a_lock_of_another_process_makes_it_unavailable() {
    let rig = SqliteRig::new();
    let options = || SqliteOptions {
        busy_timeout: Duration::from_millis(50),
        open_patience: Duration::from_millis(100),
        ..SqliteOptions::default()
    };
    let store = open(&rig, options()).await.unwrap();
    write(&store, put(&app("a"), Expect::Any, 1)).await;
    let lock = other(&rig);
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    let refused = commit(&store, vec![put(&app("a"), Expect::Any, 2)]).await;
    assert!(
        matches!(&refused, Err(StoreError::Unavailable { why, uncertain: false }) if why.contains("lock")),
        "{refused:?}"
    );
    // Reads go on, and so do writes when the lock is gone.
    assert_eq!(store.get(&app("a")).await.unwrap().unwrap().spec, 1);
    lock.execute_batch("ROLLBACK").unwrap();
    assert_eq!(write(&store, put(&app("a"), Expect::Any, 2)).await.unwrap().revision, Revision(2));

    drop(store);
    lock.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").unwrap();
    let refused = open(&rig, options()).await.err();
    let clear =
        matches!(&refused, Some(StoreError::Unavailable { why, .. }) if why.contains("another process"));
    assert!(clear, "{refused:?}");
    // A start waits for who lets go in time.
    let patient = SqliteOptions { open_patience: crate::rig::SOON, ..options() };
    let opening = tokio::spawn(SqliteStore::open_with(rig.path(), patient));
    tokio::time::timeout(Duration::from_millis(300), futures::future::pending::<()>()).await.unwrap_err();
    assert!(!opening.is_finished(), "it waits");
    drop(lock);
    let store = opening.await.unwrap().unwrap();
    assert_eq!(store.get(&app("a")).await.unwrap().unwrap().spec, 2);
}

#[tokio::test]
async fn what_is_no_database_is_refused_and_left_alone() {
    let rig = SqliteRig::new();
    let text = "this is a letter, not a database. ".repeat(100);
    std::fs::write(rig.path(), &text).unwrap();
    let refused = open(&rig, SqliteOptions::default()).await.err();
    assert!(matches!(refused, Some(StoreError::Corrupt(_))), "{refused:?}");
    assert_eq!(std::fs::read_to_string(rig.path()).unwrap(), text);

    let refused = SqliteStore::open(rig.path().parent().unwrap()).await.err();
    assert!(matches!(refused, Some(StoreError::Unavailable { .. })), "{refused:?}");
    let refused = SqliteStore::open("/nowhere/at/all/store.db").await.err();
    let named =
        matches!(&refused, Some(StoreError::Unavailable { why, .. }) if why.contains("/nowhere/at/all"));
    assert!(named, "{refused:?}");
}

#[tokio::test]
async fn databases_of_others_and_of_newer_builds_are_refused() {
    let rig = SqliteRig::new();
    other(&rig).execute_batch("CREATE TABLE letters (text)").unwrap();
    let refused = open(&rig, SqliteOptions::default()).await.err();
    assert!(
        matches!(&refused, Some(StoreError::Corrupt(why)) if why.contains("not one of Towpath's")),
        "{refused:?}"
    );

    let rig = SqliteRig::new();
    drop(rig.open().await);
    other(&rig).execute_batch("UPDATE meta SET value = 99 WHERE name = 'schema'").unwrap();
    let refused = open(&rig, SqliteOptions::default()).await.err();
    assert!(matches!(&refused, Some(StoreError::Corrupt(why)) if why.contains("99")), "{refused:?}");
}

#[tokio::test]
async fn one_unreadable_record_does_not_take_the_others_with_it() {
    let rig = SqliteRig::new();
    let store = rig.open().await;
    write(&*store, put(&app("bad"), Expect::Any, 1)).await;
    write(&*store, put(&app("good"), Expect::Any, 1)).await;
    other(&rig).execute_batch("UPDATE resources SET spec = '{' WHERE name = 'bad'").unwrap();
    assert!(matches!(store.get(&app("bad")).await, Err(StoreError::Corrupt(_))));
    assert!(matches!(
        commit(&*store, vec![put(&app("bad"), Expect::Any, 2)]).await,
        Err(StoreError::Corrupt(_))
    ));
    assert_eq!(store.get(&app("good")).await.unwrap().unwrap().spec, 1);
    write(&*store, put(&app("good"), Expect::Any, 2)).await;
}

#[tokio::test]
async fn damaged_pages_are_reported() {
    let rig = SqliteRig::new();
    let store = rig.open().await;
    for number in 0..200 {
        write(&*store, put(&app(&format!("a{number}")), Expect::Any, "x".repeat(1000))).await;
    }
    drop(store);
    let mut content = std::fs::read(rig.path()).unwrap();
    assert!(content.len() > 100_000, "the file has {} bytes", content.len());
    for byte in content.iter_mut().skip(4096 * 3) {
        *byte = 0xa5;
    }
    std::fs::write(rig.path(), content).unwrap();
    let found = match SqliteStore::open(rig.path()).await {
        Ok(store) => store.list(&towpath_store::Query::default()).await.err(),
        Err(error) => Some(error),
    };
    assert!(matches!(found, Some(StoreError::Corrupt(_))), "{found:?}");
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_loses_nothing() {
    let rig = SqliteRig::new();
    let store = open(&rig, SqliteOptions { max_pages: 60, ..SqliteOptions::default() }).await.unwrap();
    let mut written = Vec::new();
    let refused = loop {
        let name = format!("a{}", written.len());
        match commit(&store, vec![put(&app(&name), Expect::Any, "x".repeat(5000))]).await {
            Ok(done) => written.push((name, done)),
            Err(error) => break error,
        }
        assert!(written.len() < 100, "the disk is never full");
    };
    assert!(
        matches!(&refused, StoreError::Unavailable { why, uncertain: false } if why.contains("no room")),
        "{refused:?}"
    );
    assert!(written.len() > 10);
    let last = written.last().unwrap().1.revision;
    for (name, done) in &written {
        assert_eq!(store.get(&app(name)).await.unwrap(), done.records[0], "{name}");
    }
    assert_eq!(*store.watch().borrow(), last);
    // What makes room is still possible, and then the order goes on.
    for (name, _) in &written[..5] {
        write(&store, delete(&app(name), Expect::Present)).await;
    }
    let again = write(&store, put(&app("again"), Expect::Any, "x".repeat(5000))).await.unwrap();
    assert_eq!(again.revision.0, last.0 + 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_on_a_full_disk_answers_everybody() {
    let rig = SqliteRig::new();
    let store =
        Arc::new(open(&rig, SqliteOptions { max_pages: 40, ..SqliteOptions::default() }).await.unwrap());
    let mut tasks = Vec::new();
    for number in 0..60 {
        let store = store.clone();
        tasks.push(tokio::spawn(async move {
            let key = app(&format!("a{number}"));
            (key.clone(), commit(&*store, vec![put(&key, Expect::Any, "x".repeat(5000))]).await)
        }));
    }
    let mut refused = 0;
    for task in tasks {
        let (key, result) = task.await.unwrap();
        let there = store.get(&key).await.unwrap();
        match result {
            Ok(done) => assert_eq!(there, done.records[0]),
            Err(StoreError::Unavailable { uncertain: false, .. }) => {
                assert_eq!(there, None);
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > 0);
}

/// Not a test of its own: the process that `nothing_acknowledged_is_lost_when_the_process_is_killed` kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn victim() {
    let Some(path) = std::env::var_os("TOWPATH_TEST_VICTIM") else { return };
    let store = Arc::new(SqliteStore::open(path).await.unwrap());
    let run = std::process::id();
    let mut writers = Vec::new();
    for writer in 0..4 {
        let store = store.clone();
        writers.push(tokio::spawn(async move {
            for number in 0.. {
                let (one, two) =
                    (app(&format!("w{writer}-{}", number % 50)), app(&format!("run{run}-{writer}-{number}")));
                let spec = format!("{run} {number}");
                let done =
                    commit(&*store, vec![put(&one, Expect::Any, spec), put(&two, Expect::Absent, number)]);
                let revision = done.await.unwrap().revision;
                // Straight to the file descriptor: the harness captures what goes through `println!`.
                writeln!(std::io::stderr().lock(), "ack {revision} {} {number}", two.name).unwrap();
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    let rig = SqliteRig::new();
    let mut acknowledged: BTreeMap<u64, (String, u64)> = BTreeMap::new();
    for round in 1..=3 {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "sqlite_only::victim", "--nocapture"])
            .env("TOWPATH_TEST_VICTIM", rig.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut victim = Process::spawn(command);
        let mut lines = BufReader::new(victim.child().stderr.take().unwrap()).lines();
        let mut acks = 0;
        while acks < 100 * round {
            let line = lines.next().expect("the victim goes on").unwrap();
            acks += u64::from(note(&line, &mut acknowledged));
        }
        victim.kill();
        // What it said before it died counts too.
        for line in lines.map_while(Result::ok) {
            note(&line, &mut acknowledged);
        }
        let store = rig.open().await;
        let newest = *store.watch().borrow();
        assert!(newest.0 >= *acknowledged.keys().last().unwrap());
        for (revision, (name, number)) in &acknowledged {
            let record = store.get(&app(name)).await.unwrap();
            let record = record.unwrap_or_else(|| panic!("{name}, acknowledged as {revision}, is lost"));
            assert_eq!((record.revision.0, record.spec.as_u64()), (*revision, Some(*number)));
        }
        // The feed is whole: two changes for each revision, none missing.
        let feed = store.changes(Revision(0), 0).await.unwrap();
        let revisions: Vec<u64> = feed.iter().map(|change| change.revision.0).collect();
        let expected: Vec<u64> = (1..=newest.0).flat_map(|revision| [revision, revision]).collect();
        assert_eq!(revisions, expected);
    }
}

/// Notes an acknowledgement; false if the line is none, or was cut short by the kill.
fn note(line: &str, acknowledged: &mut BTreeMap<u64, (String, u64)>) -> bool {
    let parts: Vec<&str> = line.split(' ').collect();
    let ["ack", revision, name, number] = parts[..] else { return false };
    let (Ok(revision), Ok(number)) = (revision.parse(), number.parse()) else { return false };
    assert_eq!(acknowledged.insert(revision, (name.to_owned(), number)), None, "revision {revision} twice");
    true
}
