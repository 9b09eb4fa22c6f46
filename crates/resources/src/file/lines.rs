//! What a file says, each value with its line.

use serde_json::{Map, Value};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    line: usize,
    node: Node,
}

#[derive(Debug, Clone)]
enum Node {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<Entry>),
}

/// A key, its line, its value.
pub(super) type Entry = (String, usize, Tree);

impl Tree {
    pub(super) fn scalar(line: usize, value: Value) -> Self {
        Self { line, node: Node::Scalar(value) }
    }

    pub(super) fn list(line: usize, items: Vec<Tree>) -> Self {
        Self { line, node: Node::List(items) }
    }

    pub(super) fn map(line: usize, entries: Vec<Entry>) -> Self {
        Self { line, node: Node::Map(entries) }
    }

    /// The value of a key that stands in `line`: what is missing in it is missing there.
    pub(super) fn of_key(self, line: usize) -> Self {
        match self.node {
            Node::Scalar(_) => self,
            _ => Self { line, ..self },
        }
    }

    pub(super) fn line(&self) -> usize {
        self.line
    }

    pub(super) fn is_nothing(&self) -> bool {
        matches!(self.node, Node::Scalar(Value::Null))
    }

    pub(super) fn items(&self) -> Option<&[Tree]> {
        match &self.node {
            Node::List(items) => Some(items),
            _ => None,
        }
    }

    pub(super) fn entries(&self) -> Option<&[Entry]> {
        match &self.node {
            Node::Map(entries) => Some(entries),
            _ => None,
        }
    }

    /// A scalar as the text of a key.
    pub(super) fn key(&self) -> Option<String> {
        match &self.node {
            Node::Scalar(Value::String(text)) => Some(text.clone()),
            Node::Scalar(value) => Some(value.to_string()),
            _ => None,
        }
    }

    /// How many values it has in it.
    pub(super) fn size(&self) -> usize {
        1 + match &self.node {
            Node::Scalar(_) => 0,
            Node::List(items) => items.iter().map(Tree::size).sum(),
            Node::Map(entries) => entries.iter().map(|(_, _, value)| value.size()).sum(),
        }
    }

    /// Without lines.
    pub(super) fn value(&self) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => Value::Array(items.iter().map(Tree::value).collect()),
            Node::Map(entries) => Value::Object(
                entries.iter().map(|(key, _, value)| (key.clone(), value.value())).collect::<Map<_, _>>(),
            ),
        }
    }

    /// The line of the field at `path` (`plugins.limit-count.count`, `nodes[2].port`), or of as much of the path as is there.
    pub(super) fn line_of(&self, path: &str) -> usize {
        match &self.node {
            Node::List(items) => {
                let inside = path.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let item =
                    inside.and_then(|(index, rest)| Some((items.get(index.parse::<usize>().ok()?)?, rest)));
                item.map_or(self.line, |(item, rest)| item.line_of(rest))
            }
            Node::Map(entries) => {
                let path = path.strip_prefix('.').unwrap_or(path);
                // Keys can have dots in them: the longest that fits is meant.
                let fits = |key: &str| {
                    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
                };
                let entry =
                    entries.iter().filter(|(key, _, _)| fits(key)).max_by_key(|(key, _, _)| key.len());
                entry.map_or(self.line, |(key, line, value)| match path.get(key.len()..) {
                    Some(rest) if !rest.is_empty() => value.line_of(rest).max(*line),
                    _ => *line,
                })
            }
            Node::Scalar(_) => self.line,
        }
    }
}
