//! A file with all resources of a gateway: `apisix.yaml` as APISIX's standalone mode reads it, and the same in JSON and TOML. It is
//! taken whole or not at all.

mod lines;
mod tree;
mod variables;

#[cfg(test)]
mod tests;

use crate::document::{Document, read};
use crate::{Fault, Id, Key, Kind};
use lines::Tree;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML; its last line is `#END`, so that a file that is being written is not taken for a whole one.
    Yaml,
    /// JSON.
    Json,
    /// TOML: `[[routes]]`.
    Toml,
}

impl Format {
    /// The format that the name of a file promises; YAML where it promises nothing.
    pub fn of(name: &str) -> Self {
        match name.rsplit('.').next() {
            Some("json") => Format::Json,
            Some("toml") => Format::Toml,
            _ => Format::Yaml,
        }
    }
}

/// Something wrong in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileFault {
    /// Line, from 1; 0 = not known.
    pub line: usize,
    /// The resource (`routes/1`), or empty.
    pub resource: String,
    /// What is wrong.
    pub fault: Fault,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        if !self.resource.is_empty() {
            write!(f, "{}: ", self.resource)?;
        }
        self.fault.fmt(f)
    }
}

/// All resources of the file `text`, or all that is wrong with it. `variable` tells the values of `${{NAME}}`.
pub fn read_file(
    text: &str,
    format: Format,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Document>, Vec<FileFault>> {
    if format == Format::Yaml && !has_end(text) {
        let message = "the last line has to be #END: without it the file may not be whole";
        return Err(vec![at(text.lines().count().max(1), message)]);
    }
    let text = variables::fill(text, variable)?;
    let tree = tree::parse(&text, format)?;
    let mut reader = Reader { documents: Vec::new(), faults: Vec::new(), places: BTreeMap::new() };
    let enabled = reader.sections(&tree);
    reader.check_references();
    reader.check_enabled(enabled.as_ref());
    if reader.faults.is_empty() {
        Ok(reader.documents)
    } else {
        reader.faults.sort_by_key(|fault| fault.line);
        Err(reader.faults)
    }
}

fn has_end(text: &str) -> bool {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).is_some_and(|line| line == "#END")
}

fn at(line: usize, message: impl Into<String>) -> FileFault {
    FileFault { line, resource: String::new(), fault: Fault::new("", message) }
}

struct Reader<'t> {
    documents: Vec<Document>,
    faults: Vec<FileFault>,
    /// Where each resource stands.
    places: BTreeMap<Key, &'t Tree>,
}

impl<'t> Reader<'t> {
    /// Reads every section; the plugins that the file switches on, if it names any.
    fn sections(&mut self, tree: &'t Tree) -> Option<BTreeSet<String>> {
        let mut enabled = None;
        if tree.is_nothing() {
            return None;
        }
        let Some(entries) = tree.entries() else {
            self.faults.push(at(tree.line(), "the file must have routes, upstreams and so on as keys"));
            return None;
        };
        for (name, line, section) in entries {
            if name == "plugins" {
                enabled = Some(self.enabled(section));
                continue;
            }
            match name.parse::<Kind>() {
                Ok(kind) => self.section(kind, section),
                Err(fault) => self.faults.push(at(*line, fault.message)),
            }
        }
        enabled
    }

    fn section(&mut self, kind: Kind, section: &'t Tree) {
        if section.is_nothing() {
            return;
        }
        let Some(items) = section.items() else {
            self.faults.push(at(section.line(), format!("{kind} must be a list")));
            return;
        };
        for (index, item) in items.iter().enumerate() {
            self.resource(kind, index, item);
        }
    }

    fn resource(&mut self, kind: Kind, index: usize, item: &'t Tree) {
        let value = item.value();
        let text = id_of(kind, index, &value);
        // APISIX keeps credentials among consumers.
        let kind =
            if kind == Kind::Consumer && text.contains("/credentials/") { Kind::Credential } else { kind };
        let id = match Id::new(kind, &text) {
            Ok(id) => id,
            Err(fault) => return self.tell(&format!("{kind}[{index}]"), item, fault),
        };
        let key = Key::new(kind, id);
        match read(kind, &key.id, &value) {
            Ok(document) => self.documents.push(document),
            Err(faults) => faults.into_iter().for_each(|fault| self.tell(&key.to_string(), item, fault)),
        }
        if let Some(before) = self.places.insert(key.clone(), item) {
            let message = format!("the id {:?} stands here and in line {}", key.id.as_str(), before.line());
            self.tell(&key.to_string(), item, Fault::new("id", message));
        }
    }

    fn tell(&mut self, resource: &str, item: &Tree, fault: Fault) {
        self.faults.push(FileFault { line: item.line_of(&fault.path), resource: resource.to_owned(), fault });
    }

    fn check_references(&mut self) {
        let documents = std::mem::take(&mut self.documents);
        for document in &documents {
            let mut missing = document.references();
            missing.retain(|key| !self.places.contains_key(key));
            let Some(item) = self.places.get(&document.key).copied() else { continue };
            for key in missing {
                self.tell(&document.key.to_string(), item, crate::set::no_such(document, &key));
            }
        }
        self.documents = documents;
    }

    fn enabled(&mut self, section: &Tree) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for item in section.items().unwrap_or_default() {
            let value = item.value();
            match value.get("name").or(Some(&value)).and_then(Value::as_str) {
                Some(name) if crate::plugins::plugin(name).is_some() => {
                    names.insert(name.to_owned());
                }
                // Switched on and never used does no harm; used, it is refused there.
                Some(name) if crate::plugins::refused(name).is_some() => {}
                Some(name) => self.faults.push(at(item.line(), format!("there is no plugin {name:?}"))),
                None => self.faults.push(at(item.line(), "each of plugins must have a name")),
            }
        }
        names
    }

    fn check_enabled(&mut self, enabled: Option<&BTreeSet<String>>) {
        let Some(enabled) = enabled else { return };
        let documents = std::mem::take(&mut self.documents);
        for document in &documents {
            for plugin in document.plugins.iter().filter(|plugin| !enabled.contains(plugin.name)) {
                let path = format!("plugins.{}", plugin.name);
                if let Some(item) = self.places.get(&document.key).copied() {
                    self.tell(
                        &document.key.to_string(),
                        item,
                        Fault::new(path, "is not among the plugins that the file switches on"),
                    );
                }
            }
        }
        self.documents = documents;
    }
}

/// The id that a resource gives itself, or one by its place.
fn id_of(kind: Kind, index: usize, value: &Value) -> String {
    let text = |field: &str| match value.get(field) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let own = if kind == Kind::Consumer {
        text("id").filter(|id| id.contains('/')).or_else(|| text("username"))
    } else {
        text("id")
    };
    own.unwrap_or_else(|| format!("arr_{}", index + 1))
}
