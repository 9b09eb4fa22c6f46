//! Endpoints that are in doubt: a connection to them has just ended unasked, or could not be made. An instance that died takes
//! all its connections along at one moment, and each of their requests would find out anew that nobody listens there any
//! more. So one of them tries to connect, the others wait for what comes of it, and those that come later with the same
//! old choice are told.

use super::AttemptFault;
use super::awaited::Awaited;
use super::pool::PoolKey;
use crate::deadline::Deadline;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A doubt that nobody has settled is forgotten after so long.
const FORGET_MS: u64 = 10_000;

/// All of a worker's.
#[derive(Default)]
pub(crate) struct Trials {
    doubts: RefCell<HashMap<PoolKey, Doubt>>,
    /// Failures so far.
    failures: Cell<u64>,
}

#[derive(Default)]
struct Doubt {
    since_ms: u64,
    /// The connection that is being tried.
    trial: Option<Rc<Awaited>>,
    /// The last failure: its number, and what it was.
    failed: u64,
    fault: Option<AttemptFault>,
}

/// A moment in the order of failures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark(u64);

/// The right to connect. In doubt it is also the duty to try: dropped without a word (its client went away) one of those that
/// wait takes over.
pub(crate) struct Turn<'a> {
    trials: &'a Trials,
    key: PoolKey,
    trial: Option<Rc<Awaited>>,
}

impl Trials {
    /// Now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.failures.get())
    }

    /// The endpoint may have died.
    pub(crate) fn doubt(&self, key: PoolKey, now_ms: u64) {
        self.doubts.borrow_mut().entry(key).or_default().since_ms = now_ms;
    }

    /// Before a connection is made by a request that has chosen its endpoint at `chosen`: in doubt it waits for the trial of
    /// another. Where a connection has failed since it chose, it fails in the same way.
    pub(crate) async fn turn(
        &self,
        key: PoolKey,
        chosen: Mark,
        deadline: &Deadline,
    ) -> Result<Turn<'_>, AttemptFault> {
        loop {
            let trial = {
                let mut doubts = self.doubts.borrow_mut();
                let Some(doubt) = doubts.get_mut(&key) else {
                    return Ok(Turn { trials: self, key, trial: None });
                };
                if let Some(fault) = doubt.fault.as_ref().filter(|_| doubt.failed > chosen.0)
                    && let Some(fault) = fault.of_shared_connect()
                {
                    return Err(fault);
                }
                let Some(trial) = &doubt.trial else {
                    let trial = Rc::<Awaited>::default();
                    doubt.trial = Some(trial.clone());
                    return Ok(Turn { trials: self, key, trial: Some(trial) });
                };
                trial.clone()
            };
            trial.end(deadline).await?;
        }
    }

    /// Forgets endpoints that nobody asks for any more.
    pub(crate) fn sweep(&self, now_ms: u64) {
        let is_recent = |doubt: &Doubt| now_ms.saturating_sub(doubt.since_ms) < FORGET_MS;
        self.doubts.borrow_mut().retain(|_, doubt| doubt.trial.is_some() || is_recent(doubt));
    }
}

impl Turn<'_> {
    /// Tells what came of it; a connection settles the doubt.
    pub(crate) fn ends<T>(self, result: &Result<T, AttemptFault>, now_ms: u64) {
        let mut doubts = self.trials.doubts.borrow_mut();
        match result.as_ref().map_err(AttemptFault::of_shared_connect) {
            Ok(_) => {
                doubts.remove(&self.key);
            }
            Err(Some(fault)) => {
                let number = self.trials.failures.get() + 1;
                self.trials.failures.set(number);
                let doubt = doubts.entry(self.key).or_default();
                (doubt.since_ms, doubt.failed, doubt.fault) = (now_ms, number, Some(fault));
            }
            Err(None) => {}
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(trial) = &self.trial else { return };
        if let Some(doubt) = self.trials.doubts.borrow_mut().get_mut(&self.key)
            && doubt.trial.as_ref().is_some_and(|known| Rc::ptr_eq(known, trial))
        {
            doubt.trial = None;
        }
        trial.ends();
    }
}
