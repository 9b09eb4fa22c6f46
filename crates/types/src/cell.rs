//! What is wanted of a cell.

use serde::{Deserialize, Serialize};

/// Whether a cell gets instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// It gets new instances.
    #[default]
    Open,
    /// It gets none; what it has stays.
    Cordoned,
    /// It gets none, and what it has is replaced elsewhere.
    Draining,
}

impl Scheduling {
    /// The stable text form.
    pub fn as_str(self) -> &'static str {
        match self {
            Scheduling::Open => "open",
            Scheduling::Cordoned => "cordoned",
            Scheduling::Draining => "draining",
        }
    }
}

/// Spec of a cell: what an operator wants of it. A cell that nobody ever said anything about has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema, Default)]
#[serde(default)]
pub struct CellSpec {
    /// Whether it gets instances.
    pub scheduling: Scheduling,
    /// Memory that may be promised to its instances, as a multiple of what it has; absent = the platform's factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overcommit: Option<f64>,
    /// For people: why.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// Name of the token by which it was changed last.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// When, milliseconds since 1970.
    pub since_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_forms_are_the_stored_ones_and_later_fields_are_no_reason_not_to_read() {
        for scheduling in [Scheduling::Open, Scheduling::Cordoned, Scheduling::Draining] {
            assert_eq!(serde_json::to_value(scheduling).unwrap(), scheduling.as_str());
        }
        let read: CellSpec = serde_json::from_str(r#"{"scheduling": "draining", "later": 1}"#).unwrap();
        assert_eq!(read, CellSpec { scheduling: Scheduling::Draining, ..CellSpec::default() });
    }
}
