//! The server's disk is full. (It says so by an error of the statement; here a trigger says the same at the same place.)

use crate::rig::{PostgresRig, app, commit, put, write};
use crate::writers::Writers;
use std::time::Duration;
use towpath_store::{Expect, StoreError};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_clearly_and_is_forgotten_when_there_is_room() {
    let rig = PostgresRig::new();
    let store = rig.connect().await;
    let writers = Writers::start(&store, 3);
    writers.go_on(20).await;
    rig.server.psql(
        "CREATE FUNCTION no_room() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           RAISE EXCEPTION 'could not extend file \"base/5/16384\": No space left on device' USING ERRCODE = 'disk_full';
         END $$;
         CREATE TRIGGER no_room BEFORE INSERT ON towpath.changes EXECUTE FUNCTION no_room()",
    );
    let refused = commit(&*store, vec![put(&app("a"), Expect::Any, 1)]).await;
    let clear = matches!(&refused, Err(StoreError::Unavailable { why, uncertain: false })
        if why.contains("No space left") && why.contains("53100"));
    assert!(clear, "{refused:?}");
    assert_eq!(rig.server.psql("SELECT count(*) FROM towpath.resources WHERE name = 'a'"), "0");
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.server.psql("DROP TRIGGER no_room ON towpath.changes");
    writers.go_on(20).await;
    writers.end(&store).await;
    write(&*store, put(&app("a"), Expect::Absent, 1)).await.unwrap();
}
