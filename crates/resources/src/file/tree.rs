//! YAML, JSON and TOML as trees with lines.

use super::lines::{Entry, Tree};
use super::{FileFault, Format, at};
use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};
use serde_json::{Number, Value};
use std::collections::HashMap;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Deepest nesting.
const MAX_DEPTH: usize = 64;
/// Most values that aliases may bring: nested ones cannot fill the memory.
const MAX_COPIED: usize = 1_000_000;

pub(super) fn parse(text: &str, format: Format) -> Result<Tree, Vec<FileFault>> {
    match format {
        Format::Yaml => yaml(text).map_err(|fault| vec![fault]),
        Format::Json => json(text).map_err(|fault| vec![fault]),
        Format::Toml => toml(text),
    }
}

fn yaml(text: &str) -> Result<Tree, FileFault> {
    Yaml { parser: Parser::new_from_str(text), anchors: HashMap::new(), copied: 0 }.document()
}

/// JSON is YAML with other mistakes: the JSON parser says whether it is right, the YAML parser where things are.
fn json(text: &str) -> Result<Tree, FileFault> {
    let value: Value = serde_json::from_str(text)
        .map_err(|error| at(error.line(), format!("this is no JSON: {}", without_place(&error))))?;
    match yaml(text) {
        Ok(tree) if tree.value() == value => Ok(tree),
        _ => Ok(without_lines(&value)),
    }
}

fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn without_lines(value: &Value) -> Tree {
    match value {
        Value::Array(items) => Tree::list(0, items.iter().map(without_lines).collect()),
        Value::Object(fields) => {
            Tree::map(0, fields.iter().map(|(key, value)| (key.clone(), 0, without_lines(value))).collect())
        }
        scalar => Tree::scalar(0, scalar.clone()),
    }
}

struct Yaml<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Tree>,
    copied: usize,
}

impl<'a> Yaml<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), FileFault> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(at(error.marker().line(), format!("this is no YAML: {}", error.info()))),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn document(&mut self) -> Result<Tree, FileFault> {
        let mut found = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => break,
                (Event::DocumentStart(_), span) if found.is_some() => {
                    return Err(at(span.start.line(), "a second document begins; only one is read"));
                }
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing, _) => {}
                (event, span) => found = Some(self.node(event, span, 0)?),
            }
        }
        Ok(found.unwrap_or_else(|| Tree::scalar(1, Value::Null)))
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Tree, FileFault> {
        let line = span.start.line();
        if depth > MAX_DEPTH {
            return Err(at(line, format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let (tree, anchor) = match event {
            Event::Alias(id) => {
                let tree = self
                    .anchors
                    .get(&id)
                    .cloned()
                    .ok_or_else(|| at(line, "an alias inside of what it names"))?;
                self.copied += tree.size();
                if self.copied > MAX_COPIED {
                    return Err(at(line, format!("aliases bring more than {MAX_COPIED} values")));
                }
                (tree, 0)
            }
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && tag.is_none();
                let value = if plain { core_schema(&text) } else { Value::String(text.into_owned()) };
                (Tree::scalar(line, value), anchor)
            }
            Event::SequenceStart(anchor, _) => (self.sequence(line, depth)?, anchor),
            Event::MappingStart(anchor, _) => (self.mapping(line, depth)?, anchor),
            _ => (Tree::scalar(line, Value::Null), 0),
        };
        if anchor != 0 {
            self.anchors.insert(anchor, tree.clone());
        }
        Ok(tree)
    }

    fn sequence(&mut self, line: usize, depth: usize) -> Result<Tree, FileFault> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd | Event::StreamEnd, _) => return Ok(Tree::list(line, items)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn mapping(&mut self, line: usize, depth: usize) -> Result<Tree, FileFault> {
        let mut entries: Vec<Entry> = Vec::new();
        let mut merged: Vec<Entry> = Vec::new();
        let mut known = std::collections::HashSet::new();
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MappingEnd | Event::StreamEnd) {
                break;
            }
            let key_line = span.start.line();
            let key = self.node(event, span, depth + 1)?.key();
            let key = key.ok_or_else(|| at(key_line, "a key has to be a plain value"))?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if key == "<<" {
                merge_into(&mut merged, value, key_line)?;
            } else if !known.insert(key.clone()) {
                return Err(at(key_line, format!("the key {key:?} stands twice")));
            } else {
                entries.push((key, key_line, value.of_key(key_line)));
            }
        }
        entries.extend(merged.into_iter().filter(|(key, _, _)| known.insert(key.clone())));
        Ok(Tree::map(line, entries))
    }
}

