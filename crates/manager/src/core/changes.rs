//! Changes wait for their turn: one at a time for each resource, in the order in which they came; those of different
//! resources at the same time; and each org in its turn, however much another one has waiting.
//!
//! Invariants: what waits is bounded for each resource, for each org, and in all, and beyond that is refused at once; who
//! goes away while it waits leaves nothing behind; an org is in the round exactly while it has a resource that could go on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;
use towpath_types::OrgName;
use towpath_types::resource::Key;

/// How many changes may run and wait in one manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeLimits {
    /// At the same time.
    pub at_once: usize,
    /// Waiting for one resource.
    pub per_resource: usize,
    /// Waiting for one org's resources.
    pub per_org: usize,
    /// Waiting in all.
    pub in_all: usize,
    /// Longest wait of one.
    pub patience: Duration,
}

impl Default for ChangeLimits {
    fn default() -> Self {
        Self {
            at_once: 256,
            per_resource: 256,
            per_org: 2_048,
            in_all: 8_192,
            patience: Duration::from_secs(10),
        }
    }
}

/// Why a change does not get a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Too much waits for this resource.
    #[error("too many changes of this wait already")]
    Resource,
    /// Too much of this org waits.
    #[error("too many changes of this org wait already")]
    Org,
    /// Too much waits.
    #[error("too many changes wait already")]
    Manager,
    /// Its turn did not come in time.
    #[error("the change waited too long for its turn; nothing was done")]
    Late,
}

/// An org; `None` = the platform itself.
type Org = Option<OrgName>;

/// All that wait, and who is next.
#[derive(Debug)]
pub struct Changes {
    limits: ChangeLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    waiting: usize,
    ids: u64,
    mailboxes: HashMap<Key, Mailbox>,
    orgs: HashMap<Org, OrgLine>,
    /// Orgs with a resource that could go on; the first is next.
    round: VecDeque<Org>,
}

/// A resource that is worked on or waited for.
#[derive(Debug, Default)]
struct Mailbox {
    busy: bool,
    line: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    turn: oneshot::Sender<()>,
}

#[derive(Debug, Default)]
struct OrgLine {
    waiting: usize,
    /// Resources with something waiting and nothing running; the first is next.
    ready: VecDeque<Key>,
}

/// The right to change one resource. Dropping it lets the next one have its turn.
#[derive(Debug)]
pub struct Turn<'a> {
    changes: &'a Changes,
    key: Key,
    /// Its number while it waits.
    waits: Option<u64>,
}

impl Changes {
    /// With these limits.
    pub fn new(limits: ChangeLimits) -> Self {
        Self { limits, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes that wait for their turn.
    pub fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Waits for the right to change a resource, until that moment at the longest.
    pub async fn enter(&self, key: &Key, until: Option<Instant>) -> Result<Turn<'_>, Refused> {
        let longest = Instant::now() + self.limits.patience;
        let until = until.map_or(longest, |until| until.min(longest));
        let (turn, come) = oneshot::channel();
        let id = self.lock().line_up(key, turn, &self.limits)?;
        let mut waiting = Turn { changes: self, key: key.clone(), waits: Some(id) };
        match tokio::time::timeout_at(until, come).await {
            Ok(Ok(())) => {
                waiting.waits = None;
                Ok(waiting)
            }
            Ok(Err(_)) | Err(_) => Err(Refused::Late),
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.changes.lock();
        // One that had its turn given, and went before it knew, has one to give back all the same.
        let went = self.waits.is_some_and(|id| state.leave(&self.key, id));
        if !went {
            state.end(&self.key);
        }
        state.advance(&self.changes.limits);
    }
}

impl State {
    fn line_up(
        &mut self,
        key: &Key,
        turn: oneshot::Sender<()>,
        limits: &ChangeLimits,
    ) -> Result<u64, Refused> {
        let (in_line, in_org) = (
            self.mailboxes.get(key).map_or(0, |mailbox| mailbox.line.len()),
            self.orgs.get(&key.org).map_or(0, |org| org.waiting),
        );
        match () {
            () if in_line >= limits.per_resource => return Err(Refused::Resource),
            () if in_org >= limits.per_org => return Err(Refused::Org),
            () if self.waiting >= limits.in_all => return Err(Refused::Manager),
            () => {}
        }
        self.ids += 1;
        let mailbox = self.mailboxes.entry(key.clone()).or_default();
        mailbox.line.push_back(Waiter { id: self.ids, turn });
        let could_go_on = !mailbox.busy && mailbox.line.len() == 1;
        self.waiting += 1;
        self.orgs.entry(key.org.clone()).or_default().waiting += 1;
        if could_go_on {
            self.make_ready(key);
        }
        let id = self.ids;
        self.advance(limits);
        Ok(id)
    }

    fn make_ready(&mut self, key: &Key) {
        let org = self.orgs.entry(key.org.clone()).or_default();
        org.ready.push_back(key.clone());
        if org.ready.len() == 1 {
            self.round.push_back(key.org.clone());
        }
    }

    /// Gives turns while there are any: one to each org in the round, then again.
    fn advance(&mut self, limits: &ChangeLimits) {
        while self.running < limits.at_once {
            let Some(name) = self.round.pop_front() else { return };
            let Some(org) = self.orgs.get_mut(&name) else { continue };
            let next = org.ready.pop_front();
            if !org.ready.is_empty() {
                self.round.push_back(name.clone());
            }
            let Some(mailbox) = next.and_then(|key| self.mailboxes.get_mut(&key)) else { continue };
            let Some(waiter) = mailbox.line.pop_front() else { continue };
            mailbox.busy = true;
            self.running += 1;
            self.count_out(&name);
            // Whoever is gone already gives it back.
            let _ = waiter.turn.send(());
        }
    }

    /// One waits no longer.
    fn count_out(&mut self, name: &Org) {
        self.waiting -= 1;
        if let Some(org) = self.orgs.get_mut(name) {
            org.waiting -= 1;
            if org.waiting == 0 {
                self.orgs.remove(name);
            }
        }
    }

    /// One goes before its turn; `false` = it does not wait any more.
    fn leave(&mut self, key: &Key, id: u64) -> bool {
        let Some(mailbox) = self.mailboxes.get_mut(key) else { return false };
        let Some(at) = mailbox.line.iter().position(|waiter| waiter.id == id) else { return false };
        mailbox.line.remove(at);
        if mailbox.line.is_empty() && !mailbox.busy {
            self.mailboxes.remove(key);
            if let Some(org) = self.orgs.get_mut(&key.org) {
                org.ready.retain(|ready| ready != key);
                if org.ready.is_empty() {
                    self.round.retain(|name| *name != key.org);
                }
            }
        }
        self.count_out(&key.org);
        true
    }

    /// One has had its turn.
    fn end(&mut self, key: &Key) {
        self.running -= 1;
        let Some(mailbox) = self.mailboxes.get_mut(key) else { return };
        mailbox.busy = false;
        if mailbox.line.is_empty() {
            self.mailboxes.remove(key);
        } else {
            self.make_ready(key);
        }
    }
}

#[cfg(test)]
mod tests;
