//! Files that people write (TOML, YAML) as a tree that knows the line of everything in it, so that every complaint can
//! name its place. Readers take fields out through [`fields::Fields`], which collects *all* problems.

pub(crate) mod fields;
pub(crate) mod problem;
pub(crate) mod toml;
pub(crate) mod yaml;

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// What it is.
    pub(crate) value: Value,
    /// Line, from 1; 0 = not from a file.
    pub(crate) line: usize,
}

/// What a value can be.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// YAML's null.
    Null,
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Another number.
    Float(f64),
    /// Text.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// Keys and values in the order of the file.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    /// The key.
    pub(crate) key: String,
    /// Line of the key.
    pub(crate) line: usize,
    /// The value.
    pub(crate) node: Node,
}

impl Value {
    /// The word for it in messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Value::Null => "nothing",
            Value::Bool(_) => "true/false",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a table",
        }
    }

    /// A scalar as the text that stands for it; `None` for lists and maps.
    pub(crate) fn scalar_text(&self) -> Option<String> {
        match self {
            Value::Null => Some(String::new()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Integer(value) => Some(value.to_string()),
            Value::Float(value) => Some(value.to_string()),
            Value::Text(value) => Some(value.clone()),
            Value::List(_) | Value::Map(_) => None,
        }
    }
}
