//! `plugin_configs`, `global_rules`.

use super::RawPlugins;
use super::text::Labels;
use crate::Id;
use schemars::JsonSchema;
use serde::Deserialize;

/// Plugins that several routes have in common.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginConfig {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// A name for people.
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
    /// Plugins by name, under those of routes.
    pub plugins: RawPlugins,
}

/// Plugins for every request, before those of routes.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GlobalRule {
    /// The id; the one of the address wins.
    pub id: Option<Id>,
    /// When it was made, in seconds since 1970.
    pub create_time: Option<i64>,
    /// When it was changed last, in seconds since 1970.
    pub update_time: Option<i64>,
    /// Plugins by name.
    pub plugins: RawPlugins,
}
