//! The check of a document against a schema. It knows the keywords that our types produce, and its faults are sentences.

use crate::Fault;
use crate::fault::{join, nearest};
use regex::Regex;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A schema, prepared for checking many documents.
#[derive(Debug, Default)]
pub struct Checker {
    types: Vec<Type>,
    choices: Vec<Value>,
    least: Option<f64>,
    most: Option<f64>,
    above: Option<f64>,
    shortest: Option<u64>,
    longest: Option<u64>,
    /// Judged by [`super::format`]; a pattern beside it is for others.
    format: Option<String>,
    pattern: Option<Regex>,
    /// What to say when the pattern does not match (`errorMessage` of the schema).
    words: Option<String>,
    properties: BTreeMap<String, Checker>,
    required: Vec<String>,
    others: Others,
    fewest_properties: Option<u64>,
    most_properties: Option<u64>,
    items: Option<Box<Checker>>,
    fewest: Option<u64>,
    most_items: Option<u64>,
    unique: bool,
    branches: Vec<Checker>,
    /// No fault quotes it.
    secret: bool,
}

/// Properties that are not named.
#[derive(Debug, Default)]
enum Others {
    #[default]
    Any,
    Refused,
    Like(Box<Checker>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    Text,
    Array,
    Object,
}

impl Checker {
    /// For the schema of `T`.
    pub fn of<T: schemars::JsonSchema>() -> Self {
        Self::new(&super::of::<T>())
    }

    /// Prepares `schema`, as [`super::of`] makes it. Keywords that relate fields to each other (`allOf`, `not`,
    /// `dependencies`, `oneOf` of `required`) are left to the types' own checks, which have better words for them.
    pub fn new(schema: &Value) -> Self {
        Self::within(schema, false)
    }

    /// `secret`: it stands in something secret.
    fn within(schema: &Value, secret: bool) -> Self {
        let Value::Object(map) = schema else { return Self { secret, ..Self::default() } };
        let secret = secret || map.get(crate::secrets::KEYWORD) == Some(&Value::Bool(true));
        let number = |key: &str| map.get(key).and_then(Value::as_f64);
        let count = |key: &str| map.get(key).and_then(Value::as_u64);
        let text = |key: &str| map.get(key).and_then(Value::as_str);
        Self {
            types: types_of(map),
            choices: choices_of(map),
            least: number("minimum"),
            most: number("maximum"),
            above: number("exclusiveMinimum"),
            shortest: count("minLength"),
            longest: count("maxLength"),
            format: text("format").map(str::to_owned),
            pattern: text("pattern").and_then(|pattern| Regex::new(pattern).ok()),
            words: text("errorMessage").map(str::to_owned),
            properties: properties_of(map, secret),
            required: strings_of(map.get("required")),
            others: match map.get("additionalProperties") {
                None | Some(Value::Bool(true)) => Others::Any,
                Some(Value::Bool(false)) => Others::Refused,
                Some(inner) => Others::Like(Box::new(Self::within(inner, secret))),
            },
            fewest_properties: count("minProperties"),
            most_properties: count("maxProperties"),
            items: map.get("items").map(|items| Box::new(Self::within(items, secret))),
            fewest: count("minItems"),
            most_items: count("maxItems"),
            unique: map.get("uniqueItems") == Some(&Value::Bool(true)),
            branches: branches_of(map, secret),
            secret,
        }
    }

    /// The named properties.
    pub fn properties(&self) -> impl Iterator<Item = &str> {
        self.properties.keys().map(String::as_str)
    }

    /// Adds all that is wrong with `value`, which stands at `path`.
    pub fn check(&self, path: &str, value: &Value, faults: &mut Vec<Fault>) {
        if !self.types.is_empty() && !self.types.iter().any(|kind| kind.fits(value)) {
            faults
                .push(Fault::new(path, format!("must be {}, not {}", self.expected(), self.describe(value))));
            return;
        }
        if !self.choices.is_empty() && !self.choices.contains(value) {
            faults.push(Fault::new(path, self.no_choice(value)));
            return;
        }
        match value {
            Value::Number(number) => self.check_number(path, number.as_f64().unwrap_or_default(), faults),
            Value::String(text) => self.check_text(path, text, faults),
            Value::Array(items) => self.check_array(path, items, faults),
            Value::Object(fields) => self.check_object(path, fields, faults),
            Value::Null | Value::Bool(_) => {}
        }
        self.check_branches(path, value, faults);
    }

