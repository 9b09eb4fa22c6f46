//! Delivering what loggers say: one thread for all of them, a bounded queue for each, and a bound on the bytes of all together.
//! Requests hand over and never wait; what finds no room is dropped and counted.

use super::sinks::Sink;
use crate::plugins::states::States;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Most bytes that wait, of all loggers of a gateway.
const WAITING_BYTES: usize = 64 << 20;
/// Most entries of one that wait, where its metadata does not say.
pub(super) const WAITING: usize = 8192;
/// How long what waits is still sent once there is no logger any more.
const LAST: Duration = Duration::from_secs(10);

/// One thing to deliver.
pub(super) struct Entry<T> {
    pub(super) what: T,
    bytes: usize,
    waiting: Arc<AtomicUsize>,
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(self.bytes, Relaxed);
    }
}

/// How entries are sent together.
#[derive(Debug, Clone)]
pub(super) struct Batching {
    pub(super) most: usize,
    /// A message goes out when there was no new entry for this long.
    pub(super) quiet: Duration,
    /// An entry waits no longer.
    pub(super) longest: Duration,
    pub(super) retries: u32,
    pub(super) retry_delay: Duration,
    /// For one attempt.
    pub(super) timeout: Duration,
    /// Most entries that wait.
    pub(super) waiting: usize,
}

/// The thread. It ends with its last logger.
pub(super) struct Delivery {
    tasks: UnboundedSender<Start>,
    waiting: Arc<AtomicUsize>,
}

type Start = Box<dyn FnOnce(&mut JoinSet<()>) + Send>;

impl Delivery {
    /// The one of this gateway.
    pub(super) fn of(states: &States) -> Arc<Self> {
        states.get("delivery", Self::start)
    }

    fn start() -> Self {
        let (tasks, starts) = unbounded_channel();
        let spawned = std::thread::Builder::new().name("towpath-gw-log".into()).spawn(move || {
            let runtime =
                Builder::new_current_thread().enable_io().enable_time().build_local(LocalOptions::default());
            match runtime {
                Ok(runtime) => runtime.block_on(run(starts)),
                Err(error) => tracing::error!(%error, "the thread of loggers cannot start"),
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "the thread of loggers cannot be started");
        }
        Self { tasks, waiting: Arc::default() }
    }

    /// A queue whose entries go to a sink. What is in it when it is dropped is still sent.
    pub(super) fn queue<S: Sink>(self: &Arc<Self>, sink: S, batching: Batching) -> Queue<S::Entry> {
        let (entries, sent) = channel(batching.waiting);
        let start = move |tasks: &mut JoinSet<()>| {
            tasks.spawn_local(deliver(sink, batching, sent));
        };
        let _ = self.tasks.send(Box::new(start));
        Queue { entries, delivery: self.clone() }
    }
}

async fn run(mut starts: UnboundedReceiver<Start>) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            start = starts.recv() => match start {
                Some(start) => start(&mut tasks),
                None => break,
            },
            Some(_) = tasks.join_next() => {}
        }
    }
    // What was handed over is still sent, if that can be done soon.
    let all = async { while tasks.join_next().await.is_some() {} };
    let _ = timeout(LAST, all).await;
}

/// The way into a queue.
pub(super) struct Queue<T> {
    entries: Sender<Entry<T>>,
    delivery: Arc<Delivery>,
}

impl<T> Queue<T> {
    /// Hands an entry of so many bytes over; whether there was room.
    pub(super) fn put(&self, what: T, bytes: usize) -> bool {
        let waiting = &self.delivery.waiting;
        let before = waiting.fetch_add(bytes, Relaxed);
        let entry = Entry { what, bytes, waiting: waiting.clone() };
        before + bytes <= WAITING_BYTES && self.entries.try_send(entry).is_ok()
    }
}

/// Gathers entries and sends them, until there can be no more.
async fn deliver<S: Sink>(mut sink: S, batching: Batching, mut entries: Receiver<Entry<S::Entry>>) {
    while let Some(first) = entries.recv().await {
        let end = Instant::now() + batching.longest;
        let mut batch = vec![first];
        while batch.len() < batching.most {
            let quiet = Instant::now() + batching.quiet;
            match timeout_at(quiet.min(end), entries.recv()).await {
                Ok(Some(entry)) => batch.push(entry),
                Ok(None) | Err(_) => break,
            }
        }
        for attempt in 0..=batching.retries {
            if attempt > 0 {
                tokio::time::sleep(batching.retry_delay).await;
            }
            let what = batch.iter().map(|entry| &entry.what).collect::<Vec<_>>();
            match timeout(batching.timeout, sink.send(&what)).await {
                Ok(Ok(())) => break,
                Ok(Err(error)) => tracing::warn!(to = sink.name(), %error, "logs could not be sent"),
                Err(_) => tracing::warn!(to = sink.name(), "logs could not be sent in time"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::Mutex;
    use std::sync::mpsc;

    struct Collect(mpsc::Sender<Vec<u32>>, Arc<Mutex<u32>>);

    impl Sink for Collect {
        type Entry = u32;

        fn name(&self) -> &str {
            "a test"
        }

        async fn send(&mut self, batch: &[&u32]) -> io::Result<()> {
            let mut failures = self.1.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let _ = self.0.send(batch.iter().map(|n| **n).collect());
            Ok(())
        }
    }

    fn batching(most: usize, retries: u32) -> Batching {
        Batching {
            most,
            quiet: Duration::from_secs(60),
            longest: Duration::from_secs(60),
            retries,
            retry_delay: Duration::ZERO,
            timeout: Duration::from_secs(60),
            waiting: 4,
        }
    }

    #[test]
    fn batches_are_sent_in_order_tried_again_and_the_rest_at_the_end() {
        let states = States::default();
        let (told, batches) = mpsc::channel();
        let queue = Delivery::of(&states).queue(Collect(told, Arc::new(Mutex::new(2))), batching(2, 2));
        assert!(queue.put(1, 10) && queue.put(2, 10));
        assert_eq!(batches.recv().unwrap(), [1, 2]);
        assert!(queue.put(3, 10));
        let delivery = queue.delivery.clone();
        drop(queue);
        assert_eq!(batches.recv().unwrap(), [3]);
        assert!(batches.recv().is_err(), "the task has ended");
        assert_eq!(delivery.waiting.load(Relaxed), 0);
    }

    #[test]
    fn what_finds_no_room_is_told() {
        let states = States::default();
        let (told, batches) = mpsc::channel();
        let queue = Delivery::of(&states).queue(Collect(told, Arc::default()), batching(100, 0));
        assert!(!queue.put(0, WAITING_BYTES + 1));
        let taken = (0..1000).filter(|_| queue.put(1, 1)).count();
        assert!((4..=104).contains(&taken), "{taken}");
        drop(queue);
        assert_eq!(batches.iter().flatten().count(), taken);
    }
}
