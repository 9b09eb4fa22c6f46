use super::*;
use crate::settings::ManagerSettings;
use towpath_bus::MemoryBus;
use towpath_store::{MemoryStore, Store};
use towpath_types::Incarnation;

fn id(n: u8) -> ManagerId {
    ManagerId::mint(1, [n; 10])
}

/// A known pain: the first look for a node that nobody has told of yet finds nothing, and the message is lost.
#[tokio::test(start_paused = true)]
async fn the_first_lookup_of_an_unknown_manager_finds_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MemoryStore::new(1_000, 100));
    let core = Core::new(ManagerSettings::new(dir.path()), store.clone(), Arc::new(MemoryBus::new()), id(1));
    let other = Fence { manager: id(2), incarnation: Incarnation(7) };
    let row = ManagerRow { address: "http://10.0.0.2:7700".into(), ..row_of(&core, other, 0) };
    store.register_manager(&row).await.unwrap();
    assert!(core.members.all().is_empty(), "no event was heard, and the table was not read");
    assert_eq!(find_address(&core, id(2)).await.as_deref(), Some("http://10.0.0.2:7700"));
    assert!(!is_gone(&core, id(2)).await);
    // One that nobody knows is gone, and one that was evicted has no address.
    assert_eq!(find_address(&core, id(3)).await, None);
    assert!(is_gone(&core, id(3)).await);
    tokio::time::sleep(Duration::from_secs(10)).await;
    store.evict_silent(6_000).await.unwrap();
    load_members(&core).await.unwrap();
    assert_eq!(find_address(&core, id(2)).await, None);
    assert!(is_gone(&core, id(2)).await);
}
