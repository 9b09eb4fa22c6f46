//! Commands that come over the bus, and their answers.

use crate::announce::Announcer;
use crate::driver::Driver;
use crate::identity::Identity;
use crate::ledger::LedgerFile;
use crate::logs::{self, EndedLogs, Followers};
use crate::staging::Stager;
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use towpath_bus::{Bus, Message, Subscription};
use towpath_types::{ErrorCode, InstanceId};
use towpath_wire::cell::{CellCommand, CellOrder, CellReply};
use towpath_wire::log::LogQuery;

/// Lines in one answer.
const TAIL_LINES: usize = 10_000;
/// Text in one answer. The bus carries a million bytes, and JSON may double most texts.
const TAIL_BYTES: usize = 450_000;

/// Answers commands.
pub(crate) struct Commands {
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) driver: Arc<dyn Driver>,
    pub(crate) stager: Stager,
    pub(crate) followers: Followers,
    pub(crate) announcer: Arc<Announcer>,
    pub(crate) identity: Arc<Mutex<Identity>>,
    pub(crate) ended_logs: EndedLogs,
    pub(crate) ledger: LedgerFile,
    /// The highest epoch of a command.
    pub(crate) obeyed: AtomicU64,
}

impl Commands {
    /// Answers until the subscription ends; each command in a task of its own, so that none waits for another.
    pub(crate) async fn run(self: Arc<Self>, mut subscription: Subscription) {
        while let Some(message) = subscription.next().await {
            let this = Arc::clone(&self);
            tokio::spawn(async move { this.answer(message).await });
        }
    }

    async fn answer(&self, message: Message) {
        let reply = match towpath_wire::decode::<CellOrder>(&message.payload) {
            Ok(order) => match self.find_newer(order.epoch) {
                Some(epoch) => CellReply::Outdated { epoch },
                None => self.obey(order.command).await,
            },
            Err(error) => refused(ErrorCode::Malformed, error.to_string()),
        };
        let Some(to) = message.reply else { return };
        if let Err(error) = self.bus.publish(&to, Bytes::from(towpath_wire::encode(&reply))).await {
            tracing::warn!(%error, "an answer to a command was not sent");
        }
    }

    /// The epoch that was obeyed, if it is higher than the sender's. The sender's is obeyed from now on, otherwise.
    fn find_newer(&self, epoch: u64) -> Option<u64> {
        if epoch == 0 {
            return None;
        }
        let set = self.ledger.read(|ledger| ledger.desired.epoch);
        // One that no store can have would refuse every manager from then on.
        let known = if epoch < i64::MAX.unsigned_abs() {
            self.obeyed.fetch_max(epoch, Ordering::SeqCst)
        } else {
            self.obeyed.load(Ordering::SeqCst)
        };
        let obeyed = known.max(set);
        (epoch < obeyed).then_some(obeyed)
    }

    async fn obey(&self, command: CellCommand) -> CellReply {
        match command {
            CellCommand::Stage(job) => match self.stager.stage(job).await {
                Ok(()) => CellReply::Accepted,
                Err(refusal) => refused(refusal.code, refusal.message),
            },
            CellCommand::CancelStage { operation } => {
                self.stager.cancel(operation).await;
                CellReply::Accepted
            }
            CellCommand::Logs(query) => self.logs(query).await,
            CellCommand::Cordon { on } => self.cordon(on).await,
        }
    }

    async fn logs(&self, query: LogQuery) -> CellReply {
        let Some(mut dir) = self.log_dir(query.instance).await else {
            return refused(
                ErrorCode::NotFound,
                format!("the cell has no log of instance {}", query.instance),
            );
        };
        let lines = query.tail.min(TAIL_LINES);
        let mut bytes = TAIL_BYTES;
        loop {
            let path = dir.clone();
            let read = move || logs::tail(&path, lines, bytes);
            let Ok((lines, position)) = tokio::task::spawn_blocking(read).await else {
                return refused(ErrorCode::Internal, "the log could not be read".into());
            };
            // An instance that ends just now takes its log to another place.
            if lines.is_empty()
                && let Some(moved) = self.log_dir(query.instance).await.filter(|now| *now != dir)
            {
                dir = moved;
                continue;
            }
            let reply = CellReply::Log { lines };
            // Text that JSON has to escape much may still be too large.
            if towpath_wire::encode(&reply).len() > towpath_bus::MAX_PAYLOAD {
                bytes /= 2;
                continue;
            }
            if query.follow_ms > 0 {
                self.followers.follow(query.instance, dir, position, Duration::from_millis(query.follow_ms));
            }
            return reply;
        }
    }

    async fn log_dir(&self, instance: InstanceId) -> Option<PathBuf> {
        let running = self.driver.log_dir(instance);
        let is_known = self.announcer.board.state(instance).is_some();
        let candidates = [running.clone(), self.ended_logs.of(instance)];
        let find = move || candidates.into_iter().find(|dir| dir.is_dir());
        tokio::task::spawn_blocking(find).await.ok().flatten().or(is_known.then_some(running))
    }

    async fn cordon(&self, on: bool) -> CellReply {
        let identity = Arc::clone(&self.identity);
        let save = move || {
            let mut identity = identity.lock().unwrap_or_else(PoisonError::into_inner);
            identity.cordoned = on;
            identity.save()
        };
        let saved = tokio::task::spawn_blocking(save).await;
        self.announcer.cordoned.store(on, Ordering::Relaxed);
        self.announcer.announce(false).await;
        match saved {
            Ok(Ok(())) => CellReply::Accepted,
            Err(_) => refused(ErrorCode::Internal, "it holds until the cell restarts only".into()),
            Ok(Err(error)) => {
                refused(ErrorCode::StorageFull, format!("it holds until the cell restarts only: {error}"))
            }
        }
    }
}

fn refused(code: ErrorCode, message: String) -> CellReply {
    CellReply::Refused { code, message }
}
