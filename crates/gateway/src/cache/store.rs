//! One store: its index, and whose turn it is to fill what.

use super::disk::{self, FileBody};
use super::index::Index;
use super::writer::{self, Job, Writer};
use super::{Body, Digest, Entry, Head};
use crate::clock;
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Semaphore;

/// Most requests that wait for one that fills; more go their own way.
const WAITING: usize = 1024;
/// Who has a turn for longer than this is waited for no more, milliseconds: maybe its client reads slowly.
const LATE_MS: u64 = 5000;
/// How long nobody waits for a key whose last response could not be kept, milliseconds.
const PASS_MS: u64 = 5000;
/// Most keys of which that is known.
const PASSES: usize = 16 * 1024;

/// See the module.
pub(crate) struct Store {
    state: Mutex<State>,
    /// Bytes of bodies that are being collected.
    collecting: AtomicU64,
    most: u64,
    files: Option<(PathBuf, Writer)>,
    /// What is there from before is known.
    looked: AtomicBool,
}

#[derive(Default)]
struct State {
    index: Index,
    /// Who waits for what, and since when somebody has its turn.
    turns: HashMap<(Digest, Digest), (Arc<Semaphore>, u64)>,
    passes: HashMap<Digest, u64>,
}

/// Who finds nothing does this.
pub(crate) enum Turn {
    /// Fetches it.
    Fill(FillTurn),
    /// Waits until this is closed, then looks again.
    Wait(Arc<Semaphore>),
    /// Goes on without the cache, because somebody fetches it for too long.
    Late,
    /// Goes on without the cache.
    Pass,
}

/// The turn to fill something. Dropped, those who wait look again.
pub(crate) struct FillTurn {
    pub(crate) store: Arc<Store>,
    pub(crate) key: Digest,
    /// Which variant is put.
    pub(crate) variant: Digest,
    /// Which one others wait for.
    awaited: Digest,
    done: Arc<Semaphore>,
}

/// A response that was found, its body at hand.
pub(crate) struct Loaded {
    pub(crate) head: Arc<Head>,
    pub(crate) body: LoadedBody,
}

/// Its body.
pub(crate) enum LoadedBody {
    Whole(Bytes),
    File(Box<FileBody>),
}

/// Room for a body that is being collected; given back when it is dropped.
pub(crate) struct Room {
    store: Arc<Store>,
    bytes: u64,
}

