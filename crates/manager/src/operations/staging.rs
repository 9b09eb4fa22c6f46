//! Having a release built on a cell, and relaying what the build says.

use super::input::Push;
use super::{Event, Failure, Job, Operations};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use towpath_bus::{BusError, BusState, Subscription};
use towpath_types::cell::Scheduling;
use towpath_types::{CellId, Digest, ErrorCode, Millis};
use towpath_wire::cell::{CellCommand, CellReply};
use towpath_wire::staging::{StageEvent, StageJob, StageOutput, StageResult};
use towpath_wire::{decode, subject};

/// Longest time for a build.
const BUILD: Millis = Millis::secs(1800);
/// Silence after which a build counts as lost; the cell speaks every second.
const SILENCE: Duration = Duration::from_secs(10);
/// Longest wait for a cell's word that it takes the job.
const ACCEPT: Duration = Duration::from_secs(5);
/// Longest wait for a cell to be there at all.
const WAIT_FOR_CELL: Duration = Duration::from_secs(15);
/// Cells that are tried.
const CELLS: usize = 2;
/// Pause before a cell that could not be asked is asked again.
const AGAIN: Duration = Duration::from_millis(250);

/// How one try on one cell ended without a verdict on the app.
enum Lost {
    /// It could not be asked at all: it is being restarted, or the bus is away for a moment.
    Unasked(String),
    /// It took the job, or may have, and does not tell of it any more.
    Silent(String),
}

impl Operations {
    /// Builds on one cell; if that cell is lost, on another, once.
    pub(super) async fn stage(
        &self,
        job: &Job,
        push: &Push,
        source: Digest,
        env: BTreeMap<String, String>,
    ) -> Result<StageResult, Failure> {
        let work = StageJob {
            operation: job.id,
            app: job.app().clone(),
            source,
            builder: push.builder.clone(),
            command: push.command.clone(),
            env,
            timeout: BUILD,
        };
        let mut tried = BTreeSet::new();
        let mut last = "no cell is there to build on; start one with `towpath cell`".to_owned();
        let patience = Instant::now() + WAIT_FOR_CELL;
        while tried.len() < CELLS {
            let Some(cell) = self.choose_cell(&tried, push.builder.as_deref()).await else { break };
            match self.stage_on(job, cell, &work).await? {
                Ok(result) => return Ok(result),
                Err(Lost::Unasked(why)) if Instant::now() < patience => {
                    last = why;
                    tokio::time::sleep(AGAIN).await;
                }
                Err(Lost::Unasked(why) | Lost::Silent(why)) => {
                    tracing::warn!(operation = %job.id, %cell, why, "a build was lost");
                    job.live.events.push(Event::Step { title: format!("The build was lost ({why})") });
                    last = why;
                    // The only cell there is may be tried once more.
                    if !tried.insert(cell) {
                        break;
                    }
                }
            }
        }
        if tried.is_empty() {
            return Err(Failure::new(ErrorCode::NoRoom, last));
        }
        Err(Failure::new(ErrorCode::BuildFailed, format!("the build was lost: {last}")))
    }

