//! The JSON Schema of a type: what is published, and what a document is checked against.

mod check;
mod format;
mod publish;

pub use check::Checker;
pub use publish::of;

use crate::fault::nearest;

/// What to say of a name that is none of `known`.
pub(crate) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    match nearest(name, known) {
        Some(meant) => format!("there is no {what} {name:?}: did you mean {meant:?}?"),
        None => format!("there is no {what} {name:?}"),
    }
}