impl Store {
    /// Of at most so many bytes.
    pub(crate) fn in_memory(most: u64) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State { index: Index::new(most), ..State::default() }),
            collecting: AtomicU64::new(0),
            most,
            files: None,
            looked: AtomicBool::new(true),
        })
    }

    /// In files of a directory.
    pub(crate) fn on_disk(dir: &Path, most: u64) -> Arc<Self> {
        let store = Arc::new(Self {
            state: Mutex::new(State { index: Index::new(most), ..State::default() }),
            collecting: AtomicU64::new(0),
            most,
            files: Some((dir.to_owned(), writer::start(dir.to_owned()))),
            looked: AtomicBool::new(false),
        });
        if let Some(writer) = store.writer() {
            writer.send(Job::Look(Arc::downgrade(&store)));
        }
        store
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variant that a request is for, and what there is of it.
    pub(crate) fn find(&self, key: &Digest, headers: &HeaderMap) -> (Digest, Option<Entry>) {
        self.state().index.find(key, headers, clock::unix_ms())
    }

    /// Whose turn it is to fill it.
    pub(crate) fn turn(self: &Arc<Self>, key: Digest, variant: Digest) -> Turn {
        if !self.looked.load(Relaxed) {
            return Turn::Pass;
        }
        let mut state = self.state();
        let now = clock::now_ms();
        if let Some((done, since)) = state.turns.get(&(key, variant)) {
            if now.saturating_sub(*since) >= LATE_MS {
                return Turn::Late;
            }
            return if Arc::strong_count(done) > WAITING { Turn::Pass } else { Turn::Wait(done.clone()) };
        }
        if let Some(until) = state.passes.get(&key) {
            if now < *until {
                return Turn::Pass;
            }
            state.passes.remove(&key);
        }
        let done = Arc::new(Semaphore::new(0));
        state.turns.insert((key, variant), (done.clone(), now));
        drop(state);
        Turn::Fill(FillTurn { store: self.clone(), key, variant, awaited: variant, done })
    }

    /// From now on what is fetched is kept.
    pub(crate) fn is_ready(&self) {
        self.looked.store(true, Relaxed);
    }

    /// For a while nobody waits for this key.
    pub(crate) fn pass(&self, key: Digest) {
        let mut state = self.state();
        if state.passes.len() >= PASSES {
            state.passes.clear();
        }
        state.passes.insert(key, clock::now_ms() + PASS_MS);
    }

    /// Puts an entry.
    pub(crate) fn put(&self, key: Digest, variant: Digest, vary: &[HeaderName], entry: Entry) {
        let same = match &entry.body {
            Body::Disk(name) => Some(name.clone()),
            Body::Memory(..) => None,
        };
        let mut gone = {
            let mut state = self.state();
            state.passes.remove(&key);
            state.index.put(key, variant, vary, entry, clock::unix_ms())
        };
        // One that was renewed has its files still.
        gone.retain(|gone| !matches!((&gone.body, &same), (Body::Disk(name), Some(same)) if name == same && gone.size <= self.most));
        self.forget(gone);
    }

    /// Removes all that there is of a key; whether there was anything.
    pub(crate) fn purge(&self, key: &Digest) -> bool {
        let gone = self.state().index.remove(key);
        let some = !gone.is_empty();
        self.forget(gone);
        some
    }

    fn forget(&self, gone: Vec<Entry>) {
        let Some((_, writer)) = &self.files else { return };
        for entry in gone {
            if let Body::Disk(name) = entry.body {
                writer.send(Job::Remove(name));
            }
        }
    }

    /// The head and body of an entry; `None` = it cannot be read, and is removed.
    pub(crate) async fn load(self: Arc<Self>, key: Digest, variant: Digest, body: Body) -> Option<Loaded> {
        let name = match body {
            Body::Memory(head, bytes) => return Some(Loaded { head, body: LoadedBody::Whole(bytes) }),
            Body::Disk(name) => name,
        };
        let dir = self.files.as_ref().map(|(dir, _)| dir.clone())?;
        let file = name.clone();
        let read = tokio::task::spawn_blocking(move || disk::open(&dir, &file, &key, &variant)).await;
        match read {
            Ok(Ok(loaded)) => Some(loaded),
            Ok(Err(error)) => {
                tracing::warn!(%name, %error, "a response in the cache cannot be used and is removed");
                let gone = self.state().index.remove_broken(&key, &variant, &name);
                self.forget(gone.into_iter().collect());
                None
            }
            Err(_) => None,
        }
    }

    /// The thread that writes files.
    pub(crate) fn writer(&self) -> Option<&Writer> {
        self.files.as_ref().map(|(_, writer)| writer)
    }

    /// Largest body that is worth being kept.
    pub(crate) fn largest(&self) -> u64 {
        self.most / 4
    }

    /// Room to collect a body.
    pub(crate) fn room(self: &Arc<Self>) -> Room {
        Room { store: self.clone(), bytes: 0 }
    }
}

impl Drop for FillTurn {
    fn drop(&mut self) {
        let mut state = self.store.state();
        let slot = (self.key, self.awaited);
        if state.turns.get(&slot).is_some_and(|(turn, _)| Arc::ptr_eq(turn, &self.done)) {
            state.turns.remove(&slot);
        }
        drop(state);
        self.done.close();
    }
}

impl Room {
    /// Takes so many bytes more; whether there is room for them.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let before = self.store.collecting.fetch_add(bytes, Relaxed);
        self.bytes += bytes;
        before + bytes <= self.store.most
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.store.collecting.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fills_and_others_wait_until_its_turn_ends() {
        let store = Store::in_memory(1000);
        let (key, other) = ([1; 16], [2; 16]);
        let Turn::Fill(turn) = store.turn(key, other) else { panic!() };
        let Turn::Wait(done) = store.turn(key, other) else { panic!() };
        assert!(matches!(store.turn(key, key), Turn::Fill(_)), "another variant");
        assert!(!done.is_closed());
        if let Some((_, since)) = store.state().turns.get_mut(&(key, other)) {
            *since = clock::now_ms().saturating_sub(LATE_MS);
        }
        let late = clock::now_ms() < LATE_MS || matches!(store.turn(key, other), Turn::Late);
        assert!(late, "whoever is slow is waited for no more");
        drop(turn);
        assert!(done.is_closed());
        store.pass(key);
        assert!(matches!(store.turn(key, other), Turn::Pass));
    }

    #[test]
    fn too_many_do_not_wait() {
        let store = Store::in_memory(1000);
        let Turn::Fill(_turn) = store.turn([1; 16], [1; 16]) else { panic!() };
        let waiting: Vec<_> = (0..2 * WAITING).map(|_| store.turn([1; 16], [1; 16])).collect();
        let some = waiting.iter().filter(|turn| matches!(turn, Turn::Wait(_))).count();
        assert!((WAITING - 2..=WAITING).contains(&some), "{some}");
    }

    #[test]
    fn bodies_that_are_collected_are_bounded_together() {
        let store = Store::in_memory(1000);
        let (mut one, mut two) = (store.room(), store.room());
        assert!(one.grow(600) && !two.grow(600));
        drop(two);
        assert!(one.grow(400));
    }
}