/// What `<<` brings: a mapping, or a list of them of which earlier ones win.
fn merge_into(merged: &mut Vec<Entry>, tree: Tree, line: usize) -> Result<(), FileFault> {
    if let Some(entries) = tree.entries() {
        merged.extend(entries.iter().cloned());
        return Ok(());
    }
    match tree.items() {
        Some(items) => items.iter().try_for_each(|item| merge_into(merged, item.clone(), line)),
        None => Err(at(line, "<< takes a mapping")),
    }
}

/// A plain scalar's value in YAML 1.2's core schema.
fn core_schema(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(number) = text.parse::<i64>() {
        return number.into();
    }
    if let Some(number) = text.strip_prefix("0x").and_then(|hex| i64::from_str_radix(hex, 16).ok()) {
        return number.into();
    }
    let numeric = text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text.contains(|c: char| c.is_ascii_digit());
    let number = text.parse::<f64>().ok().filter(|_| numeric).and_then(Number::from_f64);
    number.map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

fn toml(text: &str) -> Result<Tree, Vec<FileFault>> {
    let lines = Lines(
        text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(offset, _)| offset).collect(),
    );
    let (table, errors) = DeTable::parse_recoverable(text);
    let fault = |error: &toml::de::Error| {
        let line = error.span().map_or(0, |span| lines.at(span.start));
        let message = error.message().lines().map(str::trim).collect::<Vec<_>>().join(", ");
        at(line, format!("this is no TOML: {message}"))
    };
    let mut faults: Vec<FileFault> = errors.iter().map(fault).collect();
    faults.dedup_by_key(|fault| fault.line);
    if !faults.is_empty() {
        return Err(faults);
    }
    table_of(table.get_ref(), 1, &lines).map_err(|fault| vec![fault])
}

fn table_of(table: &DeTable<'_>, line: usize, lines: &Lines) -> Result<Tree, FileFault> {
    let mut entries = Vec::with_capacity(table.len());
    for (key, value) in table {
        entries.push((key.get_ref().to_string(), lines.at(key.span().start), value_of(value, lines)?));
    }
    Ok(Tree::map(line, entries))
}

fn value_of(value: &Spanned<DeValue<'_>>, lines: &Lines) -> Result<Tree, FileFault> {
    let line = lines.at(value.span().start);
    let no_number = |text: &str| at(line, format!("{text} is no number that can be had"));
    let value = match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Boolean(value) => Value::Bool(*value),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_err(|_| no_number(number.as_str()))?
            .into(),
        DeValue::Float(number) => {
            let parsed = number.as_str().parse().ok().and_then(Number::from_f64);
            Value::Number(parsed.ok_or_else(|| no_number(number.as_str()))?)
        }
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(items) => {
            return Ok(Tree::list(
                line,
                items.iter().map(|item| value_of(item, lines)).collect::<Result<_, _>>()?,
            ));
        }
        DeValue::Table(table) => return table_of(table, line, lines),
    };
    Ok(Tree::scalar(line, value))
}

/// Where lines end, by byte.
struct Lines(Vec<usize>);

impl Lines {
    fn at(&self, offset: usize) -> usize {
        self.0.partition_point(|newline| *newline < offset) + 1
    }
}
