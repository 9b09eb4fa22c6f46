//! From a type to the schema that is published: draft 7, in one piece, without the traces of Rust.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

const RUST_FORMATS: &[&str] = &[
    "uint", "uint8", "uint16", "uint32", "uint64", "int", "int8", "int16", "int32", "int64", "float",
    "double",
];

/// The schema of `T`.
pub fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft07().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// An optional field is one that may be missing, not one that may be null; formats of integers are Rust's; a choice of
/// texts is an `enum`.
fn tidy(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    if map.get("format").and_then(Value::as_str).is_some_and(|format| RUST_FORMATS.contains(&format)) {
        map.remove("format");
    }
    map.remove("title");
    if map.get("default") == Some(&Value::Null) {
        map.remove("default");
    }
    forget_null(map);
    choose_texts(map);
    for key in ["properties", "patternProperties"] {
        if let Some(Value::Object(properties)) = map.get_mut(key) {
            properties.values_mut().for_each(tidy);
        }
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            tidy(inner);
        }
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(branches)) = map.get_mut(key) {
            branches.iter_mut().for_each(tidy);
        }
    }
}

fn forget_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            map.insert("type".into(), only);
        }
    }
    if let Some(Value::Array(values)) = map.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(branches)) = map.get_mut("anyOf") {
        branches.retain(|branch| branch != &json!({"type": "null"}));
        if branches.len() == 1
            && let Some(Value::Object(only)) = branches.pop()
        {
            map.remove("anyOf");
            for (key, value) in only {
                map.entry(key).or_insert(value);
            }
        }
    }
}

/// `oneOf` of constants with descriptions → `enum`, the descriptions in the description.
fn choose_texts(map: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = map.get("oneOf") else { return };
    let mut choices = Vec::new();
    let mut words = Vec::new();
    for branch in branches {
        if let Some(constant) = branch.get("const") {
            choices.push(constant.clone());
            if let (Some(name), Some(text)) =
                (constant.as_str(), branch.get("description").and_then(Value::as_str))
            {
                words.push(format!("{name}: {text}"));
            }
        } else if let Some(Value::Array(several)) = branch.get("enum") {
            choices.extend(several.iter().cloned());
        } else {
            return;
        }
    }
    map.remove("oneOf");
    map.insert("type".into(), "string".into());
    map.insert("enum".into(), choices.into());
    if !words.is_empty() {
        let before = map.get("description").and_then(Value::as_str).unwrap_or_default();
        let text = format!("{before}\n{}", words.join("\n"));
        map.insert("description".into(), text.trim().into());
    }
}
