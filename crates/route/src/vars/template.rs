//! Texts with variables in them: `$remote_addr$http_x_user`, `${arg_id ?? none}:x`; `\$` is a dollar.

use super::{Name, Vars};

/// A text with variables in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    parts: Box<[Part]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    /// With what stands for it where a request has none.
    Var(Name, Option<Box<str>>),
}

impl Template {
    /// Reads a text; every text is one.
    pub fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find('$') {
            let (before, after) = rest.split_at(at);
            let after = after.get(1..).unwrap_or_default();
            if let Some(before) = before.strip_suffix('\\') {
                plain.push_str(before);
                plain.push('$');
                rest = after;
                continue;
            }
            plain.push_str(before);
            rest = match variable(after) {
                Some((name, default, tail)) => {
                    push_text(&mut parts, &mut plain);
                    parts.push(Part::Var(Name::new(name), default.map(Into::into)));
                    tail
                }
                None => {
                    plain.push('$');
                    after
                }
            };
        }
        plain.push_str(rest);
        push_text(&mut parts, &mut plain);
        Self { parts: parts.into() }
    }

    /// All variables in it.
    pub fn names(&self) -> impl Iterator<Item = &Name> {
        self.parts.iter().filter_map(|part| match part {
            Part::Var(name, _) => Some(name),
            Part::Text(_) => None,
        })
    }

    /// Gives the pieces of the filled-in text to `piece` one after another, and says how many variables had a value or a
    /// default; in the place of others stands nothing.
    pub fn fill(&self, vars: &impl Vars, mut piece: impl FnMut(&[u8])) -> usize {
        let mut resolved = 0;
        for part in &self.parts {
            match part {
                Part::Text(text) => piece(text.as_bytes()),
                Part::Var(name, default) => {
                    match vars.var(name).and_then(|value| value.with_text(&mut piece)) {
                        Some(()) => resolved += 1,
                        None => {
                            resolved += usize::from(default.is_some());
                            piece(default.as_deref().unwrap_or_default().as_bytes());
                        }
                    }
                }
            }
        }
        resolved
    }
}

fn push_text(parts: &mut Vec<Part>, plain: &mut String) {
    if !plain.is_empty() {
        parts.push(Part::Text(std::mem::take(plain).into()));
    }
}

/// The name behind a `$`, its default, and what follows.
fn variable(text: &str) -> Option<(&str, Option<&str>, &str)> {
    if let Some(inner) = text.strip_prefix('{') {
        let (inside, tail) = inner.split_once('}')?;
        let (name, default) = match inside.split_once("??") {
            Some((name, default)) => (name.trim(), Some(default.trim())),
            None => (inside.trim(), None),
        };
        return (!name.is_empty()).then_some((name, default, tail));
    }
    let end = text.bytes().take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')).count();
    let (name, tail) = text.split_at_checked(end)?;
    (!name.is_empty()).then_some((name, None, tail))
}
