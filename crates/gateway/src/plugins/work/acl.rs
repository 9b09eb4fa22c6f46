//! `acl`: labels say who may come, those of the consumer or claims of a user whom a provider knows.

use crate::plugins::{Answer, Phase, Phases, Plugin, Request, Step};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use towpath_resources::plugins::acl::{Config, Parser};

/// See the module.
pub(in crate::plugins) struct Acl {
    config: Arc<Config>,
    separator: Option<regex::bytes::Regex>,
}

type Labels = BTreeMap<String, Vec<String>>;

impl Acl {
    pub(in crate::plugins) fn new(config: &Arc<Config>) -> Self {
        let separator = config.external_user_label_field_separator.as_ref();
        let separator = separator
            .and_then(|text| towpath_route::vars::pattern(&format!(r"\s*(?:{text})\s*"), false).ok());
        Self { config: config.clone(), separator }
    }

    /// The values of a label that a user has, by the parser where one is given, else as they look.
    fn values(&self, value: &Value, parser: Option<Parser>) -> Vec<String> {
        match (parser, value) {
            (None | Some(Parser::Table), Value::Array(list)) => list.iter().map(text).collect(),
            (None | Some(Parser::Json), Value::String(list)) if list.starts_with('[') => {
                let list: Vec<Value> = serde_json::from_str(list).unwrap_or_default();
                list.iter().map(text).collect()
            }
            (None, Value::String(list)) => list.split(',').map(|one| one.trim().to_owned()).collect(),
            (Some(Parser::SegmentedText), Value::String(list)) => match &self.separator {
                Some(separator) => separator
                    .split(list.as_bytes())
                    .map(|one| String::from_utf8_lossy(one).into_owned())
                    .collect(),
                None => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// The labels of a user whom a provider knows.
    fn of_user(&self, user: &Value) -> Labels {
        let field = &self.config.external_user_label_field;
        let found = find(user, field);
        let parser = self.config.external_user_label_field_parser;
        let mut values = Vec::new();
        for one in &found {
            // Of several those that are lists already are not parsed.
            let parser = parser.filter(|_| found.len() == 1 || one.is_string());
            values.extend(self.values(one, parser));
        }
        let key = self.config.external_user_label_field_key.as_ref().unwrap_or(field);
        BTreeMap::from([(key.clone(), values)])
    }

    fn may_come(&self, labels: &Labels) -> bool {
        let has = |wanted: &Labels| {
            wanted.iter().any(|(label, values)| {
                labels.get(label).is_some_and(|own| values.iter().any(|value| own.contains(value)))
            })
        };
        !self.config.deny_labels.as_ref().is_some_and(has)
            && self.config.allow_labels.as_ref().is_none_or(has)
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// What stands at a field, at `$.a.b`, or anywhere under a name (`$..name`).
fn find<'a>(value: &'a Value, field: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    if let Some(name) = field.strip_prefix("$..") {
        find_all(value, name, &mut found);
    } else if let Some(path) = field.strip_prefix("$.") {
        found.extend(path.split('.').try_fold(value, |value, name| value.get(name)));
    } else {
        found.extend(value.get(field));
    }
    found
}

fn find_all<'a>(value: &'a Value, name: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(name));
            fields.values().for_each(|value| find_all(value, name, found));
        }
        Value::Array(list) => list.iter().for_each(|value| find_all(value, name, found)),
        _ => {}
    }
}

impl Plugin for Acl {
    fn phases(&self) -> Phases {
        Phases::of([Phase::Access])
    }

    fn access(&self, request: &mut Request<'_>) -> Step {
        let running = request.running();
        let labels = match (&running.consumer, &running.user) {
            (Some(consumer), _) => consumer
                .labels
                .iter()
                .map(|(name, value)| (name.clone(), self.values(&Value::String(value.clone()), None)))
                .collect(),
            (None, Some(user)) => self.of_user(user),
            (None, None) => return Step::answer(Answer::message(401, "Missing authentication.")),
        };
        if self.may_come(&labels) {
            return Step::Next;
        }
        let message = self.config.rejected_msg.as_deref().unwrap_or("The consumer is forbidden.");
        Step::answer(Answer::message(self.config.rejected_code, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn acl(config: Value) -> Acl {
        Acl::new(&Arc::new(serde_json::from_value(config).unwrap()))
    }

    #[test]
    fn values_are_read_as_they_look_or_as_the_parser_says() {
        let plain = acl(json!({"allow_labels": {"team": ["a"]}}));
        for (value, expected) in [
            (json!("a"), vec!["a"]),
            (json!("a, b"), vec!["a", "b"]),
            (json!("[\"a\", \"b\"]"), vec!["a", "b"]),
            (json!(["a"]), vec!["a"]),
            (json!(7), vec![]),
        ] {
            assert_eq!(plain.values(&value, None), expected, "{value}");
        }
        let segmented = acl(json!({"deny_labels": {"g": ["b"]}, "external_user_label_field": "$..g",
            "external_user_label_field_key": "g", "external_user_label_field_parser": "segmented_text",
            "external_user_label_field_separator": "\\|"}));
        assert!(!segmented.may_come(&segmented.of_user(&json!({"x": {"g": "a | b"}}))));
        assert!(!segmented.may_come(&segmented.of_user(&json!({"g": ["b"], "x": [{"g": "c"}]}))));
        assert!(segmented.may_come(&segmented.of_user(&json!({"x": {"g": "a,b"}}))));
        assert!(segmented.may_come(&segmented.of_user(&json!("b"))));
    }

    #[test]
    fn who_is_denied_is_not_allowed() {
        let acl =
            acl(json!({"allow_labels": {"team": ["a"], "role": ["r"]}, "deny_labels": {"team": ["x"]}}));
        let may = |labels: Value| {
            let labels: Labels = serde_json::from_value(labels).unwrap();
            acl.may_come(&labels)
        };
        assert!(
            may(json!({"team": ["b"], "role": ["r"]})) && !may(json!({"team": ["b"]})) && !may(json!({}))
        );
        assert!(!may(json!({"team": ["a", "x"]})));
    }
}
