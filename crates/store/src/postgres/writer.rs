//! The task that writes. It takes all transactions that wait and commits them in one database transaction, so that many
//! writers share two round trips and one flush of the log.
//!
//! The database transaction locks the one row of `meta` first. All managers' writers are thus in line, and a revision
//! is visible before the next one is given out.
//!
//! A commit whose answer is lost is looked up: each batch leaves a mark, and under the same lock the mark tells
//! whether the batch is there.

use super::batch::{self, Loaded, Plan};
use super::config::{PostgresConfig, Target};
use super::error::{Failure, from_postgres};
use super::link::Link;
use super::transaction::{IDEMPOTENCY_MS, LOCK, load, write};
use crate::decide;
use crate::{Commit, StoreError, Transaction};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};
use towpath_types::Revision;

/// Pause between looks for old idempotency keys.
const CLEAN_EVERY: Duration = Duration::from_secs(600);
/// A statement that has to be in line with all commits, such as evicting a manager: its text and parameters.
pub(super) struct Statement {
    pub(super) sql: &'static str,
    pub(super) parameters: Vec<Box<dyn ToSql + Sync + Send>>,
}

/// Work for the task.
pub(super) enum Job {
    Commit(Box<Transaction>, oneshot::Sender<Result<Commit, StoreError>>),
    Statement(Statement, oneshot::Sender<Result<Vec<Row>, StoreError>>),
}

impl Job {
    fn fail(self, error: &StoreError) {
        // A caller that has gone away needs no answer.
        match self {
            Self::Commit(_, answer) => drop(answer.send(Err(error.for_all()))),
            Self::Statement(_, answer) => drop(answer.send(Err(error.for_all()))),
        }
    }
}

type Answer = oneshot::Sender<Result<Commit, StoreError>>;

/// How a database transaction ended.
enum Outcome {
    Done(Plan),
    /// Rolled back, or never sent.
    Failed(Failure),
    /// The answer to COMMIT was lost.
    Unknown(Plan, StoreError),
}

pub(super) struct Writer {
    target: Target,
    config: PostgresConfig,
    jobs: mpsc::Receiver<Job>,
    watch: watch::Sender<Revision>,
    link: Option<Link>,
    /// Names this writer's mark in the table of idempotency keys; no caller's key has a control character first.
    mark: String,
    batches: u64,
    cleaned: Option<Instant>,
}

impl Writer {
    pub(super) fn new(
        target: Target,
        config: PostgresConfig,
        jobs: mpsc::Receiver<Job>,
        watch: watch::Sender<Revision>,
    ) -> Self {
        let mark = format!("\u{1}batch of {}", uuid::Uuid::new_v4());
        Self { target, config, jobs, watch, link: None, mark, batches: 0, cleaned: None }
    }

    /// Runs until all senders are gone and the queue is empty.
    pub(super) async fn run(mut self) {
        let mut waiting = Vec::new();
        loop {
            if self.link.as_ref().is_none_or(|link| link.client.is_closed()) && !self.connect().await {
                return;
            }
            let most = self.config.max_batch.max(1);
            if self.jobs.recv_many(&mut waiting, most).await == 0 {
                return;
            }
            let mut commits = Vec::new();
            for job in waiting.drain(..) {
                match job {
                    // Given up by its caller before it began.
                    Job::Commit(_, answer) if answer.is_closed() => {}
                    Job::Commit(transaction, answer) => commits.push((transaction, answer)),
                    Job::Statement(statement, answer) => {
                        let result = self.in_line(&statement).await;
                        let _ = answer.send(result);
                    }
                }
            }
            self.commit(commits).await;
            self.clean().await;
        }
    }

