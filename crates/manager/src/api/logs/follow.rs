//! Log lines as they come: of every instance that is there or comes, over interruptions of cells and bus.

use super::{MAX_INSTANCES, MAX_TAIL, Target, Wanted};
use crate::api::ApiState;
use crate::api::sse::Frame;
use crate::core::Core;
use crate::operations::read_log;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use towpath_bus::Subscription;
use towpath_types::{InstanceId, LaneName};
use towpath_wire::log::{LogChunk, LogLine};
use towpath_wire::{decode, subject};

/// A cell publishes lines for so long after it was asked.
const LEASE: Duration = Duration::from_secs(30);
/// It is asked again that often.
const RENEW: Duration = Duration::from_secs(10);
/// Pause before a cell that could not be asked is asked again.
const AGAIN: Duration = Duration::from_millis(500);
/// How often instances that came or went are looked for.
const LOOK: Duration = Duration::from_millis(500);
/// Instances of what was deleted may print for so long until the stream ends.
const LAST_WORDS: Duration = Duration::from_secs(30);

/// An instance that a stream follows, or no longer.
#[derive(Debug, Serialize)]
struct FollowedView {
    instance: InstanceId,
    lane: LaneName,
    ordinal: Option<u32>,
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct GapView {
    instance: InstanceId,
    missed: u64,
}

impl Target {
    fn followed(&self, state: &'static str) -> FollowedView {
        FollowedView { instance: self.instance, lane: self.lane.clone(), ordinal: self.ordinal, state }
    }
}

/// The stream has named every instance that is there.
#[derive(Debug, Serialize)]
struct BegunView {
    instances: usize,
}

/// Nothing will come any more.
#[derive(Debug, Serialize)]
struct EndView {
    why: String,
}

type Sending = Result<(), mpsc::error::SendError<Frame>>;

/// Follows every instance that is there or comes, until the client goes or nothing can come any more.
pub(super) async fn all(state: ApiState, wanted: Wanted, tail: usize, out: mpsc::Sender<Frame>) {
    let mut ticks = state.core.soft.watch();
    let mut followed = Followed::new(out.clone(), &state);
    let (mut over, mut alone) = (None, false);
    loop {
        ticks.mark_unchanged();
        let exists = (wanted.exists)(&state);
        let present: BTreeMap<InstanceId, Target> = (wanted.find)(&state)
            .into_iter()
            .take(MAX_INSTANCES)
            .map(|target| (target.instance, target))
            .collect();
        if followed.update(&present, tail).await.is_err() {
            return;
        }
        if exists {
            over = None;
        } else {
            let until = *over.get_or_insert_with(|| tokio::time::Instant::now() + LAST_WORDS);
            // One look more for the last lines of the last instance.
            let silent = std::mem::replace(&mut alone, present.values().all(|target| target.past)) && alone;
            if silent || tokio::time::Instant::now() >= until {
                let end = EndView { why: format!("{} is gone", wanted.what) };
                let _ = out.send(Frame::json("end", None, &end)).await;
                return;
            }
        }
        // Announcements come in bursts; looking twice a second is enough.
        tokio::time::sleep(LOOK).await;
        tokio::select! {
            _ = ticks.changed() => {}
            Some(_) = followed.tasks.join_next() => {}
            // That an app was deleted is no announcement.
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// The instances of a stream.
struct Followed {
    core: Arc<Core>,
    out: mpsc::Sender<Frame>,
    known: BTreeMap<InstanceId, Target>,
    tasks: JoinSet<()>,
    begun: bool,
}

impl Followed {
    fn new(out: mpsc::Sender<Frame>, state: &ApiState) -> Self {
        Self { core: state.core.clone(), out, known: BTreeMap::new(), tasks: JoinSet::new(), begun: false }
    }

    /// Begins with those that came, and tells of those that went.
    async fn update(&mut self, present: &BTreeMap<InstanceId, Target>, tail: usize) -> Sending {
        while self.tasks.try_join_next().is_some() {}
        for (id, target) in present {
            if self.known.contains_key(id) {
                continue;
            }
            self.out.send(Frame::json("instance", None, &target.followed("found"))).await?;
            // Of an instance that came later, everything is new.
            let tail = if self.begun { MAX_TAIL } else { tail };
            self.tasks.spawn(follow_one(self.core.clone(), target.clone(), tail, self.out.clone()));
            self.known.insert(*id, target.clone());
        }
        if !self.begun {
            self.begun = true;
            self.out.send(Frame::json("begun", None, &BegunView { instances: present.len() })).await?;
        }
        let gone: Vec<InstanceId> =
            self.known.keys().filter(|id| !present.contains_key(id)).copied().collect();
        for id in gone {
            if let Some(target) = self.known.remove(&id) {
                self.out.send(Frame::json("instance", None, &target.followed("gone"))).await?;
            }
        }
        Ok(())
    }
}

/// Follows one instance until nobody knows it any more. A cell that does not answer, or a bus that is away, is tried
/// again.
async fn follow_one(core: Arc<Core>, target: Target, tail: usize, out: mpsc::Sender<Frame>) {
    let mut sent = Sent::default();
    let mut tail = tail;
    loop {
        let began = follow_once(&core, &target, &mut tail, &mut sent, &out).await;
        // A cell that does not answer has nothing to tell of the past for now.
        if began.is_err() || sent.tell_live(&target, &out).await.is_err() {
            return;
        }
        let known =
            core.soft.instance(target.instance).is_some() || core.cache.group_of(target.instance).is_some();
        if target.past || !known {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// The newest lines that were sent, to tell what is new after an interruption.
#[derive(Debug, Default)]
struct Sent {
    at_ms: u64,
    /// Texts of that time.
    texts: HashSet<String>,
    /// The client knows that further lines are new.
    live: bool,
}

impl Sent {
    /// Tells once that what the instance printed before the stream began was sent.
    async fn tell_live(&mut self, target: &Target, out: &mpsc::Sender<Frame>) -> Sending {
        if std::mem::replace(&mut self.live, true) {
            return Ok(());
        }
        out.send(Frame::json("live", None, &target.followed("live"))).await
    }

    fn note(&mut self, line: &LogLine) {
        if line.at_ms > self.at_ms {
            self.at_ms = line.at_ms;
            self.texts.clear();
        }
        if line.at_ms == self.at_ms {
            self.texts.insert(line.text.clone());
        }
    }

    fn is_new(&self, line: &LogLine) -> bool {
        line.at_ms > self.at_ms || (line.at_ms == self.at_ms && !self.texts.contains(&line.text))
    }
}

/// Follows until the cell does not answer. Error: the client went.
async fn follow_once(
    core: &Core,
    target: &Target,
    tail: &mut usize,
    sent: &mut Sent,
    out: &mpsc::Sender<Frame>,
) -> Sending {
    // Listen first, so that nothing falls between the last lines and the next ones.
    let Ok(mut chunks) = core.bus.subscribe(&subject::instance_log(target.instance)).await else {
        return Ok(());
    };
    let lease = if target.past { Duration::ZERO } else { LEASE };
    let Ok(lines) = read_log(core, target.cell, target.instance, *tail, lease).await else { return Ok(()) };
    // After an interruption, everything that was not sent yet is wanted.
    *tail = MAX_TAIL;
    // Lines that came while the question was answered may be in both.
    let mut shown: HashSet<(u64, String)> =
        lines.iter().rev().take(1000).map(|line| (line.at_ms, line.text.clone())).collect();
    let fresh: Vec<LogLine> = lines.into_iter().filter(|line| sent.is_new(line)).collect();
    for line in fresh {
        sent.note(&line);
        out.send(Frame::json("line", None, &target.line(line))).await?;
    }
    sent.tell_live(target, out).await?;
    if target.past {
        return Ok(());
    }
    let mut next_seq = None;
    let mut renew = tokio::time::interval_at(tokio::time::Instant::now() + RENEW, RENEW);
    loop {
        tokio::select! {
            chunk = next_chunk(&mut chunks) => {
                let Some(chunk) = chunk else { return Ok(()) };
                chunk.lines.iter().for_each(|line| sent.note(line));
                relay(target, chunk, &mut next_seq, &mut shown, out).await?;
            }
            _ = renew.tick() => {
                shown.clear();
                if read_log(core, target.cell, target.instance, 0, LEASE).await.is_err() {
                    return Ok(());
                }
            }
        }
    }
}

async fn next_chunk(chunks: &mut Subscription) -> Option<LogChunk> {
    loop {
        if let Ok(chunk) = decode(&chunks.next().await?.payload) {
            return Some(chunk);
        }
    }
}

/// Sends the new lines of a chunk, and a gap before them where lines are missing.
async fn relay(
    target: &Target,
    chunk: LogChunk,
    next_seq: &mut Option<u64>,
    shown: &mut HashSet<(u64, String)>,
    out: &mpsc::Sender<Frame>,
) -> Sending {
    let expected = next_seq.unwrap_or(chunk.seq);
    if chunk.seq > expected {
        let gap = GapView { instance: target.instance, missed: chunk.seq - expected };
        out.send(Frame::json("gap", None, &gap)).await?;
    }
    // Another follower's question may make the cell repeat itself; what is below the expected number was sent.
    let repeated = usize::try_from(expected.saturating_sub(chunk.seq)).unwrap_or(usize::MAX);
    let count = chunk.lines.len() as u64;
    for line in chunk.lines.into_iter().skip(repeated) {
        if shown.remove(&(line.at_ms, line.text.clone())) {
            continue;
        }
        out.send(Frame::json("line", None, &target.line(line))).await?;
    }
    *next_seq = Some(expected.max(chunk.seq + count));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_wire::log::LogSource;

    fn line(at_ms: u64) -> LogLine {
        LogLine { at_ms, source: LogSource::Stdout, text: at_ms.to_string() }
    }

    #[test]
    fn after_an_interruption_what_was_sent_is_not_sent_again() {
        let mut sent = Sent::default();
        for at_ms in [1, 2, 2] {
            sent.note(&line(at_ms));
        }
        let other = LogLine { text: "other".into(), ..line(2) };
        let new: Vec<_> =
            [line(1), line(2), other.clone(), line(3)].into_iter().filter(|l| sent.is_new(l)).collect();
        assert_eq!(new, [other, line(3)]);
    }
}
