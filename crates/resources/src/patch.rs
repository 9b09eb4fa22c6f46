//! PATCH, as APISIX's Admin API has it.

use crate::Fault;
use serde_json::{Map, Value};

/// `current` with `patch` merged in: objects are merged, `null` deletes a field, all else (lists too) is replaced.
///
/// With a sub-path (`upstream/nodes`, `uris/0`) `patch` *is* the new value there: missing objects on the way are made, and
/// `null` deletes what stands there.
pub fn patched(current: &Value, sub_path: &str, patch: &Value) -> Result<Value, Fault> {
    let mut whole = current.clone();
    let names: Vec<&str> = sub_path.split('/').filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        let Value::Object(fields) = patch else {
            return Err(Fault::new("", "a patch of the whole resource must be an object"));
        };
        merge(&mut whole, fields);
    } else {
        replace(&mut whole, &names, patch, "")?;
    }
    Ok(whole)
}

fn merge(value: &mut Value, patch: &Map<String, Value>) {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    let Value::Object(fields) = value else { return };
    for (name, new) in patch {
        match new {
            Value::Null => {
                fields.remove(name);
            }
            Value::Object(inner) => merge(fields.entry(name.clone()).or_insert(Value::Null), inner),
            other => {
                fields.insert(name.clone(), other.clone());
            }
        }
    }
}

fn replace(value: &mut Value, names: &[&str], new: &Value, before: &str) -> Result<(), Fault> {
    let Some((name, rest)) = names.split_first() else {
        *value = new.clone();
        return Ok(());
    };
    let path = format!("{before}/{name}");
    match value {
        Value::Object(fields) if rest.is_empty() && new.is_null() => {
            fields.remove(*name);
            Ok(())
        }
        Value::Object(fields) => {
            let next = fields.entry((*name).to_owned()).or_insert_with(|| Value::Object(Map::new()));
            replace(next, rest, new, &path)
        }
        Value::Array(items) => {
            let length = items.len();
            let index: usize = name.parse().ok().filter(|index| *index <= length).ok_or_else(|| {
                Fault::new("", format!("sub-path {path}: a list of {length} has no place {name:?}"))
            })?;
            if rest.is_empty() && new.is_null() {
                if index < length {
                    items.remove(index);
                }
                return Ok(());
            }
            if index == length {
                items.push(Value::Object(Map::new()));
            }
            items.get_mut(index).map_or(Ok(()), |next| replace(next, rest, new, &path))
        }
        _ => Err(Fault::new("", format!("sub-path {path}: {before} is neither an object nor a list"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_merges_and_null_deletes() {
        let route = json!({"uri": "/a", "desc": "x", "methods": ["GET"], "upstream": {"nodes": {"a:80": 1, "b:80": 1}}});
        let patch =
            json!({"desc": null, "methods": ["POST"], "upstream": {"nodes": {"a:80": null, "c:80": 2}}});
        let expected =
            json!({"uri": "/a", "methods": ["POST"], "upstream": {"nodes": {"b:80": 1, "c:80": 2}}});
        assert_eq!(patched(&route, "", &patch).unwrap(), expected);
        assert!(patched(&route, "", &json!([])).is_err());
        // A list in place of an object, and the other way round, replaces it.
        let listed =
            patched(&route, "", &json!({"upstream": {"nodes": [{"host": "a", "weight": 1}]}})).unwrap();
        assert_eq!(
            patched(&listed, "", &json!({"upstream": {"nodes": {"d:80": 1}}})).unwrap()["upstream"]["nodes"],
            json!({"d:80": 1})
        );
    }

    #[test]
    fn a_sub_path_is_replaced() {
        let route = json!({"uri": "/a", "methods": ["GET"], "upstream": {"nodes": {"a:80": 1}}});
        let at = |path: &str, value: Value| patched(&route, path, &value);
        assert_eq!(
            at("upstream/nodes", json!({"b:80": 1})).unwrap()["upstream"]["nodes"],
            json!({"b:80": 1})
        );
        assert_eq!(at("methods/1", json!("PUT")).unwrap()["methods"], json!(["GET", "PUT"]));
        assert_eq!(
            at("plugins/request-id/header_name", json!("x")).unwrap()["plugins"],
            json!({"request-id": {"header_name": "x"}})
        );
        assert_eq!(at("methods", Value::Null).unwrap().get("methods"), None);
        assert!(at("uri/x", json!(1)).unwrap_err().message.contains("/uri is neither"));
        assert!(at("methods/7", json!("PUT")).is_err());
    }
}
