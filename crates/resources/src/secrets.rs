//! Which parts of a document are secret: the fields whose schema says `"x-secret": true`, and all texts below them.
//!
//! A type says so with one line, `#[schemars(extend("x-secret" = true))]`, and whoever stores, shows or logs documents asks here.
//! In a stored document a secret may stand sealed, as `{"$sealed": "…"}` in the place of its text: a build that does not know of it
//! refuses the field by name, where another text would be taken for the secret itself.

use crate::fault::join;
use crate::plugins::{Plugin, plugin};
use crate::{Key, Kind};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The keyword of schemas.
pub(crate) const KEYWORD: &str = "x-secret";
/// The only field of an object that stands for a sealed text.
const SEALED: &str = "$sealed";

/// What of a schema's values is secret.
#[derive(Debug, Default, Clone)]
pub(crate) struct Marks {
    /// All texts.
    whole: bool,
    fields: BTreeMap<String, Marks>,
    /// Of fields that are not named.
    others: Option<Box<Marks>>,
    items: Option<Box<Marks>>,
}

impl Marks {
    /// Of a published schema; `None` = nothing is secret.
    pub(crate) fn of(schema: &Value) -> Option<Self> {
        let mut marks = Self::default();
        marks.add(schema);
        (!marks.is_empty()).then_some(marks)
    }

    fn is_empty(&self) -> bool {
        !self.whole && self.fields.is_empty() && self.others.is_none() && self.items.is_none()
    }

    fn add(&mut self, schema: &Value) {
        let Value::Object(schema) = schema else { return };
        self.whole |= schema.get(KEYWORD) == Some(&Value::Bool(true));
        for (name, inner) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            if let Some(inner) = Self::of(inner) {
                self.fields.entry(name.clone()).or_default().merge(inner);
            }
        }
        let within = |place: &mut Option<Box<Marks>>, keyword: &str| {
            if let Some(inner) = schema.get(keyword).and_then(Self::of) {
                place.get_or_insert_default().merge(inner);
            }
        };
        within(&mut self.others, "additionalProperties");
        within(&mut self.items, "items");
        for keyword in ["anyOf", "oneOf", "allOf"] {
            schema.get(keyword).and_then(Value::as_array).into_iter().flatten().for_each(|one| self.add(one));
        }
    }

    fn merge(&mut self, other: Self) {
        self.whole |= other.whole;
        for (name, inner) in other.fields {
            self.fields.entry(name).or_default().merge(inner);
        }
        for (place, inner) in [(&mut self.others, other.others), (&mut self.items, other.items)] {
            if let Some(inner) = inner {
                place.get_or_insert_default().merge(*inner);
            }
        }
    }

    fn visit(&self, path: &str, value: &mut Value, f: &mut impl FnMut(&str, &mut Value)) {
        if self.whole {
            return visit_all(path, value, f);
        }
        match value {
            Value::Object(fields) => {
                for (name, inner) in fields.iter_mut() {
                    if let Some(marks) = self.fields.get(name).or(self.others.as_deref()) {
                        marks.visit(&join(path, name), inner, f);
                    }
                }
            }
            Value::Array(items) => {
                if let Some(marks) = &self.items {
                    let path = join(path, "[]");
                    items.iter_mut().for_each(|item| marks.visit(&path, item, f));
                }
            }
            _ => {}
        }
    }
}

fn visit_all(path: &str, value: &mut Value, f: &mut impl FnMut(&str, &mut Value)) {
    if value.is_string() || sealed_text(value).is_some() {
        return f(path, value);
    }
    match value {
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, inner)| visit_all(&join(path, name), inner, f));
        }
        Value::Array(items) => {
            let path = join(path, "[]");
            items.iter_mut().for_each(|item| visit_all(&path, item, f));
        }
        _ => {}
    }
}

/// A sealed text, as it stands in a stored document.
pub fn sealed_value(text: String) -> Value {
    Value::Object(Map::from_iter([(SEALED.to_owned(), Value::String(text))]))
}

/// The sealed text that this value stands for.
pub fn sealed_text(value: &Value) -> Option<&str> {
    let fields = value.as_object().filter(|fields| fields.len() == 1)?;
    fields.get(SEALED)?.as_str()
}

/// Whether something in a stored document is sealed.
pub fn is_sealed(value: &Value) -> bool {
    match value {
        Value::Object(fields) => sealed_text(value).is_some() || fields.values().any(is_sealed),
        Value::Array(items) => items.iter().any(is_sealed),
        _ => false,
    }
}

static KINDS: LazyLock<Vec<(Kind, Option<Marks>)>> =
    LazyLock::new(|| Kind::ALL.iter().map(|kind| (*kind, Marks::of(crate::schema_of(*kind)))).collect());

