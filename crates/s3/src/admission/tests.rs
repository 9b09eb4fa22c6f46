use super::*;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

fn share(weight: u32, queue: u32, wait_ms: u64) -> Share {
    Share { weight, queue, wait_ns: wait_ms * MS, most: u32::MAX }
}

fn rules(slots: u32, weights: [u32; 4]) -> Rules {
    Rules { slots, shares: weights.map(|weight| share(weight, 100, 60_000)) }
}

/// A server with these slots, each request taking this long, and lines that are filled up again whenever they are not full.
struct World {
    queue: Queue<u64>,
    now: u64,
    ends: BTreeMap<(u64, u64), Class>,
    arrived: BTreeMap<u64, (Class, u64)>,
    waits: BTreeMap<Class, Vec<u64>>,
    next: u64,
}

impl World {
    fn new(rules: Rules) -> Self {
        Self {
            queue: Queue::new(rules),
            now: 0,
            ends: BTreeMap::new(),
            arrived: BTreeMap::new(),
            waits: BTreeMap::new(),
            next: 0,
        }
    }

    fn arrive(&mut self, class: Class, takes: u64) -> Entered {
        let id = self.next;
        self.next += 1;
        let entered = self.queue.enter(class, self.now, id);
        match entered {
            Entered::Go => {
                self.ends.insert((self.now + takes, id), class);
            }
            Entered::Wait(..) => {
                self.arrived.insert(id, (class, self.now));
            }
            Entered::Full => {}
        }
        entered
    }

    /// The next one ends, and others begin.
    fn step(&mut self, takes: u64) {
        let ((at, _), class) = self.ends.pop_first().unwrap();
        self.now = at;
        self.queue.leave(class);
        while let Some((class, id)) = self.queue.grant(self.now) {
            let (_, since) = self.arrived.remove(&id).unwrap();
            self.waits.entry(class).or_default().push(self.now - since);
            self.ends.insert((self.now + takes, id), class);
        }
        assert!(self.queue.running() <= self.queue.rules.slots);
    }

    fn served(&self, class: Class) -> usize {
        self.waits.get(&class).map_or(0, Vec::len)
    }
}

#[test]
fn while_all_wait_the_weights_are_the_shares() {
    let mut world = World::new(rules(10, [8, 4, 2, 1]));
    for _ in 0..15_000 {
        for class in Class::ALL {
            while world.arrive(class, MS) != Entered::Full {}
        }
        world.step(MS);
    }
    let served = Class::ALL.map(|class| world.served(class));
    for (served, share) in served.iter().zip([8_000, 4_000, 2_000, 1_000_usize]) {
        assert!(served.abs_diff(share) <= 30, "{:?}", Class::ALL.map(|class| world.served(class)));
    }
    // A line of 100 with a fifteenth of ten slots of a millisecond: nobody waits longer than all before it.
    let longest = world.waits[&Class::List].iter().max().unwrap();
    assert!(*longest <= 160 * MS, "{longest}");
}

#[test]
fn a_read_among_waiting_writes_goes_next() {
    let mut world = World::new(rules(1, [8, 1, 1, 1]));
    world.arrive(Class::Write, MS);
    for _ in 0..50 {
        world.arrive(Class::Write, MS);
    }
    for _ in 0..5 {
        world.step(MS);
    }
    let writes = world.served(Class::Write);
    world.arrive(Class::Read, MS);
    world.step(MS);
    assert_eq!((world.served(Class::Read), world.served(Class::Write)), (1, writes));
}

#[test]
fn a_flood_of_reads_starves_nobody() {
    let mut world = World::new(rules(2, [1000, 1, 1, 1]));
    for _ in 0..4000 {
        while world.arrive(Class::Read, MS) != Entered::Full {}
        if world.arrived.values().all(|(class, _)| *class != Class::Delete) {
            world.arrive(Class::Delete, MS);
        }
        world.step(MS);
    }
    assert!((3..=5).contains(&world.served(Class::Delete)), "{}", world.served(Class::Delete));
}

