//! How the program ends: what is said on stderr, and the exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | done |
//! | 1 | the operation failed (a build, a start, a role that could not run) |
//! | 2 | usage, configuration or manifest is wrong, or the platform refused the input |
//! | 3 | the API cannot be reached |
//! | 4 | there is no such app, lane, route, … |
//! | 5 | no token, a wrong one, or one that may not do this |
//! | 6 | it collides with what is there |
//! | 7 | the platform cannot do it now (store gone, no room, too busy): try again |
//! | 130 | ended or detached by Ctrl-C |

use crate::document::problem::Problem;
use serde_json::json;
use std::fmt;

/// Between an error and what would be right.
pub(crate) const HINT: &str = "; hint: ";

/// An exit code with a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// The operation failed.
    Failed = 1,
    /// Wrong input.
    Usage = 2,
    /// No connection to the API.
    Unreachable = 3,
    /// No such thing.
    NotFound = 4,
    /// Token missing or not sufficient.
    Unauthorized = 5,
    /// Collision.
    Conflict = 6,
    /// Not now.
    Unavailable = 7,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Exit {
    /// The exit code that goes with an HTTP status.
    pub(crate) fn of_status(status: u16) -> Self {
        match status {
            401 | 403 => Exit::Unauthorized,
            404 => Exit::NotFound,
            400 | 405 | 413 | 415 | 422 => Exit::Usage,
            409 | 412 => Exit::Conflict,
            429 | 503 | 507 => Exit::Unavailable,
            _ => Exit::Failed,
        }
    }
}

/// An end with an error. Each line says what is wrong, where, and what would be right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) exit: Exit,
    /// What is said, one entry a line. Empty: all was said before.
    pub(crate) lines: Vec<String>,
    /// The platform's error code, when it has said one; people read it in the line, too.
    pub(crate) code: Option<String>,
}

impl Failure {
    /// One line.
    pub(crate) fn new(exit: Exit, what: impl fmt::Display) -> Self {
        Self { exit, lines: vec![what.to_string()], code: None }
    }

    /// One line with what would be right.
    pub(crate) fn hinted(exit: Exit, what: impl fmt::Display, hint: impl fmt::Display) -> Self {
        Self::new(exit, format!("{what}{HINT}{hint}"))
    }

    /// Nothing more to say.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, lines: Vec::new(), code: None }
    }

    /// With the platform's error code.
    pub(crate) fn coded(self, code: &str) -> Self {
        Self { code: (!code.is_empty()).then(|| code.to_owned()), ..self }
    }

    /// For programs: the exit code, the platform's code if there is one, and each error with its hint.
    pub(crate) fn document(&self) -> serde_json::Value {
        let suffix = self.code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default();
        let error = |line: &String| {
            let (what, hint) = line.rsplit_once(HINT).unwrap_or((line, ""));
            let what = if suffix.is_empty() { what.to_owned() } else { what.replacen(&suffix, "", 1) };
            match hint {
                "" => json!({"message": what}),
                hint => json!({"message": what, "hint": hint}),
            }
        };
        let errors: Vec<_> = self.lines.iter().map(error).collect();
        json!({"exit": self.exit as u8, "code": self.code, "errors": errors})
    }

    /// An error of the operating system, without its number.
    pub(crate) fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(Exit::Failed, format!("{what}: {}", reason(error)))
    }
}

/// The operating system's reason without its number: `Permission denied`.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        let lines = problems.iter().map(ToString::to_string).collect();
        Self { exit: Exit::Usage, lines, code: None }
    }
}

/// The result of a verb or a role.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;