    fn check_number(&self, path: &str, number: f64, faults: &mut Vec<Fault>) {
        if let Some(limit) = self.above.filter(|limit| number <= *limit) {
            faults.push(Fault::new(path, format!("must be greater than {limit}, not {number}")));
        }
        match (self.least, self.most) {
            (Some(least), Some(most)) if number < least || number > most => {
                faults.push(Fault::new(path, format!("must be between {least} and {most}, not {number}")));
            }
            (Some(least), _) if number < least => {
                faults.push(Fault::new(path, format!("must be at least {least}, not {number}")));
            }
            (_, Some(most)) if number > most => {
                faults.push(Fault::new(path, format!("must be at most {most}, not {number}")));
            }
            _ => {}
        }
    }

    fn check_text(&self, path: &str, text: &str, faults: &mut Vec<Fault>) {
        let length = text.chars().count() as u64;
        if self.shortest.is_some_and(|shortest| length < shortest) {
            let shortest = self.shortest.unwrap_or_default();
            let message = if length == 0 {
                "must not be empty".to_owned()
            } else {
                format!("must have at least {shortest} characters, not {length}")
            };
            faults.push(Fault::new(path, message));
        } else if let Some(longest) = self.longest.filter(|longest| length > *longest) {
            faults.push(Fault::new(path, format!("must have at most {longest} characters, not {length}")));
        } else if let Some(format) = self.format.as_ref().filter(|_| !self.secret) {
            faults.extend(super::format::fault_of(format, text).map(|message| Fault::new(path, message)));
        } else if let Some(pattern) = self.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            let message = match &self.words {
                _ if self.secret => "does not have the form that it should have".to_owned(),
                Some(words) => format!("{:?} {words}", brief(text)),
                None => format!("{:?} does not match {pattern}", brief(text)),
            };
            faults.push(Fault::new(path, message));
        }
    }

    fn check_array(&self, path: &str, items: &[Value], faults: &mut Vec<Fault>) {
        let count = items.len() as u64;
        if let Some(fewest) = self.fewest.filter(|fewest| count < *fewest) {
            faults.push(Fault::new(
                path,
                format!("must have at least {}, not {count}", counted(fewest, "entry", "entries")),
            ));
        }
        if let Some(most) = self.most_items.filter(|most| count > *most) {
            faults.push(Fault::new(
                path,
                format!("must have at most {}, not {count}", counted(most, "entry", "entries")),
            ));
        }
        if self.unique {
            let mut seen = std::collections::BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                if !seen.insert(item.to_string()) {
                    faults.push(Fault::new(
                        join(path, &format!("[{index}]")),
                        format!("{} stands here twice", self.describe(item)),
                    ));
                }
            }
        }
        if let Some(format) = &self.format {
            super::format::faults_of_list(format, path, items, faults);
        }
        if let Some(checker) = &self.items {
            for (index, item) in items.iter().enumerate() {
                checker.check(&join(path, &format!("[{index}]")), item, faults);
            }
        }
    }

    fn check_object(&self, path: &str, fields: &Map<String, Value>, faults: &mut Vec<Fault>) {
        for name in self.required.iter().filter(|name| !fields.contains_key(*name)) {
            faults.push(Fault::new(join(path, name), "is missing"));
        }
        let count = fields.len() as u64;
        if let Some(fewest) = self.fewest_properties.filter(|fewest| count < *fewest) {
            faults
                .push(Fault::new(path, format!("must have at least {}", counted(fewest, "field", "fields"))));
        }
        if let Some(most) = self.most_properties.filter(|most| count > *most) {
            faults.push(Fault::new(
                path,
                format!("must have at most {}, not {count}", counted(most, "field", "fields")),
            ));
        }
        for (name, value) in fields {
            let path = join(path, name);
            match (self.properties.get(name), &self.others) {
                (Some(checker), _) => checker.check(&path, value, faults),
                (None, Others::Any) => {}
                (None, Others::Like(checker)) => checker.check(&path, value, faults),
                (None, Others::Refused) => faults.push(Fault::new(path, self.no_field(name))),
            }
        }
    }

    /// At least one branch has to hold. The faults of the only branch of the right type are shown, else what would do.
    fn check_branches(&self, path: &str, value: &Value, faults: &mut Vec<Fault>) {
        if self.branches.is_empty() {
            return;
        }
        let mut found: Vec<Vec<Fault>> = Vec::new();
        for branch in &self.branches {
            let mut inner = Vec::new();
            branch.check(path, value, &mut inner);
            if inner.is_empty() {
                return;
            }
            if branch.types.is_empty() || branch.types.iter().any(|kind| kind.fits(value)) {
                found.push(inner);
            }
        }
        match found.pop() {
            Some(only) if found.is_empty() => faults.extend(only),
            Some(mut last) if value.is_object() => {
                found.push(std::mem::take(&mut last));
                faults.extend(found.into_iter().min_by_key(Vec::len).unwrap_or_default());
            }
            _ => faults
                .push(Fault::new(path, format!("must be {}, not {}", self.expected(), self.describe(value)))),
        }
    }

    fn expected(&self) -> String {
        if let Some(words) = &self.words
            && self.types.is_empty()
        {
            return words.trim_start_matches("must be ").to_owned();
        }
        let mut names: Vec<String> = self.types.iter().map(|kind| kind.noun().to_owned()).collect();
        names.extend(self.branches.iter().map(Self::expected));
        names.dedup();
        match names.split_last() {
            None => "something else".to_owned(),
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
        }
    }

    fn no_choice(&self, value: &Value) -> String {
        let texts = self.choices.iter().filter_map(Value::as_str);
        if let Some(meant) = value.as_str().and_then(|text| nearest(text, texts)) {
            return format!(
                "must be one of {}, not {}: did you mean {meant:?}?",
                listed(&self.choices),
                self.describe(value)
            );
        }
        match self.choices.as_slice() {
            [only] => format!("must be {only}, not {}", self.describe(value)),
            _ => format!("must be one of {}, not {}", listed(&self.choices), self.describe(value)),
        }
    }

    /// What stands there instead. A secret is not told.
    fn describe(&self, value: &Value) -> String {
        match value {
            Value::String(_) | Value::Number(_) | Value::Bool(_) if self.secret => {
                "what it is (secret)".to_owned()
            }
            value => describe(value),
        }
    }

    fn no_field(&self, name: &str) -> String {
        super::unknown("field", name, self.properties())
    }
}