#[test]
fn lines_are_bounded_and_so_is_waiting() {
    let mut queue = Queue::new(Rules { slots: 1, shares: [share(1, 2, 10); 4] });
    assert_eq!(queue.enter(Class::Read, 0, 1), Entered::Go);
    assert_eq!(queue.enter(Class::Read, 0, 2), Entered::Wait(0, 10 * MS));
    assert_eq!(queue.enter(Class::Read, 5 * MS, 3), Entered::Wait(1, 15 * MS));
    assert_eq!(queue.enter(Class::Read, 5 * MS, 4), Entered::Full);
    assert_eq!(queue.enter(Class::Write, 5 * MS, 5), Entered::Wait(2, 15 * MS));
    // The first one's time is over: it makes room, and is given nothing.
    assert_eq!(queue.enter(Class::Read, 10 * MS, 6), Entered::Wait(3, 20 * MS));
    queue.leave(Class::Read);
    assert_eq!(queue.grant(11 * MS), Some((Class::Read, 3)));
    assert_eq!(queue.grant(11 * MS), None);
    queue.leave(Class::Read);
    assert_eq!(queue.grant(16 * MS), Some((Class::Read, 6)));
    assert_eq!((queue.running(), queue.waiting()), (1, 0));
}

#[test]
fn who_goes_away_leaves_no_trace() {
    let mut queue = Queue::new(rules(1, [1; 4]));
    queue.enter(Class::Read, 0, 1);
    let Entered::Wait(number, _) = queue.enter(Class::Write, 0, 2) else { panic!("it went") };
    assert!(queue.cancel(Class::Write, number) && !queue.cancel(Class::Write, number));
    queue.leave(Class::Read);
    assert_eq!((queue.grant(0), queue.running()), (None, 0));
    assert_eq!(queue.enter(Class::List, 0, 3), Entered::Go);
}

#[test]
fn a_class_may_be_kept_from_taking_all_slots() {
    let mut rules = rules(3, [1; 4]);
    rules.shares[1].most = 2;
    let mut queue = Queue::new(rules);
    let entered: Vec<_> = (0..3).map(|n| queue.enter(Class::Write, 0, n)).collect();
    assert_eq!(entered, [Entered::Go, Entered::Go, Entered::Wait(0, 60_000 * MS)]);
    assert_eq!(queue.grant(0), None);
    // The slot that writes may not have is there for a read, past the write that waits.
    assert_eq!(queue.enter(Class::Read, 0, 9), Entered::Go);
    queue.leave(Class::Read);
    assert_eq!(queue.grant(0), None);
    queue.leave(Class::Write);
    assert_eq!(queue.grant(0), Some((Class::Write, 2)));
}

#[test]
fn other_rules_hold_at_once() {
    let mut queue = Queue::new(rules(1, [1; 4]));
    for n in 0..4 {
        queue.enter(Class::Read, 0, n);
    }
    queue.set_rules(rules(3, [1; 4]));
    // Nobody overtakes those who wait for what is free now.
    assert!(matches!(queue.enter(Class::Read, 0, 4), Entered::Wait(..)));
    assert_eq!(
        [queue.grant(0), queue.grant(0), queue.grant(0)].map(|granted| granted.map(|(_, n)| n)),
        [Some(1), Some(2), None]
    );
    queue.set_rules(rules(1, [1; 4]));
    queue.leave(Class::Read);
    queue.leave(Class::Read);
    assert_eq!(queue.grant(0), None);
}

#[test]
fn who_was_not_there_collects_no_claims() {
    let mut world = World::new(rules(1, [1, 1, 1, 1]));
    world.arrive(Class::Read, MS);
    for _ in 0..100 {
        while world.arrive(Class::Read, MS) != Entered::Full {}
        world.step(MS);
    }
    for _ in 0..40 {
        while world.arrive(Class::Read, MS) != Entered::Full {}
        while world.arrive(Class::Write, MS) != Entered::Full {}
        world.step(MS);
    }
    assert!((19..=21).contains(&world.served(Class::Write)), "{}", world.served(Class::Write));
}