    /// Opens a session. Jobs wait a moment for it, then fail at once. False when all senders are gone.
    async fn connect(&mut self) -> bool {
        self.link = None;
        let down = Instant::now();
        let grace = down + self.config.reconnect_grace;
        let mut delay = Duration::ZERO;
        let mut error = Failure::lost().error;
        loop {
            let target = self.target.clone();
            let attempt = async move {
                tokio::time::sleep(delay).await;
                Link::open(&target, None).await
            };
            let mut attempt = std::pin::pin!(attempt);
            loop {
                tokio::select! {
                    biased;
                    opened = &mut attempt => match opened {
                        Ok(link) => {
                            self.link = Some(link);
                            return true;
                        }
                        Err(why) => {
                            error = why;
                            break;
                        }
                    },
                    job = next_after(&mut self.jobs, grace) => match job {
                        Some(job) => job.fail(&error),
                        None => return false,
                    },
                }
            }
            delay = super::backoff(delay);
        }
    }

    /// Commits what can be, and answers everybody.
    async fn commit(&mut self, jobs: Vec<(Box<Transaction>, Answer)>) {
        let (jobs, refused): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|(transaction, _)| decide::check(transaction).is_ok());
        for (transaction, answer) in refused {
            let _ = answer.send(
                decide::check(&transaction).map(|()| Commit { revision: Revision(0), records: vec![] }),
            );
        }
        if jobs.is_empty() {
            return;
        }
        let (transactions, answers): (Vec<_>, Vec<_>) = jobs.into_iter().unzip();
        match self.try_batch(&transactions).await {
            Outcome::Done(plan) => self.finish(plan, answers),
            Outcome::Failed(failure) if failure.one_to_blame && transactions.len() > 1 => {
                // Alone, it fails alone.
                for (transaction, answer) in transactions.into_iter().zip(answers) {
                    Box::pin(self.commit(vec![(transaction, answer)])).await;
                }
            }
            Outcome::Failed(failure) => {
                for answer in answers {
                    let _ = answer.send(Err(failure.error.for_all()));
                }
            }
            Outcome::Unknown(plan, error) => self.resolve(plan, answers, error).await,
        }
    }

    fn finish(&self, plan: Plan, answers: Vec<Answer>) {
        let revision = plan.revision;
        self.watch.send_if_modified(|seen| {
            let newer = revision > *seen;
            *seen = revision.max(*seen);
            newer
        });
        for (answer, result) in answers.into_iter().zip(plan.results) {
            let _ = answer.send(result);
        }
    }

    /// Finds out whether a batch was committed whose answer was lost.
    async fn resolve(&mut self, plan: Plan, answers: Vec<Answer>, error: StoreError) {
        tracing::warn!(%error, "looking up whether a commit took effect");
        self.link = None;
        let committed = tokio::time::timeout(self.config.resolve_timeout, self.look_up_mark()).await;
        match committed {
            Ok(true) => self.finish(plan, answers),
            Ok(false) => {
                for answer in answers {
                    let _ = answer.send(Err(error.for_all()));
                }
            }
            Err(_) => {
                let why = error.to_string();
                for answer in answers {
                    let _ = answer.send(Err(StoreError::Unavailable { why: why.clone(), uncertain: true }));
                }
            }
        }
    }

    /// Whether the mark of the last batch is there. The lock waits for the session that may still be committing it.
    async fn look_up_mark(&mut self) -> bool {
        let mut delay = Duration::ZERO;
        loop {
            tokio::time::sleep(delay).await;
            delay = super::backoff(delay);
            let Ok(link) = Link::open(&self.target, None).await else { continue };
            let look = async {
                link.client.batch_execute("BEGIN").await?;
                link.client.query_one(LOCK, &[]).await?;
                let sql = "SELECT records FROM towpath.idempotency WHERE key = $1";
                let found = link.client.query_opt_scalar::<String, _>(sql, &[&self.mark]).await?;
                link.client.batch_execute("COMMIT").await?;
                Ok::<_, Error>(found)
            };
            if let Ok(found) = look.await {
                self.link = Some(link);
                return found == Some(self.batches.to_string());
            }
        }
    }

    /// Loads, decides and writes in one database transaction.
    async fn try_batch(&mut self, transactions: &[Box<Transaction>]) -> Outcome {
        let transactions: Vec<&Transaction> = transactions.iter().map(AsRef::as_ref).collect();
        self.batches += 1;
        let patience = self.config.statement_timeout * 2;
        let Some(link) = self.link.take() else { return Outcome::Failed(Failure::lost()) };
        let loaded = match tokio::time::timeout(patience, load(&link, &transactions)).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(failure)) => return self.roll_back(link, failure).await,
            Err(_) => return Outcome::Failed(Failure::lost()),
        };
        let (compacted, now_ms, old) = (self.compact_to(&loaded), loaded.now_ms, loaded.revision);
        let mut plan = batch::plan(&transactions, loaded);
        if plan.revision == old && plan.remembered.is_empty() {
            // Nothing to write: no mark is needed, and a lost answer does no harm.
            if link.client.batch_execute("COMMIT").await.is_ok() {
                self.link = Some(link);
            }
            return Outcome::Done(plan);
        }
        plan.remembered.push((self.mark.clone(), plan.revision, self.batches.to_string()));
        match tokio::time::timeout(patience, write(&link, &plan, compacted, now_ms)).await {
            Ok(Ok(())) => {
                self.link = Some(link);
                Outcome::Done(plan)
            }
            Ok(Err(failure)) if failure.session_lives => self.roll_back(link, failure).await,
            Ok(Err(failure)) => Outcome::Unknown(plan, failure.error),
            Err(_) => Outcome::Unknown(plan, Failure::lost().error),
        }
    }

    async fn roll_back(&mut self, link: Link, failure: Failure) -> Outcome {
        if failure.session_lives && link.client.batch_execute("ROLLBACK").await.is_ok() {
            self.link = Some(link);
        }
        Outcome::Failed(failure)
    }

    /// Up to where the feed is to be dropped with this batch, in steps of a tenth of what is kept.
    fn compact_to(&self, loaded: &Loaded) -> Option<u64> {
        let keep = self.config.keep_revisions;
        let due = loaded.compacted + keep + keep / 10;
        (loaded.revision.0 > due).then(|| loaded.revision.0 - keep)
    }

    /// Runs a statement under the lock.
    async fn in_line(&mut self, statement: &Statement) -> Result<Vec<Row>, StoreError> {
        let lost = || Failure::lost().error;
        let link = self.link.as_ref().ok_or_else(lost)?;
        let parameters: Vec<&(dyn ToSql + Sync)> =
            statement.parameters.iter().map(|parameter| &**parameter as &(dyn ToSql + Sync)).collect();
        let run = async {
            link.client.batch_execute("BEGIN").await?;
            link.client.query_one(LOCK, &[]).await?;
            let rows = link.client.query(statement.sql, &parameters).await?;
            link.client.batch_execute("COMMIT").await?;
            Ok::<_, Error>(rows)
        };
        let result = tokio::time::timeout(self.config.statement_timeout * 2, run).await;
        match result {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(error)) => {
                // These statements may be repeated, so it does not matter how far this one got.
                self.link = None;
                Err(from_postgres(&error))
            }
            Err(_) => {
                self.link = None;
                Err(lost())
            }
        }
    }

    /// Drops old idempotency keys now and then.
    async fn clean(&mut self) {
        if self.cleaned.is_some_and(|at| at.elapsed() < CLEAN_EVERY) {
            return;
        }
        self.cleaned = Some(Instant::now());
        let sql = format!(
            "DELETE FROM towpath.idempotency
             WHERE at_ms <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint - {IDEMPOTENCY_MS}"
        );
        if let Some(link) = &self.link
            && let Err(error) = link.client.batch_execute(&sql).await
        {
            tracing::warn!(%error, "old idempotency keys could not be dropped");
        }
    }
}

/// The next job, but none before `moment`.
async fn next_after(jobs: &mut mpsc::Receiver<Job>, moment: Instant) -> Option<Job> {
    tokio::time::sleep_until(moment).await;
    jobs.recv().await
}
