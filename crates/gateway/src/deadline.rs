//! Coarse deadlines of one worker. A deadline is a cell that is written, not a timer that is armed: requests move it
//! forward at the cost of a store, and one tick a worker ([`TICK`]) looks through all of them and wakes what is late.
//! So a deadline is met up to two ticks late (it counts from the tick before, and one is added so that it is never
//! early), and costs nothing on the request path.
//!
//! The clock of deadlines is one of the time in which the worker ran: a pause of the whole thread (the machine slept, the
//! process was stopped, the processor was taken away) is nobody's silence, and nobody could have been heard in it.

use crate::clock;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

/// How often deadlines are looked through.
pub(crate) const TICK: Duration = Duration::from_millis(50);

const TICK_MS: u64 = TICK.as_millis() as u64;

/// A tick that comes later than this does not count for more.
const LONGEST_MS: u64 = 4 * TICK_MS;

const NEVER: u64 = u64::MAX;

/// All deadlines of a worker.
#[derive(Default)]
pub(crate) struct Deadlines {
    slots: RefCell<Vec<Rc<Slot>>>,
    now_ms: Cell<u64>,
    /// The process's clock at the last tick.
    ticked_ms: Cell<Option<u64>>,
}

struct Slot {
    at_ms: Cell<u64>,
    cap_ms: Cell<u64>,
    index: Cell<usize>,
    waker: RefCell<Option<Waker>>,
}

/// One deadline, unset at first. Dropping it removes it.
pub(crate) struct Deadline {
    slot: Rc<Slot>,
    all: Rc<Deadlines>,
}

impl Deadlines {
    /// The coarse time: that of the last tick.
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ms.get()
    }

    /// Looks through all deadlines and wakes the tasks of those that passed.
    pub(crate) fn tick(&self) {
        self.tick_at(clock::now_ms());
    }

    fn tick_at(&self, clock_ms: u64) {
        let passed = clock_ms.saturating_sub(self.ticked_ms.replace(Some(clock_ms)).unwrap_or(clock_ms));
        let now = self.now_ms.get() + passed.min(LONGEST_MS);
        self.now_ms.set(now);
        for slot in self.slots.borrow().iter() {
            if slot.at_ms.get() <= now
                && let Some(waker) = slot.waker.borrow().as_ref()
            {
                waker.wake_by_ref();
            }
        }
    }

    /// Wakes the tasks of all deadlines.
    pub(crate) fn wake_all(&self) {
        for slot in self.slots.borrow().iter() {
            if let Some(waker) = slot.waker.borrow().as_ref() {
                waker.wake_by_ref();
            }
        }
    }

    /// A new deadline.
    pub(crate) fn add(self: &Rc<Self>) -> Deadline {
        let mut slots = self.slots.borrow_mut();
        let slot = Rc::new(Slot {
            at_ms: Cell::new(NEVER),
            cap_ms: Cell::new(NEVER),
            index: Cell::new(slots.len()),
            waker: RefCell::new(None),
        });
        slots.push(slot.clone());
        Deadline { slot, all: self.clone() }
    }
}

impl Deadline {
    /// Sets it to so many milliseconds from now; `u64::MAX` and 0 unset it (0 is how settings say "no limit").
    pub(crate) fn set_in(&self, ms: u64) {
        self.slot.at_ms.set(self.at(ms).min(self.slot.cap_ms.get()));
    }

    /// From now on it is never later than so many milliseconds from now, whatever it is set to; 0 lifts that.
    pub(crate) fn cap_in(&self, ms: u64) {
        self.slot.cap_ms.set(self.at(ms));
    }

    fn at(&self, ms: u64) -> u64 {
        if ms == 0 { NEVER } else { self.all.now_ms.get().saturating_add(TICK_MS).saturating_add(ms) }
    }

    /// Whether the cap itself has passed.
    pub(crate) fn is_cap_over(&self) -> bool {
        self.slot.cap_ms.get() <= self.all.now_ms.get()
    }

    /// Unsets it, and its cap.
    pub(crate) fn clear(&self) {
        self.slot.at_ms.set(NEVER);
        self.slot.cap_ms.set(NEVER);
    }

    /// The present time, as coarse as the tick.
    pub(crate) fn now_ms(&self) -> u64 {
        self.all.now_ms.get()
    }

    /// Whether it has passed. If not, the task is woken when it does.
    pub(crate) fn is_over(&self, cx: &Context<'_>) -> bool {
        if self.slot.at_ms.get() <= self.all.now_ms.get() {
            return true;
        }
        let mut waker = self.slot.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|known| known.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        false
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let mut slots = self.all.slots.borrow_mut();
        let index = self.slot.index.get();
        if index < slots.len() {
            slots.swap_remove(index);
            if let Some(moved) = slots.get(index) {
                moved.index.set(index);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_passes_once_the_clock_has_moved_and_can_be_moved_itself() {
        let all = Rc::new(Deadlines::default());
        all.tick();
        let (one, other) = (all.add(), all.add());
        let cx = Context::from_waker(Waker::noop());
        assert!(!one.is_over(&cx));
        one.set_in(1);
        other.set_in(60_000);
        while !one.is_over(&cx) {
            std::thread::yield_now();
            all.tick();
        }
        assert!(!other.is_over(&cx));
        one.set_in(0);
        assert!(!one.is_over(&cx));
        drop(one);
        other.slot.at_ms.set(0);
        assert!(other.is_over(&cx));
        drop(other);
        assert!(all.slots.borrow().is_empty());
    }

    #[test]
    fn a_deadline_is_never_early_and_a_pause_of_the_worker_counts_for_nobody() {
        let all = Rc::new(Deadlines::default());
        let cx = Context::from_waker(Waker::noop());
        all.tick_at(1_000);
        let deadline = all.add();
        // Really set at 1,049: right before the next tick.
        deadline.set_in(100);
        all.tick_at(1_050);
        all.tick_at(1_100);
        assert!(!deadline.is_over(&cx), "only 51 ms have passed");
        all.tick_at(1_150);
        assert!(deadline.is_over(&cx), "101 ms");
        deadline.set_in(1_000);
        all.tick_at(60_000);
        assert!(!deadline.is_over(&cx), "a minute in which nobody was heard");
        deadline.set_in(300);
        for n in 1..=7 {
            all.tick_at(60_000 + n * 50);
        }
        assert!(deadline.is_over(&cx));
    }
}
