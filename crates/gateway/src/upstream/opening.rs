//! HTTP/2 connections that are being made: of many requests that find none, one makes it and the others wait for it.

use super::AttemptFault;
use super::awaited::Awaited;
use super::h2::H2Conn;
use super::pool::PoolKey;
use crate::deadline::Deadline;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// All of a worker's.
#[derive(Default)]
pub(crate) struct Openings(RefCell<HashMap<PoolKey, Rc<Opening>>>);

/// One that is being made, by the holder of its [`Turn`].
#[derive(Default)]
struct Opening {
    waiting: Cell<usize>,
    result: RefCell<Option<Result<H2Conn, AttemptFault>>>,
    awaited: Awaited,
}

/// What a request that needs a connection does.
pub(crate) enum Step<'a> {
    /// It makes one.
    Open(Turn<'a>),
    /// It has waited for another's.
    Shared(H2Conn),
}

/// The right, and the duty, to make a connection. Ended without a word about the connection (its client went away, its
/// own time was over) one of those that wait takes over.
pub(crate) struct Turn<'a> {
    openings: &'a Openings,
    key: PoolKey,
    opening: Rc<Opening>,
}

impl Openings {
    /// A turn, or the connection of another's: at most `streams` requests wait for one connection, until their deadlines.
    pub(crate) async fn next<'a>(
        &'a self,
        key: PoolKey,
        streams: usize,
        deadline: &Deadline,
    ) -> Result<Step<'a>, AttemptFault> {
        loop {
            let known = self.0.borrow().get(&key).filter(|known| known.waiting.get() + 1 < streams).cloned();
            let Some(opening) = known else { return Ok(Step::Open(self.turn(key))) };
            opening.waiting.set(opening.waiting.get() + 1);
            opening.awaited.end(deadline).await?;
            match &*opening.result.borrow() {
                Some(Ok(conn)) if conn.is_open() && conn.streams() < streams => {
                    return Ok(Step::Shared(conn.clone()));
                }
                Some(Err(fault)) => {
                    if let Some(fault) = fault.of_shared_connect() {
                        return Err(fault);
                    }
                }
                Some(Ok(_)) | None => {}
            }
        }
    }

    fn turn(&self, key: PoolKey) -> Turn<'_> {
        let opening = Rc::<Opening>::default();
        self.0.borrow_mut().insert(key, opening.clone());
        Turn { openings: self, key, opening }
    }
}

impl Turn<'_> {
    /// Tells those that wait.
    pub(crate) fn ends(self, result: &Result<H2Conn, AttemptFault>) {
        let told = match result {
            Ok(conn) => Some(Ok(conn.clone())),
            Err(fault) => fault.of_shared_connect().map(Err),
        };
        self.opening.result.replace(told);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut all = self.openings.0.borrow_mut();
        if all.get(&self.key).is_some_and(|known| Rc::ptr_eq(known, &self.opening)) {
            all.remove(&self.key);
        }
        self.opening.awaited.ends();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deadline::Deadlines;
    use std::task::{Context, Poll, Waker};
    use towpath_types::InstanceId;

    fn step<'a>(
        future: std::pin::Pin<&mut (impl Future<Output = Result<Step<'a>, AttemptFault>> + ?Sized)>,
    ) -> Option<Result<Step<'a>, AttemptFault>> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(step) => Some(step),
            Poll::Pending => None,
        }
    }

    #[test]
    fn one_makes_it_the_others_share_its_fault_or_take_over_when_it_is_gone() {
        let (openings, deadline) = (Openings::default(), Rc::new(Deadlines::default()).add());
        let key = PoolKey::new(InstanceId::mint(1, [0; 10]), 1);
        let (mut first, mut second, mut third) = (
            Box::pin(openings.next(key, 3, &deadline)),
            Box::pin(openings.next(key, 3, &deadline)),
            Box::pin(openings.next(key, 3, &deadline)),
        );
        let Some(Ok(Step::Open(turn))) = step(first.as_mut()) else { panic!("nobody else makes it") };
        assert!(step(second.as_mut()).is_none() && step(third.as_mut()).is_none());
        let mut fourth = Box::pin(openings.next(key, 3, &deadline));
        assert!(
            matches!(step(fourth.as_mut()), Some(Ok(Step::Open(_)))),
            "three streams are promised already"
        );
        drop(turn);
        let Some(Ok(Step::Open(turn))) = step(second.as_mut()) else { panic!("it takes over") };
        assert!(step(third.as_mut()).is_none(), "and the third waits for it");
        turn.ends(&Err(AttemptFault::ConnectTimeout));
        assert!(matches!(step(third.as_mut()), Some(Err(AttemptFault::ConnectTimeout))));
        assert!(openings.0.borrow().is_empty());
    }
}
