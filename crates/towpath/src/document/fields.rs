//! Takes typed fields out of a map and collects all that is wrong: wrong types, values out of range, unknown keys.
//!
//! A value of line 0 came from a flag or a variable, where all is text: numbers and true/false are read from it.
//! Every getter remembers the name that it was asked for, so the set of known keys is what the code reads; call
//! [`Fields::finish`] last to complain about the rest.

use super::problem::{Problem, Problems};
use super::{Entry, Node, Value};
use crate::suggest::did_you_mean;
use std::cell::RefCell;
use std::fmt::Display;
use std::str::FromStr;

/// The fields of one map.
pub(crate) struct Fields<'a> {
    source: &'a str,
    problems: &'a Problems,
    path: String,
    line: usize,
    entries: &'a [Entry],
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The fields of `node`, which should be a map. Anything else is a problem, and gives no fields.
    pub(crate) fn of(source: &'a str, problems: &'a Problems, path: &str, node: &'a Node) -> Self {
        let entries: &[Entry] = match &node.value {
            Value::Map(entries) => entries,
            Value::Null => &[],
            _ => &[],
        };
        let fields = Self {
            source,
            problems,
            path: path.to_owned(),
            line: node.line,
            entries,
            known: RefCell::new(Vec::new()),
        };
        if !matches!(node.value, Value::Map(_) | Value::Null) {
            fields.say(
                node.line,
                path.to_owned(),
                format!("a table is expected, not {}", node.value.kind()),
                "",
            );
        }
        fields
    }

    fn say(&self, line: usize, path: String, message: String, hint: &str) {
        self.problems.add(Problem {
            source: self.source.into(),
            line,
            path,
            message,
            hint: hint.into(),
            place: None,
        });
    }

    /// The file that the fields are from.
    pub(crate) fn source(&self) -> &'a str {
        self.source
    }

    /// Where problems go.
    pub(crate) fn problems(&self) -> &'a Problems {
        self.problems
    }

    /// The path of a field of this map.
    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Says that the field `name` is wrong.
    pub(crate) fn wrong(&self, name: &str, message: impl Into<String>, hint: &str) {
        let line = self.entries.iter().find(|entry| entry.key == name).map_or(self.line, |entry| entry.line);
        self.say(line, self.path_of(name), message.into(), hint);
    }

    /// Says that a field further inside, at the path `inner` from here (`tls[0].listen`), is wrong.
    pub(crate) fn wrong_inside(&self, inner: &str, message: String) {
        let mut line = self.line;
        let mut entries = self.entries;
        for name in inner.split('.').map(|part| part.split('[').next().unwrap_or_default()) {
            let Some(entry) = entries.iter().find(|entry| entry.key == name) else { break };
            line = entry.line;
            match &entry.node.value {
                Value::Map(inside) => entries = inside,
                _ => break,
            }
        }
        self.say(line, self.path_of(inner), message, "");
    }

    /// All entries, known or not.
    pub(crate) fn entries(&self) -> &'a [Entry] {
        self.entries
    }

    /// The field as it stands; `None` if absent.
    pub(crate) fn node(&self, name: &'static str) -> Option<&'a Node> {
        self.known.borrow_mut().push(name);
        self.entries.iter().find(|entry| entry.key == name).map(|entry| &entry.node)
    }

    /// A text.
    pub(crate) fn text(&self, name: &'static str) -> Option<String> {
        let node = self.node(name)?;
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            other => {
                self.wrong(name, format!("text is expected, not {}", other.kind()), "put it in quotes");
                None
            }
        }
    }

    /// True or false.
    pub(crate) fn boolean(&self, name: &'static str) -> Option<bool> {
        let node = self.node(name)?;
        match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(word) if node.line == 0 && matches!(word.as_str(), "true" | "false") => {
                Some(word == "true")
            }
            other => {
                self.wrong(name, format!("true or false is expected, not {}", other.kind()), "");
                None
            }
        }
    }

    /// A whole number from 0.
    pub(crate) fn count(&self, name: &'static str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
        let node = self.node(name)?;
        let value = match &node.value {
            Value::Integer(value) => *value,
            Value::Text(text) if node.line == 0 && text.parse::<i64>().is_ok() => {
                text.parse().unwrap_or_default()
            }
            other => {
                self.wrong(name, format!("a whole number is expected, not {}", describe(other)), "");
                return None;
            }
        };
        match u64::try_from(value) {
            Ok(value) if range.contains(&value) => Some(value),
            _ => {
                let hint = format!("{} to {}", range.start(), range.end());
                self.wrong(name, format!("{value} is out of range"), &hint);
                None
            }
        }
    }

    /// A number in a range.
    pub(crate) fn number(&self, name: &'static str, range: std::ops::RangeInclusive<f32>) -> Option<f32> {
        let node = self.node(name)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "shares and weights"
        )]
        let value = match &node.value {
            Value::Integer(value) => *value as f32,
            Value::Float(value) => *value as f32,
            other => {
                self.wrong(name, format!("a number is expected, not {}", describe(other)), "");
                return None;
            }
        };
        if range.contains(&value) {
            return Some(value);
        }
        self.wrong(
            name,
            format!("{value} is out of range"),
            &format!("{} to {}", range.start(), range.end()),
        );
        None
    }

    /// A scalar with a text form: sizes, durations, names, addresses.
    pub(crate) fn parsed<T>(&self, name: &'static str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        let node = self.node(name)?;
        let Some(text) = node.value.scalar_text().filter(|_| node.value != Value::Null) else {
            self.wrong(name, format!("one value is expected, not {}", node.value.kind()), "");
            return None;
        };
        text.parse().map_err(|error: T::Err| self.wrong(name, error.to_string(), "")).ok()
    }

    /// A name: text, and nothing that merely can be written as text.
    pub(crate) fn named<T>(&self, name: &'static str) -> Option<T>
    where
        T: FromStr,
        T::Err: Display,
    {
        let text = self.text(name)?;
        text.parse().map_err(|error: T::Err| self.wrong(name, error.to_string(), "")).ok()
    }

    /// One of a few words.
    pub(crate) fn choice<T: Copy>(&self, name: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(name)?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let hint = did_you_mean(&text, words.iter().copied())
            .unwrap_or_else(|| format!("one of {}", words.join(", ")));
        self.wrong(name, format!("{text:?} is not one of the choices"), &hint);
        None
    }

    /// A list of texts.
    pub(crate) fn texts(&self, name: &'static str) -> Option<Vec<String>> {
        let items = self.list(name)?;
        let mut texts = Vec::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            match &item.value {
                Value::Text(text) => texts.push(text.clone()),
                other => self.say(
                    item.line,
                    format!("{}[{at}]", self.path_of(name)),
                    format!("text is expected, not {}", other.kind()),
                    "put it in quotes",
                ),
            }
        }
        Some(texts)
    }

    /// A list.
    pub(crate) fn list(&self, name: &'static str) -> Option<&'a [Node]> {
        let node = self.node(name)?;
        match &node.value {
            Value::List(items) => Some(items),
            other => {
                self.wrong(name, format!("a list is expected, not {}", other.kind()), "put it in [ ]");
                None
            }
        }
    }

    /// A map inside of this one.
    pub(crate) fn table(&self, name: &'static str) -> Option<Fields<'a>> {
        let node = self.node(name)?;
        Some(Fields::of(self.source, self.problems, &self.path_of(name), node))
    }

    /// Complains about every key that nobody asked for; nothing more is read.
    pub(crate) fn finish(self) {
        self.refuse_rest();
    }

    /// Complains about every key that nobody asked for so far.
    pub(crate) fn refuse_rest(&self) {
        for entry in self.unknown() {
            let known = self.known.borrow();
            let hint = did_you_mean(&entry.key, known.iter().copied()).unwrap_or_else(|| {
                let mut known: Vec<&str> = known.clone();
                known.sort_unstable();
                known.dedup();
                format!("known are {}", known.join(", "))
            });
            self.say(entry.line, self.path_of(&entry.key), "unknown key".into(), &hint);
        }
    }

    /// The keys that nobody asked for.
    pub(crate) fn unknown(&self) -> Vec<&'a Entry> {
        let known = self.known.borrow();
        self.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())).collect()
    }
}

