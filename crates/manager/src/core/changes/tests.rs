use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::{JoinHandle, JoinSet};
use towpath_types::Kind;

fn key(org: &str, name: &str) -> Key {
    Key { kind: Kind::App, org: Some(OrgName::new(org).unwrap()), space: None, name: name.into() }
}

fn limits() -> ChangeLimits {
    ChangeLimits {
        at_once: 1,
        per_resource: 100_000,
        per_org: 100_000,
        in_all: 100_000,
        ..Default::default()
    }
}

/// Takes a turn, notes its name, holds it for a moment of tokio's time.
fn change(changes: &Arc<Changes>, key: Key, name: usize, done: &Arc<Mutex<Vec<usize>>>) -> JoinHandle<()> {
    let (changes, done) = (changes.clone(), done.clone());
    tokio::spawn(async move {
        let _turn = changes.enter(&key, None).await.unwrap();
        done.lock().unwrap().push(name);
        tokio::time::sleep(Duration::from_micros(1)).await;
    })
}

async fn until_waiting(changes: &Changes, count: usize) {
    while changes.waiting() < count {
        tokio::task::yield_now().await;
    }
}

fn is_empty(changes: &Changes) -> bool {
    let state = changes.lock();
    let nothing = state.mailboxes.is_empty() && state.orgs.is_empty() && state.round.is_empty();
    nothing && state.running == 0 && state.waiting == 0
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_changes_of_one_org_do_not_hold_up_the_one_of_another() {
    let changes = Arc::new(Changes::new(ChangeLimits { patience: Duration::from_secs(3600), ..limits() }));
    let done = Arc::new(Mutex::new(Vec::new()));
    let first = changes.enter(&key("noisy", "held"), None).await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..10_000 {
        // Some resources, each with many changes.
        tasks.push(change(&changes, key("noisy", &format!("app-{}", n % 100)), n, &done));
    }
    until_waiting(&changes, 10_000).await;
    tasks.push(change(&changes, key("quiet", "shop"), usize::MAX, &done));
    until_waiting(&changes, 10_001).await;
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    let done = done.lock().unwrap();
    let at = done.iter().position(|name| *name == usize::MAX).unwrap();
    assert!(at <= 2, "it was the {at}th");
    assert!(is_empty(&changes));
}

#[tokio::test(start_paused = true)]
async fn changes_of_one_resource_are_made_one_at_a_time_in_order() {
    let changes = Arc::new(Changes::new(ChangeLimits { at_once: 8, ..limits() }));
    let done = Arc::new(Mutex::new(Vec::new()));
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..200 {
        let (changes, done, inside) = (changes.clone(), done.clone(), inside.clone());
        tasks.spawn(async move {
            let _turn = changes.enter(&key("o", "shop"), None).await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            tokio::time::sleep(Duration::from_millis(1)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
            done.lock().unwrap().push(n);
        });
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
    assert_eq!(*done.lock().unwrap(), (0..200).collect::<Vec<_>>());
    assert!(is_empty(&changes));
}

#[tokio::test(start_paused = true)]
async fn changes_of_different_resources_are_made_at_the_same_time_up_to_the_bound() {
    let changes = Arc::new(Changes::new(ChangeLimits { at_once: 3, ..limits() }));
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for n in 0..30 {
        let (changes, inside, most) = (changes.clone(), inside.clone(), most.clone());
        tasks.spawn(async move {
            let _turn = changes.enter(&key("o", &format!("app-{n}")), None).await.unwrap();
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(1)).await;
            inside.fetch_sub(1, Ordering::SeqCst);
        });
    }
    tasks.join_all().await;
    assert_eq!(most.load(Ordering::SeqCst), 3);
    assert!(is_empty(&changes));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_bounded_and_the_rest_is_refused_at_once() {
    let bounds = ChangeLimits { at_once: 1, per_resource: 2, per_org: 3, in_all: 4, ..Default::default() };
    let changes = Arc::new(Changes::new(bounds));
    let done = Arc::new(Mutex::new(Vec::new()));
    let first = changes.enter(&key("a", "x"), None).await.unwrap();
    let mut tasks = Vec::new();
    for n in 0..2 {
        tasks.push(change(&changes, key("a", "x"), n, &done));
    }
    until_waiting(&changes, 2).await;
    assert_eq!(changes.enter(&key("a", "x"), None).await.unwrap_err(), Refused::Resource);
    tasks.push(change(&changes, key("a", "y"), 2, &done));
    until_waiting(&changes, 3).await;
    assert_eq!(changes.enter(&key("a", "z"), None).await.unwrap_err(), Refused::Org);
    tasks.push(change(&changes, key("b", "x"), 3, &done));
    until_waiting(&changes, 4).await;
    assert_eq!(changes.enter(&key("c", "x"), None).await.unwrap_err(), Refused::Manager);
    assert_eq!(changes.waiting(), 4, "what is refused does not wait");
    drop(first);
    for task in tasks {
        task.await.unwrap();
    }
    assert!(is_empty(&changes));
}

#[tokio::test(start_paused = true)]
async fn who_goes_while_it_waits_leaves_nothing_behind() {
    let changes = Arc::new(Changes::new(limits()));
    let done = Arc::new(Mutex::new(Vec::new()));
    let first = changes.enter(&key("a", "x"), None).await.unwrap();
    let waiting: Vec<_> =
        (0..20).map(|n| change(&changes, key("b", &format!("app-{}", n % 5)), n, &done)).collect();
    until_waiting(&changes, 20).await;
    // Some are given up, some wait too long, and some have their turn given at the moment in which they go.
    for task in waiting.iter().step_by(2) {
        task.abort();
    }
    let soon = Some(Instant::now() + Duration::from_millis(1));
    assert_eq!(changes.enter(&key("a", "x"), soon).await.unwrap_err(), Refused::Late);
    drop(first);
    for task in waiting {
        let _ = task.await;
    }
    assert_eq!(done.lock().unwrap().len(), 10);
    let gone = changes.enter(&key("a", "x"), None).await.unwrap();
    let other = key("a", "y");
    let mut granted = Box::pin(changes.enter(&other, None));
    assert!(futures::poll!(granted.as_mut()).is_pending());
    drop(gone);
    // It has its turn, and does not know.
    drop(granted);
    assert!(is_empty(&changes));
}
