//! Reads fields of the API's JSON without insisting on them: an older or newer server may lack some.

use serde_json::Value;

/// The value at a path (`place.node`).
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, key| value.get(key)).filter(|value| !value.is_null())
}

/// A text; empty if absent.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// A count; 0 if absent.
pub(crate) fn count(value: &Value, path: &str) -> u64 {
    at(value, path).and_then(Value::as_u64).unwrap_or_default()
}

/// A number; 0 if absent.
pub(crate) fn number(value: &Value, path: &str) -> f64 {
    at(value, path).and_then(Value::as_f64).unwrap_or_default()
}

/// Whether a flag is set.
pub(crate) fn flag(value: &Value, path: &str) -> bool {
    at(value, path).and_then(Value::as_bool).unwrap_or_default()
}

/// The items of a list; none if absent.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The texts of a list.
pub(crate) fn texts<'a>(value: &'a Value, path: &str) -> Vec<&'a str> {
    list(value, path).iter().filter_map(Value::as_str).collect()
}

/// The first 12 hex digits of a digest.
pub(crate) fn short_digest(digest: &str) -> String {
    digest.trim_start_matches("sha256:").chars().take(12).collect()
}

/// Enough of a UUIDv7 to tell two apart: its digits 5 to 8 and the last eight.
pub(crate) fn short_id(id: &str) -> String {
    match id.parse::<towpath_types::InstanceId>() {
        Ok(id) => id.short(),
        Err(_) => id.to_owned(),
    }
}
