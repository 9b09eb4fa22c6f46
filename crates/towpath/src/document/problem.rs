//! What is wrong in a file, a flag or a variable: collected, so that people can mend all of it at once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// Where in the line, when it is not about a whole field.
    pub(crate) place: Option<Place>,
}

/// A place inside a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// Column, from 1.
    pub(crate) column: usize,
    /// The line, as far as it is shown.
    pub(crate) text: String,
    /// Columns before the place in `text`.
    pub(crate) before: usize,
}

impl Place {
    /// Most characters of a line that are shown, before and behind the place.
    const AROUND: usize = 60;

    /// The place at a byte offset.
    pub(crate) fn of(text: &str, offset: usize) -> Option<Self> {
        let (before, after) = text.split_at_checked(offset)?;
        let before = before.rsplit('\n').next().unwrap_or_default();
        let after = after.lines().next().unwrap_or_default();
        let column = before.chars().count() + 1;
        let skipped = (column - 1).saturating_sub(Self::AROUND);
        let before: String = before.chars().skip(skipped).collect();
        let line: String = before.chars().chain(after.chars().take(Self::AROUND)).collect();
        // A tab is one column here, so that the mark stands where it should.
        let text: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let before: String = before.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        Some(Self { column, text, before: unicode_width::UnicodeWidthStr::width(before.as_str()) })
    }
}

impl fmt::Display for Problem {
    /// `towpath.toml:3: health.pth: unknown key; hint: did you mean "path"?`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = match (self.line, &self.place) {
            (0, _) => String::new(),
            (line, None) => format!(":{line}"),
            (line, Some(place)) => format!(":{line}:{}", place.column),
        };
        let source = if self.source.is_empty() { String::new() } else { format!("{}{line}: ", self.source) };
        let path = if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) };
        write!(f, "{source}{path}{}", self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n{}\n{:width$}^", place.text, "", width = place.before)?;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_shows_its_line_however_long_it_is() {
        let text = format!("a = 1\nb = {}!{}\nc", "x".repeat(200), "y".repeat(200));
        let place = Place::of(&text, 6 + 4 + 200).unwrap();
        assert_eq!((place.column, place.before), (205, 60));
        assert_eq!(place.text, format!("{}!{}", "x".repeat(60), "y".repeat(59)));
        let place = Place::of("é\t= [", 5).unwrap();
        assert_eq!((place.column, place.before, place.text.as_str()), (5, 4, "é = ["));
        assert_eq!(Place::of("é", 1), None);
    }
}
