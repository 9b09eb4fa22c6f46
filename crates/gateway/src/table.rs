//! The one pointer that requests share: the compiled routing table.
//!
//! The control thread swaps it ([`SharedTable::publish`]); each worker keeps a reference of its own and looks at a
//! generation number before each choice. "Every worker serves the new table" is then known exactly, with idle workers
//! too: a choice (from reading the generation to counting the request in flight at its endpoint) is bracketed by
//! [`LocalTable::choose`], and [`SharedTable::publish`] returns when no worker is inside a bracket that began before the
//! swap. A later choice cannot see the old table. So once it has returned, nobody chooses an endpoint that the new table
//! does not have, and every request that was sent to one before is counted in flight.
//!
//! The order that this rests on: a worker marks its bracket, then reads the generation; the publisher writes the
//! generation, then reads the marks; all four are sequentially consistent, so one of the two sees the other.

use crate::plugins::program::Plugins;
use arc_swap::ArcSwap;
use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use towpath_route::Table;
use towpath_types::Revision;

/// What a worker needs to know of the world, all of one moment.
pub(crate) struct View {
    /// The routing table.
    pub(crate) table: Table,
    /// Addresses of the cells: what comes from there comes from our own instances.
    pub(crate) inside: Vec<IpAddr>,
    /// Revision of the hard state in it.
    pub(crate) revision: Revision,
    /// What routes of resources need; `None` = there are none.
    pub(crate) plugins: Option<Arc<Plugins>>,
    /// There was a snapshot of the hard state; without one nothing can be said about routes.
    pub(crate) loaded: bool,
}

impl View {
    /// Whether it has these plugins.
    pub(crate) fn has_plugins(&self, plugins: Option<&Arc<Plugins>>) -> bool {
        match (&self.plugins, plugins) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        }
    }
}

/// A counter on cache lines of its own. Odd = inside a choice.
#[derive(Default)]
#[repr(align(128))]
struct Mark(AtomicU64);

/// Shared by the control thread and all workers.
pub(crate) struct SharedTable {
    view: ArcSwap<View>,
    generation: AtomicU64,
    marks: Vec<Mark>,
}

impl SharedTable {
    /// With a first view.
    pub(crate) fn new(view: View, workers: usize) -> Arc<Self> {
        Arc::new(Self {
            view: ArcSwap::from_pointee(view),
            generation: AtomicU64::new(1),
            marks: (0..workers).map(|_| Mark::default()).collect(),
        })
    }

    /// The present view.
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Swaps the view, and returns when every worker serves it.
    pub(crate) fn publish(&self, view: View) {
        self.view.store(Arc::new(view));
        self.generation.fetch_add(1, SeqCst);
        for mark in &self.marks {
            let seen = mark.0.load(SeqCst);
            // A choice takes microseconds, unless its thread was put aside in the middle of it.
            while seen % 2 == 1 && mark.0.load(SeqCst) == seen {
                std::thread::yield_now();
            }
        }
    }
}

/// One worker's reference.
pub(crate) struct LocalTable {
    shared: Arc<SharedTable>,
    worker: usize,
    generation: Cell<u64>,
    view: RefCell<Arc<View>>,
}

impl LocalTable {
    /// The reference of the worker with this index.
    pub(crate) fn new(shared: Arc<SharedTable>, worker: usize) -> Self {
        let view = RefCell::new(shared.view());
        Self { shared, worker, generation: Cell::new(0), view }
    }

    /// Runs a choice on the newest view. A request that is sent on must be counted in flight in there.
    pub(crate) fn choose<R>(&self, choice: impl FnOnce(&View) -> R) -> R {
        let mark = self.shared.marks.get(self.worker).map(|mark| &mark.0);
        let _inside = mark.map(Inside::new);
        let newest = self.shared.generation.load(SeqCst);
        if self.generation.get() != newest {
            // Read after the generation: the view is this one or a later one.
            *self.view.borrow_mut() = self.shared.view();
            self.generation.set(newest);
        }
        let view = self.view.borrow();
        choice(&view)
    }
}

/// Marks a choice for as long as it lives.
struct Inside<'a>(&'a AtomicU64);

impl<'a> Inside<'a> {
    fn new(mark: &'a AtomicU64) -> Self {
        mark.fetch_add(1, SeqCst);
        Self(mark)
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use towpath_types::Place;

    fn view(revision: u64) -> View {
        View {
            table: Table::new(Place::default()),
            inside: Vec::new(),
            revision: Revision(revision),
            plugins: None,
            loaded: true,
        }
    }

    #[test]
    fn after_a_publish_no_worker_chooses_by_an_older_view() {
        let shared = SharedTable::new(view(0), 2);
        let (published, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let workers: Vec<_> = (0..2)
            .map(|index| {
                let (shared, published, stop) = (shared.clone(), published.clone(), stop.clone());
                std::thread::spawn(move || {
                    let local = LocalTable::new(shared, index);
                    while !stop.load(SeqCst) {
                        let before = published.load(SeqCst);
                        local.choose(|view| assert!(view.revision.0 >= before));
                    }
                })
            })
            .collect();
        for revision in 1..2000 {
            shared.publish(view(revision));
            published.store(revision, SeqCst);
        }
        stop.store(true, SeqCst);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    }

    #[test]
    fn a_publish_waits_for_a_choice_under_way_and_for_no_idle_worker() {
        let shared = SharedTable::new(view(0), 2);
        let (entered, wait) = std::sync::mpsc::channel();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let choosing = {
            let shared = shared.clone();
            std::thread::spawn(move || {
                LocalTable::new(shared, 0).choose(|view| {
                    entered.send(()).unwrap();
                    released.recv().unwrap();
                    view.revision
                })
            })
        };
        wait.recv().unwrap();
        let done = Arc::new(AtomicBool::new(false));
        let publishing = {
            let (shared, done) = (shared.clone(), done.clone());
            std::thread::spawn(move || {
                shared.publish(view(1));
                done.store(true, SeqCst);
            })
        };
        while shared.view().revision.0 == 0 {
            std::thread::yield_now();
        }
        assert!(!done.load(SeqCst));
        release.send(()).unwrap();
        assert_eq!(choosing.join().unwrap(), Revision(0));
        publishing.join().unwrap();
        assert!(done.load(SeqCst));
    }
}
