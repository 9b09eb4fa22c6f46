//! YAML to [`Node`]s: one document, anchors, aliases and merge keys (`<<`), values of YAML 1.2's core schema.
//!
//! An alias is copied where it stands, so the whole tree is limited in size: nested aliases cannot fill the memory.

use super::problem::Problem;
use super::{Entry, Node, Value};
use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use std::collections::HashMap;

/// Most nodes of a document, aliases counted as often as they stand in it.
const MAX_NODES: usize = 50_000;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;

/// Parses a YAML document; an empty one is [`Value::Null`].
pub(crate) fn parse(source: &str, text: &str) -> Result<Node, Vec<Problem>> {
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    reader.document().map_err(|(line, message)| {
        vec![Problem { source: source.into(), line, message, ..Problem::default() }]
    })
}

type Failed = (usize, String);

struct Reader<'a> {
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Failed> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err((error.marker().line(), error.info().to_owned())),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Node, Failed> {
        let mut found = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => break,
                (Event::DocumentStart(_), at) if found.is_some() => {
                    return Err((at.start.line(), "a second document begins; only one is read".into()));
                }
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
                (event, at) => found = Some(self.node(event, at, 0)?),
            }
        }
        Ok(found.unwrap_or(Node { value: Value::Null, line: 1 }))
    }

    fn count(&mut self, nodes: usize, line: usize) -> Result<(), Failed> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err((line, format!("the document has more than {MAX_NODES} values, aliases included")));
        }
        Ok(())
    }

    fn node(&mut self, event: Event<'a>, at: Span, depth: usize) -> Result<Node, Failed> {
        let line = at.start.line();
        if depth > MAX_DEPTH {
            return Err((line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        self.count(1, line)?;
        let before = self.nodes;
        let (node, anchor) = match event {
            Event::Alias(id) => {
                let (node, size) = self
                    .anchors
                    .get(&id)
                    .cloned()
                    .ok_or_else(|| (line, "an alias inside of what it names".to_owned()))?;
                self.count(size, line)?;
                (node, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let value = if plain { core_schema(&text) } else { Value::Text(text.into_owned()) };
                (Node { value, line }, anchor)
            }
            Event::SequenceStart(anchor, _) => (self.sequence(line, depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.mapping(line, depth)?, anchor),
            _ => (Node { value: Value::Null, line }, 0),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before + 1));
        }
        Ok(node)
    }

    fn sequence(&mut self, line: usize, depth: usize) -> Result<Node, Failed> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => break,
                (event, at) => items.push(self.node(event, at, depth + 1)?),
            }
        }
        Ok(Node { value: Value::List(items), line })
    }

    fn mapping(&mut self, line: usize, depth: usize) -> Result<Node, Failed> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged: Vec<Entry> = Vec::new();
        loop {
            let (event, at) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                break;
            }
            let key_line = at.start.line();
            let key = self.node(event, at, depth + 1)?;
            let Some(key) = key.value.scalar_text() else {
                return Err((key_line, "a key has to be a plain value".into()));
            };
            let (event, at) = self.next()?;
            let node = self.node(event, at, depth + 1)?;
            if key == "<<" {
                merge_into(&mut merged, node, key_line)?;
            } else if entries.iter().any(|entry| entry.key == key) {
                return Err((key_line, format!("the key {key:?} stands twice")));
            } else {
                entries.push(Entry { key, line: key_line, node });
            }
        }
        for entry in merged {
            if !entries.iter().any(|own| own.key == entry.key) {
                entries.push(entry);
            }
        }
        Ok(Node { value: Value::Map(entries), line })
    }
}

/// What `<<` brings: a mapping, or a list of them of which earlier ones win.
fn merge_into(merged: &mut Vec<Entry>, node: Node, line: usize) -> Result<(), Failed> {
    match node.value {
        Value::Map(entries) => {
            for entry in entries {
                if !merged.iter().any(|known| known.key == entry.key) {
                    merged.push(entry);
                }
            }
            Ok(())
        }
        Value::List(items) => items.into_iter().try_for_each(|item| merge_into(merged, item, line)),
        other => Err((line, format!("<< takes a mapping, not {}", other.kind()))),
    }
}

/// A plain scalar's value.
fn core_schema(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return Value::Integer(number);
    }
    if let Some(number) = text.strip_prefix("0x").and_then(|hex| i64::from_str_radix(hex, 16).ok()) {
        return Value::Integer(number);
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text.contains(|c: char| c.is_ascii_digit());
    match text.parse::<f64>() {
        Ok(number) if numeric => Value::Float(number),
        _ => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(node: &Node) -> &[Entry] {
        let Value::Map(entries) = &node.value else { panic!("{node:?}") };
        entries
    }

    #[test]
    fn lines_aliases_and_merge_keys() {
        let text = "x: &base\n  memory: 64M\n  instances: 2\napp:\n  <<: *base\n  memory: 1G\n  v: ['yes', yes, 010, 1.5, ~]\n";
        let node = parse("m", text).unwrap();
        let app = entries(&entries(&node)[1].node);
        assert_eq!(app[0].key, "memory");
        assert_eq!(app[0].line, 6);
        assert_eq!(app[0].node.value, Value::Text("1G".into()));
        assert_eq!(app[2].key, "instances");
        assert_eq!(app[2].line, 3);
        let Value::List(items) = &app[1].node.value else { panic!() };
        assert_eq!(items[1].value, Value::Text("yes".into()));
        assert_eq!(items[3].value, Value::Float(1.5));
        assert_eq!(items[4].value, Value::Null);
    }

    #[test]
    fn what_cannot_be_read_is_said_with_its_line() {
        for (text, line) in [
            ("a: 1\nb: [1\n", 3),
            ("a: 1\na: 2\n", 2),
            ("a: 1\n---\nb: 2\n", 2),
            ("a: 1\n<<: 3\n", 2),
            ("a: &x [*x]\n", 1),
        ] {
            let problems = parse("manifest.yml", text).unwrap_err();
            assert!(problems[0].line.abs_diff(line) <= 1, "{text:?}: {problems:?}");
        }
    }

    #[test]
    fn nested_aliases_cannot_fill_the_memory() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for n in 1..12 {
            let p = n - 1;
            text += &format!("a{n}: &a{n} [*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p},*a{p}]\n");
        }
        let problems = parse("m", &text).unwrap_err();
        assert!(problems[0].message.contains("aliases"), "{problems:?}");
        let deep = "[".repeat(2000);
        assert!(parse("m", &deep).is_err());
    }
}
