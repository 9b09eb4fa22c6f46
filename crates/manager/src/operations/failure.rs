//! Why an operation failed, as its status tells it.

use crate::error::CommitError;
use towpath_store::StoreError;
use towpath_types::ErrorCode;

/// A failure for the operation's status.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Failure {
    /// Stable code.
    pub(crate) code: ErrorCode,
    /// For people.
    pub(crate) message: String,
    /// The app's last log lines, if it failed to start.
    pub(crate) log: Vec<String>,
}

impl Failure {
    /// With a code and a sentence.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), log: Vec::new() }
    }

    /// A newer change won.
    pub(crate) fn superseded() -> Self {
        Self::new(ErrorCode::Superseded, "a newer change to the same app and lane replaced this one")
    }

    /// Somebody asked for it to be given up.
    pub(crate) fn cancelled(by: &str) -> Self {
        Self::new(ErrorCode::Cancelled, format!("it was cancelled by {by}"))
    }

    /// A stored document that does not fit its type.
    pub(crate) fn unreadable(what: &str) -> Self {
        Self::new(ErrorCode::Internal, format!("the stored {what} is not readable"))
    }

    /// The store failed.
    pub(crate) fn of_store(error: StoreError) -> Self {
        Self::from(CommitError::from(error))
    }
}

impl From<crate::vault::VaultError> for Failure {
    fn from(error: crate::vault::VaultError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<CommitError> for Failure {
    fn from(error: CommitError) -> Self {
        let code = match &error {
            CommitError::Contended => ErrorCode::Conflict,
            error if error.is_transient() => ErrorCode::StoreUnavailable,
            CommitError::Store(StoreError::Conflict { .. }) => ErrorCode::Conflict,
            _ => ErrorCode::Internal,
        };
        let message = match &error {
            CommitError::Store(error) => error.to_string(),
            error => error.to_string(),
        };
        Self::new(code, message)
    }
}
