//! Requests that wait for their answer.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use tokio::sync::oneshot;

/// The waiting requests by the token of their inbox.
pub(crate) struct Waiting<T> {
    requests: Mutex<HashMap<String, oneshot::Sender<T>>>,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { requests: Mutex::default() }
    }
}

/// One waiting request; leaves the table when it ends or is given up.
pub(crate) struct Waiter<'a, T> {
    waiting: &'a Waiting<T>,
    token: String,
    answer: oneshot::Receiver<T>,
}

impl<T> Waiting<T> {
    /// Enters a request.
    pub(crate) fn enter(&self, token: String) -> Waiter<'_, T> {
        let (requester, answer) = oneshot::channel();
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), requester);
        Waiter { waiting: self, token, answer }
    }

    /// Hands over an answer; gives it back if nobody waits for it under this token.
    pub(crate) fn answer(&self, token: &str, answer: T) -> Result<(), T> {
        let requester = self.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(token);
        match requester {
            Some(requester) => requester.send(answer),
            None => Err(answer),
        }
    }
}

impl<T> Waiter<'_, T> {
    /// The answer. Never comes if nobody answers.
    pub(crate) async fn wait(&mut self) -> Option<T> {
        (&mut self.answer).await.ok()
    }
}

impl<T> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        self.waiting.requests.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.token);
    }
}
