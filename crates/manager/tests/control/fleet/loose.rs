//! A bus on which messages get lost, for one manager.

use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use towpath_bus::{Bus, BusError, BusState, MemoryBus, Message, Subscription, SubscriptionSource};

/// Hands on to a memory bus, unless something is to get lost.
#[derive(Clone)]
pub(crate) struct LooseBus {
    inner: MemoryBus,
    /// Nothing comes or goes, and nobody notices.
    cut: Arc<AtomicBool>,
    /// So many answers to calls of other managers get lost.
    answers: Arc<AtomicUsize>,
}

impl LooseBus {
    pub(crate) fn new(inner: MemoryBus) -> Self {
        Self { inner, cut: Arc::default(), answers: Arc::default() }
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.cut.store(cut, Ordering::SeqCst);
    }

    pub(crate) fn lose_answers(&self, count: usize) {
        self.answers.store(count, Ordering::SeqCst);
    }

    pub(crate) fn answers_to_lose(&self) -> usize {
        self.answers.load(Ordering::SeqCst)
    }
}

struct Loose {
    inner: Subscription,
    cut: Arc<AtomicBool>,
}

#[async_trait]
impl SubscriptionSource for Loose {
    async fn next(&mut self) -> Option<Message> {
        loop {
            let message = self.inner.next().await?;
            if !self.cut.load(Ordering::SeqCst) {
                return Some(message);
            }
        }
    }
    fn lost(&self) -> u64 {
        self.inner.lost()
    }
}

#[async_trait]
impl Bus for LooseBus {
    async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), BusError> {
        if self.cut.load(Ordering::SeqCst) { Ok(()) } else { self.inner.publish(subject, payload).await }
    }

    async fn request(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        let late = || BusError::Timeout { subject: subject.into(), timeout };
        if self.cut.load(Ordering::SeqCst) {
            tokio::time::sleep(timeout).await;
            return Err(late());
        }
        let fewer = |count: usize| count.checked_sub(1);
        let loses = subject.contains(".svc.api.")
            && self.answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer).is_ok();
        let answer = self.inner.request(subject, payload, timeout);
        if loses {
            let (_, ()) = tokio::join!(answer, tokio::time::sleep(timeout));
            return Err(late());
        }
        answer.await
    }

    async fn subscribe(&self, pattern: &str) -> Result<Subscription, BusError> {
        let inner = self.inner.subscribe(pattern).await?;
        Ok(Subscription::new(Box::new(Loose { inner, cut: self.cut.clone() })))
    }

    async fn subscribe_queue(&self, pattern: &str, queue: &str) -> Result<Subscription, BusError> {
        let inner = self.inner.subscribe_queue(pattern, queue).await?;
        Ok(Subscription::new(Box::new(Loose { inner, cut: self.cut.clone() })))
    }

    fn state(&self) -> watch::Receiver<BusState> {
        self.inner.state()
    }

    async fn flush(&self) -> Result<(), BusError> {
        self.inner.flush().await
    }
}
