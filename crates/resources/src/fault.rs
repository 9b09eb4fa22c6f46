//! What is wrong with a document, and where.

use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The field: `plugins.limit-count.count`, `nodes[2].port`. Empty: the document as a whole.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl Fault {
    /// A fault at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// The same fault, seen from the document that holds this one at `path`.
    #[must_use]
    pub fn below(self, path: &str) -> Self {
        Self { path: join(path, &self.path), message: self.message }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{}: {}", self.path, self.message)
        }
    }
}

/// The path of `field` inside `path`; either may be empty.
pub(crate) fn join(path: &str, field: &str) -> String {
    match (path.is_empty(), field.is_empty()) {
        (true, _) => field.to_owned(),
        (_, true) => path.to_owned(),
        _ if field.starts_with('[') => format!("{path}{field}"),
        _ => format!("{path}.{field}"),
    }
}

/// The one of `known` that was probably meant by `text`.
pub(crate) fn nearest<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|name| (strsim::damerau_levenshtein(text, name), name))
        .filter(|(distance, name)| *distance <= (name.len().min(text.len()) / 3).clamp(1, 3))
        .min()
        .map(|(_, name)| name)
}
