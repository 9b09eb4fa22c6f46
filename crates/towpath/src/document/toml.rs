//! TOML to [`Node`]s.

use super::problem::{Place, Problem};
use super::{Entry, Node, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Parses a TOML document. All syntax errors are reported.
pub(crate) fn parse(source: &str, text: &str) -> Result<Node, Vec<Problem>> {
    let lines = Lines::new(text);
    let (table, errors) = DeTable::parse_recoverable(text);
    let problem = |line, message: String| Problem {
        source: source.into(),
        line,
        path: String::new(),
        message,
        ..Problem::default()
    };
    let mut problems: Vec<Problem> = errors
        .iter()
        .map(|error| match error.span() {
            Some(span) => {
                let line = lines.at(span.start);
                Problem { place: Place::of(text, span.start), ..problem(line, flatten(error.message())) }
            }
            None => problem(0, flatten(error.message())),
        })
        .collect();
    problems.sort_by_key(|problem| problem.line);
    problems.dedup_by_key(|problem| problem.line);
    if !problems.is_empty() {
        return Err(problems);
    }
    node_of_table(table.get_ref(), 1, &lines).map_err(|(line, message)| vec![problem(line, message)])
}

/// The parser's messages may have several lines.
fn flatten(message: &str) -> String {
    message.lines().map(str::trim).collect::<Vec<_>>().join(", ")
}

fn node_of_table(table: &DeTable<'_>, line: usize, lines: &Lines) -> Result<Node, (usize, String)> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        let at = lines.at(key.span().start);
        entries.push(Entry { key: key.get_ref().to_string(), line: at, node: node_of(value, lines)? });
    }
    entries.sort_by_key(|entry| entry.line);
    Ok(Node { value: Value::Map(entries), line })
}

fn node_of(value: &Spanned<DeValue<'_>>, lines: &Lines) -> Result<Node, (usize, String)> {
    let line = lines.at(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| (line, format!("the number {} is too large", number.as_str())))?,
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map(Value::Float)
            .map_err(|_| (line, format!("{} is not a number", number.as_str())))?,
        DeValue::Datetime(date) => Value::Text(date.to_string()),
        DeValue::Array(items) => {
            Value::List(items.iter().map(|item| node_of(item, lines)).collect::<Result<_, _>>()?)
        }
        DeValue::Table(table) => return node_of_table(table, line, lines),
    };
    Ok(Node { value, line })
}

/// Byte offsets to line numbers.
struct Lines(Vec<usize>);

impl Lines {
    fn new(text: &str) -> Self {
        Self(text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect())
    }

    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|newline| *newline < offset) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_knows_its_line() {
        let node = parse("t", "a = 1\n\n[b]\nc = [1,\n \"x\"]\nd = 0x1F\n").unwrap();
        let Value::Map(top) = &node.value else { panic!("{node:?}") };
        assert_eq!((top[0].key.as_str(), top[0].line), ("a", 1));
        let Value::Map(b) = &top[1].node.value else { panic!("{node:?}") };
        assert_eq!((b[0].key.as_str(), b[0].line), ("c", 4));
        let Value::List(items) = &b[0].node.value else { panic!("{node:?}") };
        assert_eq!(items[1], Node { value: Value::Text("x".into()), line: 5 });
        assert_eq!(b[1].node.value, Value::Integer(31));
    }

    #[test]
    fn all_syntax_errors_are_said_with_their_lines() {
        let problems = parse("towpath.toml", "a = \nb = 1\nc = [1\n").unwrap_err();
        assert_eq!(problems[0].line, 1, "{problems:?}");
        assert!(problems.len() >= 2, "{problems:?}");
        let shown = problems[0].to_string();
        assert!(shown.starts_with("towpath.toml:1:5: "), "{shown}");
        assert!(shown.ends_with("\na = \n    ^"), "{shown}");
    }

    #[test]
    fn a_number_that_does_not_fit_is_said() {
        let problems = parse("t", "a = 1\nb = 99999999999999999999\n").unwrap_err();
        assert_eq!(problems[0].line, 2);
    }
}
