//! Lays flags over variables over the file.

use super::{KEYS, Role};
use crate::document::{Entry, Node, Value};
use std::collections::BTreeMap;

/// Where settings come from.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Flags that were given: field path, flag, values.
    pub(crate) flags: Vec<(&'static str, &'static str, Vec<String>)>,
    /// Environment variables.
    pub(crate) env: BTreeMap<String, String>,
    /// The file's name and content.
    pub(crate) file: Option<(String, Node)>,
}

impl Sources {
    /// One tree of all, and for each field that is not from the file, where it is from.
    pub(super) fn merged(&self, role: Role) -> (Node, BTreeMap<String, String>) {
        let mut tree = match &self.file {
            Some((_, node)) => node.clone(),
            None => Node { value: Value::Map(Vec::new()), line: 0 },
        };
        let mut origins = BTreeMap::new();
        for key in KEYS.iter().filter(|key| key.read_from_environment(role)) {
            if let Some(text) = self.env.get(key.env).filter(|text| !text.is_empty()) {
                let values: Vec<String> = if key.list {
                    text.split(',').map(|part| part.trim().to_owned()).collect()
                } else {
                    vec![text.clone()]
                };
                put(&mut tree, key.path, &values, key.list);
                origins.insert(key.path.to_owned(), key.env.to_owned());
            }
        }
        for (path, flag, values) in &self.flags {
            let list = KEYS.iter().any(|key| key.path == *path && key.list);
            put(&mut tree, path, values, list);
            origins.insert((*path).to_owned(), (*flag).to_owned());
        }
        (tree, origins)
    }
}

fn put(tree: &mut Node, path: &str, values: &[String], list: bool) {
    let (table, name) = match path.split_once('.') {
        Some((table, name)) => (Some(table), name),
        None => (None, path),
    };
    let text = |text: &String| Node { value: Value::Text(text.clone()), line: 0 };
    let node = if list {
        Node { value: Value::List(values.iter().map(text).collect()), line: 0 }
    } else {
        values.last().map_or(Node { value: Value::Null, line: 0 }, text)
    };
    match table {
        None => set(tree, name, node),
        Some(table) => {
            if !matches!(&tree.value, Value::Map(entries) if entries.iter().any(|entry| entry.key == table)) {
                set(tree, table, Node { value: Value::Map(Vec::new()), line: 0 });
            }
            if let Value::Map(entries) = &mut tree.value
                && let Some(entry) = entries.iter_mut().find(|entry| entry.key == table)
            {
                set(&mut entry.node, name, node);
            }
        }
    }
}

/// Sets a field of a map; of anything else (which the file has wrong, and which is said later) nothing.
fn set(map: &mut Node, name: &str, node: Node) {
    if let Value::Map(entries) = &mut map.value {
        entries.retain(|entry| entry.key != name);
        entries.push(Entry { key: name.to_owned(), line: 0, node });
    }
}
