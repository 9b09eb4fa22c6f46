//! `consumers`, `consumer_groups`, `credentials`.

use super::RawPlugins;
use super::text::Labels;
use crate::Id;
use schemars::JsonSchema;
use serde::Deserialize;

/// Somebody who sends requests and proves it.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Consumer {
    /// The id: the user name.
    pub id: Option<String>,
    /// The name, which is the id.
    #[schemars(length(min = 1, max = 256), regex(pattern = r"^[a-zA-Z0-9_\-]+$"), extend("errorMessage" = "is no user name: give a-z A-Z 0-9 - _"))]
    pub username: String,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// The consumer group that it is in.
    pub group_id: Option<Id>,
    /// Plugins by name; those that authenticate hold the credential here.
    pub plugins: Option<RawPlugins>,
}

/// Plugins that several consumers have in common.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsumerGroup {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Plugins by name, under those of the consumer.
    pub plugins: RawPlugins,
}

/// One more way for a consumer to prove who it is.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The id; the one of the address wins.
    pub id: Option<String>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// What it is for.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// Labels.
    pub labels: Option<Labels>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// One plugin that authenticates.
    #[schemars(extend("maxProperties" = 1))]
    pub plugins: Option<RawPlugins>,
}
