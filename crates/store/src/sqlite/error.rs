//! SQLite's errors in the store's words.

use crate::StoreError;
use rusqlite::{Error, ErrorCode};

/// How a failure begins that is due to another process.
const LOCKED: &str = "another process holds a lock on the database file";

/// Whether another process is in the way, which may go away.
pub(super) fn is_locked(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable { why, .. } if why.starts_with(LOCKED))
}

/// What failed before anything was committed.
pub(super) fn from_sqlite(error: Error) -> StoreError {
    classify(&error, false)
}

/// What failed in COMMIT. After an I/O error the pages may have reached the disk all the same, and be found there by
/// the recovery at the next start; a full disk or a lock leaves no commit record.
pub(super) fn from_commit(error: Error) -> StoreError {
    let uncertain = matches!(error.sqlite_error_code(), Some(ErrorCode::SystemIoFailure));
    classify(&error, uncertain)
}

fn classify(error: &Error, uncertain: bool) -> StoreError {
    let why = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            return StoreError::Corrupt(format!("SQLite says: {error}"));
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => LOCKED,
        Some(ErrorCode::DiskFull) => "there is no room for the database file",
        Some(ErrorCode::ReadOnly) => "the database file is read-only",
        Some(ErrorCode::CannotOpen) => "the database file cannot be opened",
        Some(ErrorCode::SystemIoFailure) => "reading or writing the database file failed",
        _ => "SQLite refused",
    };
    StoreError::Unavailable { why: format!("{why} ({error})"), uncertain }
}
