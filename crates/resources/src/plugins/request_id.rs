//! `request-id`: a request gets an id that it keeps.

use super::Settings;
use super::values::check_header;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Header with the id.
    #[schemars(length(min = 1))]
    pub header_name: String,
    /// Whether the response has it too.
    pub include_in_response: bool,
    /// How an id is made.
    pub algorithm: Algorithm,
    /// For `range_id`.
    pub range_id: RangeId,
}

/// How an id is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// UUID version 4.
    #[default]
    Uuid,
    /// 21 characters of 64.
    Nanoid,
    /// Characters of a set.
    RangeId,
    /// Sorts by time, 27 characters.
    Ksuid,
    /// UUID version 7.
    Uuidv7,
}

/// Ids of characters of a set.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RangeId {
    /// How many.
    #[schemars(range(min = 6, max = 1024))]
    pub length: u32,
    /// Of which.
    #[schemars(length(min = 6))]
    pub char_set: String,
}

impl Default for RangeId {
    fn default() -> Self {
        Self { length: 16, char_set: "abcdefghijklmnopqrstuvwxyzABCDEFGHIGKLMNOPQRSTUVWXYZ0123456789".to_owned() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            header_name: "X-Request-Id".to_owned(),
            include_in_response: true,
            algorithm: Algorithm::default(),
            range_id: RangeId::default(),
        }
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        check_header("header_name", &self.header_name, &[], faults);
    }
}
