//! The slots of one key, shared by all workers: who has one, who waits for one, and the way back of each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::oneshot;
use towpath_s3::admission::{Class, Entered, Queue, Rules};

/// Most values of keys; beyond that, slots of new values are not shared with anybody.
const MOST: usize = 64 * 1024;

/// The slots of one value of the key.
pub(super) struct Slots(Mutex<Queue<oneshot::Sender<Slot>>>);

/// A slot that a request has, given back when it ends, however it ends.
pub(super) struct Slot {
    slots: Arc<Slots>,
    class: Class,
    now_ns: fn() -> u64,
}

/// What an arrival comes to.
pub(super) enum Arrival {
    Go(Slot),
    Wait(Place),
    Full,
}

/// A place in a line, left when it is dropped.
pub(super) struct Place {
    slots: Arc<Slots>,
    class: Class,
    number: u64,
    pub(super) until_ns: u64,
    told: oneshot::Receiver<Slot>,
}

impl Slots {
    /// All of them are free.
    pub(super) fn free(rules: Rules) -> Self {
        Self(Mutex::new(Queue::new(rules)))
    }

    fn queue(&self) -> MutexGuard<'_, Queue<oneshot::Sender<Slot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request comes; these are the rules from now on.
    pub(super) fn enter(self: &Arc<Self>, class: Class, rules: Rules, now_ns: fn() -> u64) -> Arrival {
        let (tell, told) = oneshot::channel();
        let entered = {
            let mut queue = self.queue();
            queue.set_rules(rules);
            queue.enter(class, now_ns(), tell)
        };
        match entered {
            Entered::Go => Arrival::Go(Slot { slots: self.clone(), class, now_ns }),
            Entered::Full => Arrival::Full,
            Entered::Wait(number, until_ns) => {
                // Others' rules may have more slots than there were.
                self.give_out(now_ns);
                Arrival::Wait(Place { slots: self.clone(), class, number, until_ns, told })
            }
        }
    }

    /// Gives what is free to those whose turn it is.
    fn give_out(self: &Arc<Self>, now_ns: fn() -> u64) {
        loop {
            let granted = self.queue().grant(now_ns());
            let Some((class, tell)) = granted else { return };
            // Who has gone at this very moment gives it back at once, by its drop.
            let _ = tell.send(Slot { slots: self.clone(), class, now_ns });
        }
    }

    /// How many have a slot, and how many wait.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (u32, usize) {
        let queue = self.queue();
        (queue.running(), queue.waiting())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.queue().leave(self.class);
        self.slots.give_out(self.now_ns);
    }
}

impl Place {
    /// Waits for a slot; `None` = the time is over.
    pub(super) async fn slot(mut self, now_ns: u64) -> Option<Slot> {
        let time = std::time::Duration::from_nanos(self.until_ns.saturating_sub(now_ns));
        tokio::time::timeout(time, &mut self.told).await.ok()?.ok()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.slots.queue().cancel(self.class, self.number);
    }
}

/// The slots by value of the key, as long as somebody has one or waits.
#[derive(Default)]
pub(super) struct ByValue(Mutex<HashMap<String, Weak<Slots>>>);

impl ByValue {
    pub(super) fn of(&self, value: &str, rules: Rules) -> Arc<Slots> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(value).and_then(Weak::upgrade) {
            return known;
        }
        if all.len() >= MOST {
            all.retain(|_, slots| slots.strong_count() > 0);
        }
        let made = Arc::new(Slots::free(rules));
        if all.len() < MOST {
            all.insert(value.to_owned(), Arc::downgrade(&made));
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_s3::admission::Share;

    fn rules(slots: u32) -> Rules {
        let share = Share { weight: 1, queue: 10_000, wait_ns: u64::MAX, most: u32::MAX };
        Rules { slots, shares: [share; 4] }
    }

    fn now() -> u64 {
        7
    }

    #[tokio::test]
    async fn a_slot_comes_back_from_every_end() {
        let slots = Arc::new(Slots::free(rules(1)));
        let Arrival::Go(first) = slots.enter(Class::Read, rules(1), now) else { panic!("no slot") };
        let mut places = Vec::new();
        for _ in 0..4 {
            let Arrival::Wait(place) = slots.enter(Class::Write, rules(1), now) else { panic!("no place") };
            places.push(place);
        }
        assert_eq!(slots.counts(), (1, 4));
        // One goes away while it waits, the next is given the slot and goes away before it looks.
        drop(places.remove(1));
        assert_eq!(slots.counts(), (1, 3));
        drop(first);
        assert_eq!(slots.counts(), (1, 2));
        drop(places.remove(0));
        assert_eq!(slots.counts(), (1, 1));
        let slot = places.remove(0).slot(0).await.unwrap();
        let mut late = places.remove(0);
        late.until_ns = 0;
        assert!(late.slot(0).await.is_none());
        assert_eq!(slots.counts(), (1, 0));
        drop(slot);
        assert_eq!(slots.counts(), (0, 0));
    }

    #[test]
    fn threads_never_have_more_slots_than_there_are_and_none_is_lost() {
        let slots = Arc::new(Slots::free(rules(3)));
        std::thread::scope(|scope| {
            for n in 0..4_u64 {
                let slots = &slots;
                scope.spawn(move || {
                    let runtime =
                        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
                    runtime.block_on(async {
                        for round in 0..300_u64 {
                            let class = Class::ALL[((n + round) % 4) as usize];
                            let slot = match slots.enter(class, rules(3), now) {
                                Arrival::Go(slot) => Some(slot),
                                Arrival::Wait(place) if round % 3 == 0 => {
                                    drop(place);
                                    None
                                }
                                Arrival::Wait(place) => place.slot(u64::MAX - 60_000_000_000).await,
                                Arrival::Full => panic!("there is room"),
                            };
                            assert!(slots.counts().0 <= 3);
                            drop(slot);
                        }
                    });
                });
            }
        });
        assert_eq!(slots.counts(), (0, 0));
    }

    #[test]
    fn a_value_that_nobody_uses_is_forgotten() {
        let all = ByValue::default();
        let held = all.of("a", rules(1));
        assert!(Arc::ptr_eq(&held, &all.of("a", rules(1))));
        let other = Arc::downgrade(&all.of("b", rules(1)));
        assert!(other.upgrade().is_none());
    }
}
