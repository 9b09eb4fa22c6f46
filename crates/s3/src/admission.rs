//! In which order requests get one of a limited number of slots: GET first, but nobody waits forever.
//!
//! Each class of requests (reads, writes, deletes, lists) waits in a line of its own, of bounded length and for a bounded time. A
//! slot that becomes free goes to the line whose turn it is by *weight*: while all lines have somebody waiting, of every
//! sum-of-weights slots each line gets its weight's share, so the longest wait of a line's first is bounded whatever the others
//! do. Who was not there collects no claims. A class may be kept from taking all slots (`most`), so that long uploads leave some
//! to reads at any time.

use std::collections::VecDeque;

/// A class of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(usize)]
pub enum Class {
    /// GET and HEAD of objects and settings.
    Read,
    /// PUT and POST.
    Write,
    /// DELETE, and POST of lists of what is to be deleted.
    Delete,
    /// Lists of buckets, keys, versions, uploads.
    List,
}

impl Class {
    /// All of them; of those whose turn it is the first goes first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Delete, Self::List];
}

/// How a class is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Its share of slots while others wait too; at least 1.
    pub weight: u32,
    /// Most that wait.
    pub queue: u32,
    /// Longest wait.
    pub wait_ns: u64,
    /// Most slots that it has at a time.
    pub most: u32,
}

/// How all are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Slots.
    pub slots: u32,
    /// By class.
    pub shares: [Share; 4],
}

impl Rules {
    fn share(&self, class: Class) -> Share {
        let [read, write, delete, list] = self.shares;
        match class {
            Class::Read => read,
            Class::Write => write,
            Class::Delete => delete,
            Class::List => list,
        }
    }
}

/// What an arrival comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entered {
    /// It has a slot.
    Go,
    /// It waits under this number, until this moment at most.
    Wait(u64, u64),
    /// There is no room to wait.
    Full,
}

/// One step of a line with the weight 1.
const STEP: u64 = 1 << 32;

struct Waiting<T> {
    number: u64,
    until_ns: u64,
    token: T,
}

struct Line<T> {
    waiting: VecDeque<Waiting<T>>,
    running: u32,
    /// Its place in the order of turns: the smallest is next.
    pass: u64,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), running: 0, pass: 0 }
    }
}

/// The slots, and who waits for them. `T` is that by which one who waits is told.
pub struct Queue<T> {
    rules: Rules,
    lines: [Line<T>; 4],
    running: u32,
    /// The pass of the last turn.
    turn: u64,
    next: u64,
}

impl<T> Queue<T> {
    /// All slots are free.
    pub fn new(rules: Rules) -> Self {
        Self { rules, lines: Default::default(), running: 0, turn: 0, next: 0 }
    }

    /// Other rules from now on. More slots are given out by the next [`Queue::grant`].
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    fn line(&mut self, class: Class) -> &mut Line<T> {
        let [read, write, delete, list] = &mut self.lines;
        match class {
            Class::Read => read,
            Class::Write => write,
            Class::Delete => delete,
            Class::List => list,
        }
    }

    fn has_room(&mut self, class: Class) -> bool {
        let most = self.rules.share(class).most;
        self.running < self.rules.slots && self.line(class).running < most
    }

    fn takes(&mut self, class: Class) {
        self.running += 1;
        self.line(class).running += 1;
    }

    /// A request arrives.
    pub fn enter(&mut self, class: Class, now_ns: u64, token: T) -> Entered {
        let somebody_could_go =
            Class::ALL.iter().any(|&class| !self.line(class).waiting.is_empty() && self.has_room(class));
        if !somebody_could_go && self.has_room(class) {
            self.takes(class);
            return Entered::Go;
        }
        let share = self.rules.share(class);
        let (number, turn, until_ns) = (self.next, self.turn, now_ns.saturating_add(share.wait_ns));
        let line = self.line(class);
        line.waiting.retain(|waiting| waiting.until_ns > now_ns);
        if line.waiting.len() >= share.queue as usize {
            return Entered::Full;
        }
        if line.waiting.is_empty() {
            line.pass = line.pass.max(turn);
        }
        line.waiting.push_back(Waiting { number, until_ns, token });
        self.next += 1;
        Entered::Wait(number, until_ns)
    }

    /// One who waits goes away; `false` = it was not waiting any more.
    pub fn cancel(&mut self, class: Class, number: u64) -> bool {
        let waiting = &mut self.line(class).waiting;
        let before = waiting.len();
        waiting.retain(|waiting| waiting.number != number);
        waiting.len() < before
    }

    /// A request gives its slot back.
    pub fn leave(&mut self, class: Class) {
        self.running = self.running.saturating_sub(1);
        let line = self.line(class);
        line.running = line.running.saturating_sub(1);
    }

    /// Who gets a slot that is free: whose turn it is. Those whose time is over are dropped. To be asked until it says `None`.
    pub fn grant(&mut self, now_ns: u64) -> Option<(Class, T)> {
        for class in Class::ALL {
            self.line(class).waiting.retain(|waiting| waiting.until_ns > now_ns);
        }
        let ready: Vec<Class> = Class::ALL
            .into_iter()
            .filter(|&class| !self.line(class).waiting.is_empty() && self.has_room(class))
            .collect();
        let class = ready.into_iter().min_by_key(|&class| self.line(class).pass)?;
        let step = STEP / u64::from(self.rules.share(class).weight.max(1));
        let line = self.line(class);
        let waiting = line.waiting.pop_front()?;
        let pass = line.pass;
        line.pass = pass.saturating_add(step);
        self.turn = self.turn.max(pass);
        self.takes(class);
        Some((class, waiting.token))
    }

    /// Slots in use.
    pub fn running(&self) -> u32 {
        self.running
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.lines.iter().map(|line| line.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests;
