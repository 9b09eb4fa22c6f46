//! What is wrong in a file, a flag or a variable: collected, so that people can mend all of it at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// File name, flag or variable.
    pub(crate) source: String,
    /// Line in the file; 0 = unknown.
    pub(crate) line: usize,
    /// Field path, for example `health.path`; may be empty.
    pub(crate) path: String,
    /// What is wrong.
    pub(crate) message: String,
    /// What would be right; may be empty.
    pub(crate) hint: String,
}

impl fmt::Display for Problem {
    /// `towpath.toml:3: health.pth: unknown key; hint: did you mean "path"?`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = if self.line == 0 { String::new() } else { format!(":{}", self.line) };
        let source = if self.source.is_empty() { String::new() } else { format!("{}{line}: ", self.source) };
        let path = if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) };
        write!(f, "{source}{path}{}", self.message)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; hint: {}", self.hint) }
    }
}

/// All problems found so far.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: RefCell<Vec<Problem>>,
    origins: BTreeMap<String, String>,
}

impl Problems {
    /// With the flags and variables that fields came from, by field path: problems of such fields name them instead.
    pub(crate) fn with_origins(origins: BTreeMap<String, String>) -> Self {
        Self { list: RefCell::default(), origins }
    }

    /// Adds one.
    pub(crate) fn add(&self, mut problem: Problem) {
        let field = problem.path.split('[').next().unwrap_or_default();
        if let Some(origin) = self.origins.get(field) {
            (problem.source, problem.line) = (origin.clone(), 0);
            problem.path.clear();
        }
        self.list.borrow_mut().push(problem);
    }

    /// `value` if nothing is wrong, else the problems in the order of the files' lines.
    pub(crate) fn or<T>(self, value: T) -> Result<T, Vec<Problem>> {
        let mut list = self.list.into_inner();
        if list.is_empty() {
            return Ok(value);
        }
        list.sort_by(|a, b| (&a.source, a.line).cmp(&(&b.source, b.line)));
        Err(list)
    }
}