    /// The least busy live cell that was not tried yet (or, with none left, one that was), which has the builder's tools
    /// if any has. Waits a moment for a cell to appear.
    async fn choose_cell(&self, tried: &BTreeSet<CellId>, builder: Option<&str>) -> Option<CellId> {
        let mut ticks = self.core.soft.watch();
        let deadline = Instant::now() + WAIT_FOR_CELL;
        loop {
            ticks.mark_unchanged();
            let best = self
                .core
                .soft
                .cells()
                .into_iter()
                .filter(|cell| !cell.lost && !cell.announce.leaving)
                .min_by_key(|cell| {
                    let announce = &cell.announce;
                    let has_tools =
                        builder.is_none_or(|name| announce.builders.iter().any(|have| have == name));
                    let busy = (announce.host.cpu.clamp(0.0, 1.0) * 1000.0) as u32;
                    let closed = self.core.cache.cell(announce.cell).scheduling != Scheduling::Open;
                    (tried.contains(&announce.cell), !has_tools, closed, busy, announce.cell)
                });
            if let Some(cell) = best {
                return Some(cell.announce.cell);
            }
            if tokio::time::timeout_at(deadline, ticks.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// One try. Outer error: the operation fails; inner: try elsewhere.
    async fn stage_on(
        &self,
        job: &Job,
        cell: CellId,
        work: &StageJob,
    ) -> Result<Result<StageResult, Lost>, Failure> {
        // Listen first, so that nothing of the output is missed.
        let output = match self.core.bus.subscribe(&subject::staging_output(job.id)).await {
            Ok(output) => output,
            Err(error) => return Ok(Err(Lost::Unasked(error.to_string()))),
        };
        let command = CellCommand::Stage(work.clone());
        let reply = crate::cells::order::send(&self.core, cell, command, ACCEPT).await;
        let reply = match reply {
            Ok(payload) => decode::<CellReply>(&payload),
            Err(error @ BusError::Timeout { .. }) => return Ok(Err(Lost::Silent(error.to_string()))),
            Err(error) => return Ok(Err(Lost::Unasked(error.to_string()))),
        };
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return Ok(Err(Lost::Silent(error.to_string()))),
        };
        match reply {
            CellReply::Refused { code: ErrorCode::Busy, message } => return Ok(Err(Lost::Silent(message))),
            CellReply::Refused { code, message } => return Err(Failure::new(code, message)),
            CellReply::Outdated { epoch } => {
                return Ok(Err(Lost::Unasked(format!("it has obeyed a newer manager, of epoch {epoch}"))));
            }
            CellReply::Accepted | CellReply::Log { .. } => {}
        }
        let failure = tokio::select! {
            outcome = self.relay(job, cell, output) => return outcome,
            failure = job.turn.passed(job.id) => failure,
            failure = job.live.cancelled() => failure,
        };
        let cancel = CellCommand::CancelStage { operation: job.id };
        let _ = crate::cells::order::send(&self.core, cell, cancel, ACCEPT).await;
        Err(failure)
    }

    /// Relays the build's output until its end.
    async fn relay(
        &self,
        job: &Job,
        cell: CellId,
        mut output: Subscription,
    ) -> Result<Result<StageResult, Lost>, Failure> {
        let bus = self.core.bus.state();
        let end = Instant::now() + BUILD.duration() + SILENCE;
        let (mut last, mut lines) = (0, Vec::new());
        loop {
            let message = match tokio::time::timeout(SILENCE, output.next()).await {
                Ok(Some(message)) => message,
                Ok(None) => return Ok(Err(Lost::Silent("the bus was closed".into()))),
                // While the bus is down, silence proves nothing about the cell.
                Err(_) if *bus.borrow() == BusState::Down && Instant::now() < end => continue,
                Err(_) => return Ok(Err(Lost::Silent(format!("cell {} fell silent", cell.short())))),
            };
            let Ok(StageEvent { seq, event }) = decode::<StageEvent>(&message.payload) else { continue };
            if seq <= last {
                continue;
            }
            if seq > last + 1 {
                job.live.events.push(Event::Gap { missed: seq - last - 1 });
            }
            last = seq;
            match event {
                StageOutput::Step { title } => job.live.events.push(Event::Step { title }),
                StageOutput::Line { text } => {
                    keep_last(&mut lines, text.clone());
                    job.live.events.push(Event::Line { text });
                }
                StageOutput::Alive => {}
                StageOutput::Done(result) => return Ok(Ok(result)),
                StageOutput::Failed { code, message } => {
                    let message = without_lines(&message, &lines);
                    return Err(Failure { code, message, log: lines });
                }
            }
        }
    }
}

/// A failure's message without the lines of the build that the cell repeats in it: the log has them.
fn without_lines(message: &str, lines: &[String]) -> String {
    let repeated = |part: &&str| lines.iter().any(|line| line.trim() == part.trim());
    let (first, rest) = message.split_once('\n').unwrap_or((message, ""));
    let rest = rest.lines().filter(|part| !repeated(part));
    std::iter::once(first).chain(rest).collect::<Vec<_>>().join("\n")
}

/// Keeps the last lines for the status of a failed build.
fn keep_last(lines: &mut Vec<String>, line: String) {
    const LINES: usize = 50;
    if lines.len() >= LINES {
        lines.remove(0);
    }
    lines.push(line);
}
