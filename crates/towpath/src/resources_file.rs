//! The declarative file of a gateway that runs alone: `apisix.yaml` as APISIX reads it, or the same as JSON or TOML.
//!
//! A YAML file ends with a line `#END`: a file without it is still being written, and is not looked at. A file is taken whole
//! or not at all; every fault is told with its line.

use crate::document::{Node, Value, toml, yaml};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;
use towpath_gateway::{Loaded, ResourceSource};
use towpath_resources::{Document, Id, Key, Kind, Set, read};

/// Most values of a file.
const MOST_VALUES: usize = 50_000_000;

/// A watched file.
pub(crate) struct ResourcesFile {
    path: PathBuf,
    /// What the file system last said of it, so that a file that nobody touched is not read again.
    last: Mutex<Option<(SystemTime, u64)>>,
}

impl ResourcesFile {
    /// The file at `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, last: Mutex::new(None) }
    }

    /// All documents in it now, or all that is wrong.
    pub(crate) fn read(&self) -> Result<Vec<Document>, Vec<String>> {
        let name = self.path.display().to_string();
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| vec![format!("{name}: cannot be read: {}", crate::exit::reason(&error))])?;
        if is_yaml(&self.path) && !is_complete(&text) {
            return Err(vec![format!("{name}: the last line is not #END: the file is not complete yet")]);
        }
        parse(&name, &text, &self.path)
    }
}

impl ResourceSource for ResourcesFile {
    fn load(&self, seen: Option<u64>) -> Loaded {
        let Ok(about) = std::fs::metadata(&self.path) else { return Loaded::Same };
        let now = about.modified().ok().map(|modified| (modified, about.len()));
        let mut last = self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if seen.is_some() && now.is_some() && *last == now {
            // A clock that is coarser than writers are fast: young files are looked at once more.
            let young = now.and_then(|(at, _)| at.elapsed().ok()).is_some_and(|age| age.as_secs() < 2);
            if !young {
                return Loaded::Same;
            }
        }
        let Ok(text) = std::fs::read_to_string(&self.path) else { return Loaded::Same };
        if is_yaml(&self.path) && !is_complete(&text) {
            return Loaded::Same;
        }
        *last = now;
        let mut hash = DefaultHasher::new();
        text.hash(&mut hash);
        let mark = hash.finish();
        if seen == Some(mark) {
            return Loaded::Same;
        }
        match parse(&self.path.display().to_string(), &text, &self.path) {
            Ok(documents) => Loaded::Documents { mark, documents },
            Err(faults) => Loaded::Refused { mark, faults },
        }
    }
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

fn is_complete(text: &str) -> bool {
    text.lines().rev().find(|line| !line.trim().is_empty()).is_some_and(|line| line.trim() == "#END")
}

/// The documents of a text, each good for itself and all together.
fn parse(name: &str, text: &str, path: &Path) -> Result<Vec<Document>, Vec<String>> {
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    // JSON is YAML, with lines.
    let tree = if is_toml { toml::parse(name, text) } else { yaml::parse_up_to(name, text, MOST_VALUES) };
    let tree = tree.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    let mut faults = Vec::new();
    let items = items(name, &tree, &mut faults);
    let mut documents = Vec::new();
    for (n, item) in items.iter().enumerate() {
        if let Some(twin) = items.iter().take(n).find(|other| other.key == item.key) {
            let line = twin.node.line;
            faults.push((item.node.line, format!("{}: id: the same id stands in line {line}", item.place)));
            continue;
        }
        match read(item.key.kind, &item.key.id, &json(item.node)) {
            Ok(document) => documents.push(document),
            Err(wrong) => faults.extend(wrong.iter().map(|fault| told(item, &fault.path, &fault.message))),
        }
    }
    if faults.is_empty() {
        for refused in Set::new().change(documents.clone(), &[]).refused {
            let item = items.iter().find(|item| item.key == refused.key);
            for fault in refused.faults {
                faults.push(match item {
                    Some(item) => told(item, &fault.path, &fault.message),
                    None => (0, format!("{}: {fault}", refused.key)),
                });
            }
        }
    }
    if faults.is_empty() {
        return Ok(documents);
    }
    faults.sort();
    Err(faults.into_iter().map(|(line, fault)| format!("{name}:{line}: {fault}")).collect())
}

/// A resource in the file.
struct Item<'a> {
    key: Key,
    node: &'a Node,
    /// `routes[0]`.
    place: String,
}

