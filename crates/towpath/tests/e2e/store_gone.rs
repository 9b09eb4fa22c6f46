//! The store is locked: the API says 503, traffic flows.

use crate::apps;
use crate::platform::Up;

#[test]
fn a_locked_store_is_said_by_the_api_and_not_felt_by_traffic() {
    let up = Up::start();
    up.push(&apps::python(up.dir.path(), "shop", "one"), &[]).ok();
    let database = up.role.data.join("store.db");
    let other = rusqlite::Connection::open(&database).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let refused = up.towpath(&["scale", "shop", "2", "--detach"]);
    assert_eq!(refused.code, 7, "{refused:#?}");
    assert!(refused.one_error_line().contains("store_unavailable"), "{refused:?}");
    assert_eq!(up.get("shop.localhost", "/", &[]).status, 200);
    other.execute_batch("ROLLBACK").unwrap();
    up.towpath(&["scale", "shop", "2"]).ok();
}
