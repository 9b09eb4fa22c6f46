//! Ports for instances: unique in the cell, free on the machine, not used again at once.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A freed port rests so long: gateways may still have the old endpoint.
const REST: Duration = Duration::from_secs(60);

/// Hands out ports of a range.
#[derive(Debug)]
pub(crate) struct Ports {
    range: RangeInclusive<u16>,
    address: IpAddr,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u16,
    taken: HashSet<u16>,
    resting: HashMap<u16, Instant>,
}

impl Ports {
    /// Ports of the range, from a random one on, so that two cells on one machine seldom try the same.
    pub(crate) fn new(range: RangeInclusive<u16>, address: IpAddr) -> Self {
        let state =
            State { next: fastrand::u16(range.clone()), taken: HashSet::new(), resting: HashMap::new() };
        Self { range, address, state: Mutex::new(state) }
    }

    /// A port on which nobody listens. `None`: every one is in use.
    pub(crate) fn take(&self) -> Option<u16> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let now = Instant::now();
        state.resting.retain(|_, since| now.saturating_duration_since(*since) < REST);
        let is_free = |port: u16| !state.taken.contains(&port) && self.can_be_bound(port);
        let port =
            plan_port(&self.range, state.next, |port| !state.resting.contains_key(&port) && is_free(port))
                .or_else(|| plan_port(&self.range, state.next, is_free))?;
        state.taken.insert(port);
        state.next = if port >= *self.range.end() { *self.range.start() } else { port + 1 };
        Some(port)
    }

    /// Marks a port as taken that an adopted instance has.
    pub(crate) fn keep(&self, port: u16) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.insert(port);
    }

    /// Gives it back.
    pub(crate) fn free(&self, port: u16) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.taken.remove(&port) {
            state.resting.insert(port, Instant::now());
        }
    }

    /// Apps may listen on the cell's address or on all; neither may be in use.
    fn can_be_bound(&self, port: u16) -> bool {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        TcpListener::bind((any, port)).is_ok()
            && (self.address == any || TcpListener::bind((self.address, port)).is_ok())
    }
}

fn plan_port(range: &RangeInclusive<u16>, next: u16, is_free: impl Fn(u16) -> bool) -> Option<u16> {
    let next = next.clamp(*range.start(), *range.end());
    (next..=*range.end()).chain(*range.start()..next).find(|port| is_free(*port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_go_round_skip_used_ones_and_rest() {
        assert_eq!(plan_port(&(10..=12), 12, |port| port != 12), Some(10));
        assert_eq!(plan_port(&(10..=12), 12, |_| false), None);
        let busy = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = busy.local_addr().unwrap().port();
        let ports = Ports::new(port..=port, IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(ports.take(), None);
        drop(busy);
        assert_eq!(ports.take(), Some(port));
        assert_eq!(ports.take(), None);
        ports.free(port);
        // With nothing else left, a resting one is better than none.
        assert_eq!(ports.take(), Some(port));
    }
}