/// A value for a message: its kind, and what it is when it is short.
fn describe(value: &Value) -> String {
    match value {
        Value::Text(text) if text.len() <= 40 => format!("the text {text:?}"),
        other => other.kind().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_types::{ByteSize, Millis};

    #[test]
    fn all_that_is_wrong_is_collected_with_path_and_line() {
        let text = "memory = \"12X\"\ninstances = -1\nname = 3\nmode = \"fats\"\n[health]\npth = \"/\"\ntimeout = [1]\n";
        let node = crate::document::toml::parse("towpath.toml", text).unwrap();
        let problems = Problems::default();
        let fields = Fields::of("towpath.toml", &problems, "", &node);
        assert_eq!(fields.parsed::<ByteSize>("memory"), None);
        assert_eq!(fields.count("instances", 0..=10), None);
        assert_eq!(fields.text("name"), None);
        assert_eq!(fields.choice("mode", &[("fast", 1), ("slow", 2)]), None);
        let health = fields.table("health").unwrap();
        assert_eq!(health.text("path"), None);
        assert_eq!(health.parsed::<Millis>("timeout"), None);
        health.finish();
        fields.finish();
        let lines: Vec<String> = problems.or(()).unwrap_err().iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "towpath.toml:1: memory: \"12X\" is not a size; write for example 256M, 1.5G or 4096",
                "towpath.toml:2: instances: -1 is out of range; hint: 0 to 10",
                "towpath.toml:3: name: text is expected, not a whole number; hint: put it in quotes",
                "towpath.toml:4: mode: \"fats\" is not one of the choices; hint: did you mean \"fast\"?",
                "towpath.toml:6: health.pth: unknown key; hint: did you mean \"path\"?",
                "towpath.toml:7: health.timeout: one value is expected, not a list",
            ]
        );
    }
}