impl Type {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "null" => Type::Null,
            "boolean" => Type::Boolean,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "string" => Type::Text,
            "array" => Type::Array,
            "object" => Type::Object,
            _ => return None,
        })
    }

    fn fits(self, value: &Value) -> bool {
        match self {
            Type::Null => value.is_null(),
            Type::Boolean => value.is_boolean(),
            Type::Integer => value.is_i64() || value.is_u64(),
            Type::Number => value.is_number(),
            Type::Text => value.is_string(),
            Type::Array => value.is_array(),
            Type::Object => value.is_object(),
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Type::Null => "null",
            Type::Boolean => "true or false",
            Type::Integer => "an integer",
            Type::Number => "a number",
            Type::Text => "text",
            Type::Array => "a list",
            Type::Object => "an object",
        }
    }
}

fn types_of(map: &Map<String, Value>) -> Vec<Type> {
    match map.get("type") {
        Some(Value::String(name)) => Type::of(name).into_iter().collect(),
        several => strings_of(several).iter().filter_map(|name| Type::of(name)).collect(),
    }
}

fn choices_of(map: &Map<String, Value>) -> Vec<Value> {
    match (map.get("const"), map.get("enum")) {
        (Some(only), _) => vec![only.clone()],
        (None, Some(Value::Array(several))) => several.clone(),
        _ => Vec::new(),
    }
}

fn properties_of(map: &Map<String, Value>, secret: bool) -> BTreeMap<String, Checker> {
    let Some(Value::Object(properties)) = map.get("properties") else { return BTreeMap::new() };
    properties.iter().map(|(name, schema)| (name.clone(), Checker::within(schema, secret))).collect()
}

/// Branches that say what a value is; those that only demand fields are left to the types.
fn branches_of(map: &Map<String, Value>, secret: bool) -> Vec<Checker> {
    let is_shape = |branch: &Value| {
        branch.get("type").is_some() || branch.get("enum").is_some() || branch.get("anyOf").is_some()
    };
    match map.get("anyOf").or_else(|| map.get("oneOf")) {
        Some(Value::Array(branches)) if branches.iter().all(is_shape) => {
            branches.iter().map(|branch| Checker::within(branch, secret)).collect()
        }
        _ => Vec::new(),
    }
}

fn strings_of(value: Option<&Value>) -> Vec<String> {
    value
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

fn listed(choices: &[Value]) -> String {
    choices.iter().map(Value::to_string).collect::<Vec<_>>().join(", ")
}

fn counted(count: u64, one: &str, several: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {several}") }
}

fn describe(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{:?}", brief(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}

/// Keys and certificates are long, and secret.
fn brief(text: &str) -> String {
    match text.char_indices().nth(64) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
