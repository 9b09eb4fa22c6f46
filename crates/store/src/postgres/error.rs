//! PostgreSQL's errors in the store's words.

use crate::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// What failed before anything was committed.
pub(super) fn from_postgres(error: &Error) -> StoreError {
    match error.code() {
        Some(code) if is_damage(code) => StoreError::Corrupt(format!("PostgreSQL says: {}", text(error))),
        _ => StoreError::Unavailable { why: text(error), uncertain: false },
    }
}

/// Whether a connection that failed so may work later: the server is not there yet, or starts, or is full. What it says
/// about user, password, database or certificate stays so.
pub(super) fn may_pass(error: &Error) -> bool {
    let passing = [
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    if let Some(code) = error.code() {
        return passing.contains(code);
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    let wrong = |kind| matches!(kind, std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput);
    error.is_closed() || source.is_some_and(|source| !wrong(source.kind()))
}

/// Whether the session is lost, so that what was asked in it is to be asked in another one.
pub(super) fn is_lost(error: &Error) -> bool {
    let fatal = |severity: &str| severity == "FATAL" || severity == "PANIC";
    let io = || std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>());
    error.is_closed() || error.as_db_error().map_or_else(io, |error| fatal(error.severity()))
}

/// Damaged files, or tables that are not there.
fn is_damage(code: &SqlState) -> bool {
    [
        SqlState::DATA_CORRUPTED,
        SqlState::INDEX_CORRUPTED,
        SqlState::UNDEFINED_TABLE,
        SqlState::UNDEFINED_COLUMN,
        SqlState::INVALID_SCHEMA_NAME,
    ]
    .contains(code)
}

/// Why a database transaction failed, and what may be done about it.
pub(super) struct Failure {
    pub(super) error: StoreError,
    /// The data of one transaction is to blame; the others of its batch may still succeed.
    pub(super) one_to_blame: bool,
    /// The session goes on, so the database transaction is rolled back for sure.
    pub(super) session_lives: bool,
    /// It only says that an earlier statement failed.
    pub(super) is_consequence: bool,
}

impl Failure {
    /// No answer, or no session.
    pub(super) fn lost() -> Self {
        let why = "the session with PostgreSQL is lost".to_owned();
        let error = StoreError::Unavailable { why, uncertain: false };
        Self { error, one_to_blame: false, session_lives: false, is_consequence: false }
    }
}

impl From<StoreError> for Failure {
    /// Something that was read is not usable.
    fn from(error: StoreError) -> Self {
        Self { error, one_to_blame: true, session_lives: true, is_consequence: false }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let about_data = error
            .code()
            .is_some_and(|code| ["22", "23", "54"].iter().any(|class| code.code().starts_with(class)));
        let fatal = |severity: &str| severity == "FATAL" || severity == "PANIC";
        // A server that was demoted has to be left for the one that takes writes.
        let demoted = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
        Self {
            error: if about_data { StoreError::Invalid(text(&error)) } else { from_postgres(&error) },
            one_to_blame: about_data,
            session_lives: !demoted && error.as_db_error().is_some_and(|error| !fatal(error.severity())),
            is_consequence: error.code() == Some(&SqlState::IN_FAILED_SQL_TRANSACTION),
        }
    }
}

fn text(error: &Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("PostgreSQL says: {} ({})", error.message(), error.code().code()),
        None => {
            let source = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            let own = error.to_string();
            if source.is_empty() || own.ends_with(&source) { own } else { format!("{own}: {source}") }
        }
    }
}
