//! Sessions: opening them, statements prepared in them, a small pool of them for reads.

use super::config::Target;
use super::error::{from_postgres, is_lost, may_pass};
use crate::StoreError;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Error, Row, Statement};

/// After failed attempts to connect, reads fail without trying again, at the longest for this long.
const RETRY_WITHIN: Duration = Duration::from_secs(1);

/// A session. Closed when dropped.
pub(super) struct Link {
    pub(super) client: Client,
    statements: Mutex<HashMap<String, Statement>>,
    driver: AbortHandle,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable { why: why.to_owned(), uncertain: false }
}

/// Why there is no session.
enum Unopened {
    Slow,
    Refused(Error),
}

impl Unopened {
    fn may_pass(&self) -> bool {
        match self {
            Unopened::Slow => true,
            Unopened::Refused(error) => may_pass(error),
        }
    }
}

impl From<Unopened> for StoreError {
    fn from(unopened: Unopened) -> Self {
        match unopened {
            Unopened::Slow => unavailable("PostgreSQL does not answer to a connection in time"),
            Unopened::Refused(error) => from_postgres(&error),
        }
    }
}

impl Link {
    /// Opens a session; waits for a server that is not there yet.
    pub(super) async fn open_at_last(target: &Target, patience: Duration) -> Result<Self, StoreError> {
        let (began, mut pause) = (Instant::now(), Duration::ZERO);
        loop {
            let unopened = match Self::try_open(target, None).await {
                Ok(link) => return Ok(link),
                Err(unopened) => unopened,
            };
            let waited = began.elapsed();
            let passes = unopened.may_pass();
            let error = StoreError::from(unopened);
            if !passes || waited >= patience {
                return Err(error);
            }
            tracing::warn!(%error, waited = waited.as_secs(), patience = patience.as_secs(), "waiting for PostgreSQL");
            pause = super::backoff(pause);
            tokio::time::sleep(pause.min(patience.saturating_sub(waited))).await;
        }
    }

    /// Opens a session. Payloads of notifications go into `notifications`.
    pub(super) async fn open(
        target: &Target,
        notifications: Option<mpsc::Sender<String>>,
    ) -> Result<Self, StoreError> {
        Ok(Self::try_open(target, notifications).await?)
    }

    async fn try_open(
        target: &Target,
        notifications: Option<mpsc::Sender<String>>,
    ) -> Result<Self, Unopened> {
        let opening = async {
            let (client, mut connection) = target.database.connect(target.tls.clone()).await?;
            let driver = tokio::spawn(async move {
                let mut poll = |context: &mut std::task::Context<'_>| connection.poll_message(context);
                while let Some(Ok(message)) = std::future::poll_fn(&mut poll).await {
                    if let (AsyncMessage::Notification(notification), Some(notifications)) =
                        (message, &notifications)
                    {
                        // A full buffer has news in it already.
                        let _ = notifications.try_send(notification.payload().to_owned());
                    }
                }
            });
            let link = Self { client, statements: Mutex::default(), driver: driver.abort_handle() };
            link.client.batch_execute(&target.settings).await?;
            Ok(link)
        };
        let opened = tokio::time::timeout(target.timeout, opening).await;
        opened.map_err(|_| Unopened::Slow)?.map_err(Unopened::Refused)
    }

    /// The statement, prepared at its first use in this session.
    pub(super) async fn prepared(&self, sql: &str) -> Result<Statement, Error> {
        let known = self.statements.lock().unwrap_or_else(PoisonError::into_inner).get(sql).cloned();
        if let Some(statement) = known {
            return Ok(statement);
        }
        let statement = self.client.prepare(sql).await?;
        self.statements
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(sql.to_owned(), statement.clone());
        Ok(statement)
    }
}

/// Sessions for single statements. Each takes many statements at once, so they are shared, not lent.
pub(super) struct Pool {
    target: Target,
    patience: Duration,
    slots: Vec<tokio::sync::Mutex<Slot>>,
    turn: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    failed: Option<Failed>,
}

/// A failed attempt to connect.
struct Failed {
    why: String,
    /// The pause after it, which grows from one to the next and is spread.
    pause: Duration,
    /// Its end.
    until: Instant,
}

impl Pool {
    /// A pool without sessions; they are opened when needed. No statement takes longer than `patience`.
    pub(super) fn new(target: Target, size: usize, patience: Duration) -> Self {
        let slots = (0..size.max(1)).map(|_| tokio::sync::Mutex::default()).collect();
        Self { target, patience, slots, turn: AtomicUsize::new(0) }
    }

    async fn link(&self, slot: &tokio::sync::Mutex<Slot>) -> Result<Arc<Link>, StoreError> {
        let mut slot = slot.lock().await;
        if let Some(link) = slot.link.as_ref().filter(|link| !link.client.is_closed()) {
            return Ok(link.clone());
        }
        if let Some(failed) = slot.failed.as_ref().filter(|failed| Instant::now() < failed.until) {
            return Err(unavailable(&failed.why));
        }
        match Link::open(&self.target, None).await {
            Ok(link) => {
                let link = Arc::new(link);
                *slot = Slot { link: Some(link.clone()), failed: None };
                Ok(link)
            }
            Err(error) => {
                let why = match &error {
                    StoreError::Unavailable { why, .. } => why.clone(),
                    other => other.to_string(),
                };
                let last = slot.failed.as_ref().map_or(Duration::ZERO, |failed| failed.pause);
                let pause = super::backoff(last.min(RETRY_WITHIN / 2));
                let failed = Failed { why, pause, until: Instant::now() + pause };
                *slot = Slot { link: None, failed: Some(failed) };
                Err(error)
            }
        }
    }

    /// Runs a statement that may be run again: once more, in a new session, if the session turns out to be lost.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, StoreError> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.slots.len();
        let slot = self.slots.get(turn).ok_or_else(|| unavailable("no session"))?;
        for last in [false, true] {
            let link = self.link(slot).await?;
            let run = async {
                let statement = link.prepared(sql).await?;
                link.client.query(&statement, parameters).await
            };
            match tokio::time::timeout(self.patience, run).await {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => {
                    let lost = is_lost(&error) || link.client.is_closed();
                    if lost {
                        drop_link(slot, &link).await;
                    }
                    if last || !lost {
                        return Err(from_postgres(&error));
                    }
                }
                Err(_) => {
                    // Whatever holds it up: others must not wait behind it in the same session.
                    drop_link(slot, &link).await;
                    return Err(unavailable("PostgreSQL does not answer in time"));
                }
            }
        }
        Err(unavailable("the session with PostgreSQL is lost"))
    }
}

/// Takes a session out of use, unless it was replaced already.
async fn drop_link(slot: &tokio::sync::Mutex<Slot>, link: &Arc<Link>) {
    let mut slot = slot.lock().await;
    if slot.link.as_ref().is_some_and(|held| Arc::ptr_eq(held, link)) {
        slot.link = None;
    }
}
