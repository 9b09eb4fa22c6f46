//! What plugins do to headers.

use crate::plugins::vars::Vars;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};
use towpath_route::vars::Template;

/// What is done, in the order add, set, remove. Texts may have variables.
#[derive(Debug, Default)]
pub(super) struct HeaderEdits {
    add: Vec<(HeaderName, Template)>,
    set: Vec<(HeaderName, Vec<Template>)>,
    remove: Vec<HeaderName>,
}

fn name(text: &str) -> Option<HeaderName> {
    HeaderName::from_bytes(text.trim().as_bytes()).ok()
}

/// A text as a header's value, without what cannot stand in one.
pub(super) fn value(text: &str) -> Option<HeaderValue> {
    HeaderValue::from_bytes(text.as_bytes()).ok()
}

impl HeaderEdits {
    pub(super) fn add(&mut self, header: &str, text: &str) {
        self.add.extend(name(header).map(|name| (name, Template::new(text))));
    }

    pub(super) fn set(&mut self, header: &str, texts: &[String]) {
        let texts = texts.iter().map(|text| Template::new(text)).collect();
        self.set.extend(name(header).map(|name| (name, texts)));
    }

    pub(super) fn remove(&mut self, header: &str) {
        self.remove.extend(name(header));
    }

    /// The changes for a request: what is added, what is set (nothing = it goes), what goes.
    pub(super) fn fill(&self, vars: &Vars<'_>) -> Filled {
        let fill = |template: &Template| value(&vars.fill(template).0);
        Filled {
            add: self.add.iter().filter_map(|(name, text)| Some((name.clone(), fill(text)?))).collect(),
            set: self
                .set
                .iter()
                .map(|(name, texts)| (name.clone(), texts.iter().filter_map(fill).collect()))
                .collect(),
            remove: self.remove.clone(),
        }
    }
}

/// Edits with their texts filled in.
#[derive(Debug)]
pub(super) struct Filled {
    pub(super) add: Vec<(HeaderName, HeaderValue)>,
    pub(super) set: Vec<(HeaderName, Vec<HeaderValue>)>,
    pub(super) remove: Vec<HeaderName>,
}

impl Filled {
    /// Names of all headers that it has a say in.
    pub(super) fn names(&self) -> impl Iterator<Item = &HeaderName> {
        let added = self.add.iter().map(|(name, _)| name);
        added.chain(self.set.iter().map(|(name, _)| name)).chain(&self.remove)
    }

    /// Does it.
    pub(super) fn apply(self, headers: &mut HeaderMap) {
        for (name, value) in self.add {
            headers.append(name, value);
        }
        for (name, values) in self.set {
            headers.remove(&name);
            for value in values.into_iter().filter(|value| !value.is_empty()) {
                headers.append(name.clone(), value);
            }
        }
        for name in self.remove {
            headers.remove(name);
        }
    }
}
