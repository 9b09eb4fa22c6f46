//! Mailboxes: at most one task works on a resource at a time, different resources run concurrently, up to a bound.
//!
//! Activation is level-triggered: it says "look at this resource", however often and from wherever it comes (message, change
//! feed, timer), so a mailbox holds a resource at most once and its size is bounded by the number of resources. An
//! activation during a run leads to one more run after it.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A resource's name in a mailbox.
pub trait MailboxKey: Clone + Eq + Hash + Ord + Send + Sync + 'static {}
impl<T: Clone + Eq + Hash + Ord + Send + Sync + 'static> MailboxKey for T {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// Waits in the queue.
    Queued,
    /// A worker has it.
    Running,
    /// A worker has it, and it was activated since.
    Again,
}

#[derive(Debug)]
struct Inner<K> {
    slots: HashMap<K, Slot>,
    queue: VecDeque<K>,
    /// Timers, earliest first.
    timers: BTreeSet<(Instant, K)>,
    /// The one timer that each resource may have.
    timer_of: HashMap<K, Instant>,
}

/// The mailboxes of one kind of resource.
#[derive(Debug)]
pub struct MailboxSet<K> {
    inner: Mutex<Inner<K>>,
    work: Notify,
    timers_changed: Notify,
}

impl<K: MailboxKey> Default for MailboxSet<K> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                slots: HashMap::new(),
                queue: VecDeque::new(),
                timers: BTreeSet::new(),
                timer_of: HashMap::new(),
            }),
            work: Notify::new(),
            timers_changed: Notify::new(),
        }
    }
}

impl<K: MailboxKey> MailboxSet<K> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the resource looked at soon. Never blocks.
    pub fn activate(&self, key: K) {
        let mut inner = self.lock();
        match inner.slots.get_mut(&key) {
            Some(slot @ Slot::Running) => *slot = Slot::Again,
            Some(Slot::Queued | Slot::Again) => {}
            None => {
                inner.slots.insert(key.clone(), Slot::Queued);
                inner.queue.push_back(key);
                drop(inner);
                self.work.notify_one();
            }
        }
    }

    /// Has the resource looked at after a while. An earlier timer that is set already stands.
    pub fn activate_after(&self, key: K, delay: Duration) {
        let at = Instant::now() + delay;
        let mut inner = self.lock();
        match inner.timer_of.get(&key).copied() {
            Some(present) if present <= at => return,
            Some(present) => {
                inner.timers.remove(&(present, key.clone()));
            }
            None => {}
        }
        inner.timer_of.insert(key.clone(), at);
        inner.timers.insert((at, key));
        drop(inner);
        self.timers_changed.notify_one();
    }

    /// Resources that wait for a worker.
    pub fn depth(&self) -> usize {
        self.lock().queue.len()
    }

    /// Whether nothing waits and nothing runs.
    pub fn is_idle(&self) -> bool {
        self.lock().slots.is_empty()
    }

    /// Starts `workers` workers and the timer; they run until the set of tasks is shut down or `stopped` resolves.
    pub fn spawn<F, Fut, S, SFut>(
        self: &Arc<Self>,
        workers: usize,
        work: F,
        stopped: S,
        tasks: &mut JoinSet<()>,
    ) where
        F: Fn(K) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = Option<Duration>> + Send,
        S: Fn() -> SFut + Clone + Send + 'static,
        SFut: Future<Output = ()> + Send,
    {
        for _ in 0..workers {
            let (set, work, stopped) = (self.clone(), work.clone(), stopped.clone());
            tasks.spawn(async move {
                let stopped = stopped();
                tokio::pin!(stopped);
                loop {
                    // A run that has begun is finished before the worker ends.
                    let key = tokio::select! {
                        key = set.next() => key,
                        () = &mut stopped => return,
                    };
                    let wake = work(key.clone()).await;
                    set.finish(key, wake);
                }
            });
        }
        let set = self.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = set.run_timers() => {}
                () = stopped() => {}
            }
        });
    }

    /// The next resource, marked as running.
    async fn next(&self) -> K {
        loop {
            {
                let mut inner = self.lock();
                if let Some(key) = inner.queue.pop_front() {
                    inner.slots.insert(key.clone(), Slot::Running);
                    if !inner.queue.is_empty() {
                        self.work.notify_one();
                    }
                    return key;
                }
            }
            self.work.notified().await;
        }
    }

    fn finish(&self, key: K, wake: Option<Duration>) {
        let again = self.lock().slots.remove(&key) == Some(Slot::Again);
        if again {
            self.activate(key);
        } else if let Some(delay) = wake {
            self.activate_after(key, delay);
        }
    }

    async fn run_timers(&self) {
        loop {
            let due = {
                let mut inner = self.lock();
                let now = Instant::now();
                let mut due = Vec::new();
                while let Some((at, key)) = inner.timers.first().cloned().filter(|(at, _)| *at <= now) {
                    inner.timers.remove(&(at, key.clone()));
                    inner.timer_of.remove(&key);
                    due.push(key);
                }
                due
            };
            for key in due {
                self.activate(key);
            }
            let next = self.lock().timers.first().map(|(at, _)| *at);
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.timers_changed.notified() => {}
                },
                None => self.timers_changed.notified().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn never() -> impl Fn() -> std::future::Pending<()> + Clone + Send + 'static {
        std::future::pending
    }

    #[tokio::test(start_paused = true)]
    async fn one_resource_runs_alone_and_an_activation_while_running_runs_it_once_more() {
        let set = Arc::new(MailboxSet::<u32>::default());
        let (inside, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let (inside_of, runs_of) = (inside.clone(), runs.clone());
        let work = move |_key: u32| {
            let (inside, runs) = (inside_of.clone(), runs_of.clone());
            async move {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two runs at once");
                tokio::time::sleep(Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                runs.fetch_add(1, Ordering::SeqCst);
                None
            }
        };
        set.spawn(4, work, never(), &mut tasks);
        set.activate(1);
        tokio::time::sleep(Duration::from_millis(5)).await;
        for _ in 0..100 {
            set.activate(1);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert!(set.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn different_resources_run_concurrently_up_to_the_bound() {
        let set = Arc::new(MailboxSet::<u32>::default());
        let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        let (inside_of, most_of) = (inside.clone(), most.clone());
        let work = move |_key: u32| {
            let (inside, most) = (inside_of.clone(), most_of.clone());
            async move {
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(10)).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                None
            }
        };
        set.spawn(3, work, never(), &mut tasks);
        for key in 0..30 {
            set.activate(key);
        }
        assert_eq!(set.depth(), 30);
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(most.load(Ordering::SeqCst), 3);
        assert!(set.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn the_earliest_timer_of_a_resource_stands_and_a_run_may_set_the_next() {
        let set = Arc::new(MailboxSet::<u32>::default());
        let runs = Arc::new(Mutex::new(Vec::new()));
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        let runs_of = runs.clone();
        let work = move |_key: u32| {
            let runs = runs_of.clone();
            async move {
                let mut runs = runs.lock().unwrap();
                runs.push(start.elapsed().as_millis());
                (runs.len() < 2).then_some(Duration::from_millis(50))
            }
        };
        set.spawn(2, work, never(), &mut tasks);
        set.activate_after(7, Duration::from_millis(500));
        set.activate_after(7, Duration::from_millis(100));
        set.activate_after(7, Duration::from_millis(300));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(*runs.lock().unwrap(), vec![100, 150]);
    }
}