fn items<'a>(name: &str, tree: &'a Node, faults: &mut Vec<(usize, String)>) -> Vec<Item<'a>> {
    let mut items = Vec::new();
    let entries = match &tree.value {
        Value::Map(entries) => entries.as_slice(),
        Value::Null => &[],
        other => {
            let what = format!("{name} is {}, not a table of routes, upstreams, …", other.kind());
            faults.push((tree.line, what));
            return items;
        }
    };
    for entry in entries {
        // Which plugins APISIX is to load: here every plugin that is known can be used.
        if entry.key == "plugins" {
            continue;
        }
        let kind = match entry.key.parse::<Kind>() {
            Ok(kind) => kind,
            Err(fault) => {
                faults.push((entry.line, fault.message));
                continue;
            }
        };
        let list = match &entry.node.value {
            Value::List(list) => list.as_slice(),
            Value::Null => &[],
            other => {
                faults.push((entry.line, format!("{}: is {}, not a list", entry.key, other.kind())));
                continue;
            }
        };
        for (n, node) in list.iter().enumerate() {
            let place = format!("{}[{n}]", entry.key);
            let field = if kind == Kind::Consumer { "username" } else { "id" };
            let given = child(node, field).and_then(|node| match &node.value {
                Value::Text(text) => Some(text.clone()),
                Value::Integer(number) => Some(number.to_string()),
                _ => None,
            });
            let given = given.or_else(|| text_of(child(node, "id")?));
            let id = given.unwrap_or_else(|| format!("arr_{}", n + 1));
            match Id::new(kind, &id) {
                Ok(id) => items.push(Item { key: Key::new(kind, id), node, place }),
                Err(fault) => faults.push((node.line, format!("{place}: {fault}"))),
            }
        }
    }
    items
}

fn text_of(node: &Node) -> Option<String> {
    match &node.value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}

fn child<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Value::Map(entries) = &node.value else { return None };
    entries.iter().find(|entry| entry.key == name).map(|entry| &entry.node)
}

/// A fault with the line of its field.
fn told(item: &Item<'_>, path: &str, message: &str) -> (usize, String) {
    let id = item.key.id.as_str();
    let field = if path.is_empty() { String::new() } else { format!(" {path}:") };
    (line_of(item.node, path), format!("{} (id {id}):{field} {message}", item.place))
}

/// The line of the deepest node on a path that is there.
fn line_of(node: &Node, path: &str) -> usize {
    let deeper = match &node.value {
        Value::Map(entries) => entries
            .iter()
            .filter_map(|entry| {
                let rest = path.strip_prefix(entry.key.as_str())?;
                let ends = rest.is_empty() || rest.starts_with(['.', '[']);
                ends.then_some((entry.key.len(), entry.line, &entry.node, rest))
            })
            // A key may have points in it.
            .max_by_key(|(length, ..)| *length)
            .map(|(_, line, node, rest)| (line, node, rest)),
        Value::List(list) => {
            path.strip_prefix('[').and_then(|inner| inner.split_once(']')).and_then(|(index, rest)| {
                let node = list.get(index.parse::<usize>().ok()?)?;
                Some((node.line, node, rest))
            })
        }
        _ => None,
    };
    match deeper {
        Some((line, inner, rest)) => {
            let rest = rest.strip_prefix('.').unwrap_or(rest);
            if rest.is_empty() { line } else { line_of(inner, rest).max(line) }
        }
        None => node.line,
    }
}

/// The tree as JSON.
fn json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => (*value).into(),
        Value::Integer(value) => (*value).into(),
        Value::Float(value) => (*value).into(),
        Value::Text(value) => value.clone().into(),
        Value::List(items) => items.iter().map(json).collect::<Vec<_>>().into(),
        Value::Map(entries) => entries
            .iter()
            .map(|entry| (entry.key.clone(), json(&entry.node)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
    }
}

#[cfg(test)]
mod tests;