/// Calls `f` with the path and the place of each secret of a document: a text, or what stands for a sealed one. Places in lists are not
/// told apart: `keys[]`. What is no document of its kind has what can be found in it.
pub fn each_secret(key: &Key, value: &mut Value, mut f: impl FnMut(&str, &mut Value)) {
    if key.kind == Kind::PluginMetadata {
        if let Some(marks) = plugin(key.id.as_str()).and_then(|plugin| plugin.metadata_marks.as_ref()) {
            marks.visit("", value, &mut f);
        }
        return;
    }
    if let Some(marks) =
        KINDS.iter().find(|(kind, _)| *kind == key.kind).and_then(|(_, marks)| marks.as_ref())
    {
        marks.visit("", value, &mut f);
    }
    let plugins = value.get_mut("plugins").and_then(Value::as_object_mut);
    for (name, config) in plugins.into_iter().flatten() {
        let marks = plugin(name).and_then(|plugin| marks_in(key.kind, plugin));
        if let Some(marks) = marks {
            marks.visit(&join("plugins", name), config, &mut f);
        }
    }
}

/// What is secret of a plugin's configuration in a document of this kind.
fn marks_in(kind: Kind, plugin: &'static Plugin) -> Option<&'static Marks> {
    match kind {
        Kind::Consumer | Kind::Credential if plugin.credential_schema.is_some() => {
            plugin.credential_marks.as_ref()
        }
        _ => plugin.marks.as_ref(),
    }
}

/// Whether a document has a secret, sealed or not.
pub fn has_secret(key: &Key, value: &Value) -> bool {
    let mut found = false;
    each_secret(key, &mut value.clone(), |_, _| found = true);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Id, plugins};
    use serde_json::json;

    fn paths(kind: Kind, id: &str, mut value: Value) -> Vec<String> {
        let mut found = Vec::new();
        each_secret(&Key::new(kind, Id::new(kind, id).unwrap()), &mut value, |path, _| {
            found.push(path.to_owned());
        });
        found.sort();
        found
    }

    #[test]
    fn secrets_are_found_wherever_they_may_stand() {
        let tls = json!({"client_cert": "c", "client_key": "k"});
        let upstream = json!({"nodes": {"a:1": 1}, "tls": tls});
        assert_eq!(paths(Kind::Upstream, "1", upstream.clone()), ["tls.client_key"]);
        let split = json!({"rules": [{"weighted_upstreams": [{"upstream": upstream}, {"weight": 1}]}]});
        let route = json!({"uri": "/", "upstream": upstream,
            "plugins": {"traffic-split": split, "csrf": {"key": "k"}, "key-auth": {"key": "no credential here"}}});
        let expected = [
            "plugins.csrf.key",
            "plugins.traffic-split.rules[].weighted_upstreams[].upstream.tls.client_key",
            "upstream.tls.client_key",
        ];
        assert_eq!(paths(Kind::Route, "1", route), expected);
        let ssl = json!({"cert": "c", "key": "k", "keys": ["a", {"$sealed": "b"}, {"other": "c"}]});
        assert_eq!(paths(Kind::Ssl, "1", ssl), ["key", "keys[]", "keys[]", "keys[].other"]);
        let plugins = json!({"key-auth": {"key": "k"}, "basic-auth": {"username": "u", "password": "p"},
            "jwt-auth": {"key": "name", "secret": "s", "public_key": "p"}, "hmac-auth": {"key_id": "i", "secret_key": "s"}});
        let expected = [
            "plugins.basic-auth.password",
            "plugins.hmac-auth.secret_key",
            "plugins.jwt-auth.secret",
            "plugins.key-auth.key",
        ];
        assert_eq!(paths(Kind::Consumer, "jack", json!({"username": "jack", "plugins": plugins})), expected);
        assert_eq!(paths(Kind::Credential, "jack/credentials/1", json!({"plugins": plugins})), expected);
        for odd in [
            json!(null),
            json!([]),
            json!({"plugins": 5, "tls": "x"}),
            json!({"plugins": {"nope": {"key": 1}}}),
        ] {
            assert_eq!(paths(Kind::Route, "1", odd), [""; 0]);
        }
    }

    #[test]
    fn nothing_is_published_as_secret_with_a_default() {
        fn look(at: &str, schema: &Value) {
            // Nothing by default is no secret that everybody knows.
            let nothing = [json!(null), json!({}), json!([])];
            let known = schema.get("default").filter(|default| !nothing.contains(default));
            assert!(schema.get(KEYWORD).is_none() || known.is_none(), "{at}: a default is no secret");
            for (name, inner) in schema.as_object().into_iter().flatten() {
                look(&format!("{at}/{name}"), inner);
            }
            for inner in schema.as_array().into_iter().flatten() {
                look(at, inner);
            }
        }
        for plugin in plugins::all() {
            for schema in
                [Some(&plugin.schema), plugin.credential_schema.as_ref(), plugin.metadata_schema.as_ref()]
            {
                schema.into_iter().for_each(|schema| look(plugin.name, schema));
            }
        }
    }

    #[test]
    fn a_sealed_text_is_told_from_what_a_client_may_write() {
        let sealed = sealed_value("tps1.aa.bb".into());
        assert_eq!(sealed_text(&sealed), Some("tps1.aa.bb"));
        for other in [json!("tps1.aa.bb"), json!({"$sealed": 1}), json!({"$sealed": "x", "y": 1}), json!({})]
        {
            assert_eq!(sealed_text(&other), None, "{other}");
            assert!(!is_sealed(&other));
        }
        assert!(is_sealed(&json!({"a": [{"b": sealed}]})));
    }
}
