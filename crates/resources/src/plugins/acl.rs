//! `acl`: labels say who may come, those of the consumer or claims of a user whom a provider knows.

use super::Settings;
use super::values::check_patterns;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("anyOf" = json!([{"required": ["allow_labels"]}, {"required": ["deny_labels"]}])))]
pub struct Config {
    /// Only who has one of these values of one of these labels may come.
    #[schemars(extend("minProperties" = 1))]
    pub allow_labels: Option<BTreeMap<String, Vec<String>>>,
    /// Who has one of these may not come, whatever else he has.
    #[schemars(extend("minProperties" = 1))]
    pub deny_labels: Option<BTreeMap<String, Vec<String>>>,
    /// Status of a refusal.
    #[serde(default = "forbidden")]
    #[schemars(range(min = 200, max = 599))]
    pub rejected_code: u16,
    /// Message of a refusal.
    pub rejected_msg: Option<String>,
    /// Where the labels of a user whom a provider knows stand: a field, `$.a.b`, or `$..name`.
    #[serde(default = "groups")]
    #[schemars(length(min = 1))]
    pub external_user_label_field: String,
    /// The label that they are; absent = as the field is written.
    #[schemars(length(min = 1))]
    pub external_user_label_field_key: Option<String>,
    /// How the field's value is read; absent = as it looks.
    pub external_user_label_field_parser: Option<Parser>,
    /// What separates values in `segmented_text`: a regular expression.
    #[schemars(length(min = 1))]
    pub external_user_label_field_separator: Option<String>,
}

/// How a value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Parser {
    /// Text with separators.
    SegmentedText,
    /// Text that is a JSON array.
    Json,
    /// A list.
    Table,
}

fn forbidden() -> u16 {
    403
}

fn groups() -> String {
    "groups".to_owned()
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        if self.allow_labels.is_none() && self.deny_labels.is_none() {
            faults.push(Fault::new("allow_labels", "is missing: give allow_labels or deny_labels"));
        }
        for (field, labels) in [("allow_labels", &self.allow_labels), ("deny_labels", &self.deny_labels)] {
            for (label, values) in labels.iter().flatten() {
                if values.is_empty() {
                    faults.push(Fault::new(format!("{field}.{label}"), "has no values"));
                }
            }
        }
        let separator = self.external_user_label_field_separator.as_ref();
        if self.external_user_label_field_parser == Some(Parser::SegmentedText) && separator.is_none() {
            faults.push(Fault::new("external_user_label_field_separator", "is missing: the parser is segmented_text"));
        }
        check_patterns("external_user_label_field_separator", separator, faults);
        let field = &self.external_user_label_field;
        let is_path = |path: &str| !path.is_empty() && !path.contains(['[', ']', '*', '?', '(', '@']);
        let good = match field.strip_prefix('$') {
            None => true,
            Some(rest) => match rest.strip_prefix("..") {
                Some(name) => is_path(name) && !name.contains('.'),
                None => rest.strip_prefix('.').is_some_and(is_path),
            },
        };
        if !good {
            faults.push(Fault::new("external_user_label_field", format!("{field:?} is not supported: give a field, $.a.b or $..name")));
        }
    }
}
