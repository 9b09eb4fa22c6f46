//! `workflow`: what happens to a request is decided by the first rule whose conditions it meets.

use super::{PluginConfig, Settings, limit_conn, limit_count};
use crate::Fault;
use crate::model::Condition;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Configuration.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The first that matches counts.
    pub rules: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Conditions; absent = always.
    pub case: Option<Condition>,
    /// What is done: `["return", {"code": 403}]`, `["limit-count", {…}]`, `["limit-conn", {…}]`.
    #[schemars(length(min = 1))]
    pub actions: Vec<Vec<Value>>,
}

/// What is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// An answer with this status.
    Return(u16),
    /// What this plugin does.
    Plugin(PluginConfig),
}

impl Rule {
    /// The first action, which is the one that is done.
    pub fn action(&self) -> Result<Action, Fault> {
        let action = self.actions.first().map(Vec::as_slice).unwrap_or_default();
        let settings = action.get(1).cloned().unwrap_or(Value::Null);
        match action.first().and_then(Value::as_str) {
            Some("return") => {
                let code = settings.get("code").and_then(Value::as_u64).unwrap_or_default();
                match u16::try_from(code) {
                    Ok(code) if (100..=599).contains(&code) => Ok(Action::Return(code)),
                    _ => Err(Fault::new("actions[0][1].code", "must be a status from 100 to 599")),
                }
            }
            Some("limit-count") => {
                let config: limit_count::Config = typed("limit-count", &settings)?;
                Ok(Action::Plugin(PluginConfig::LimitCount(Arc::new(config))))
            }
            Some("limit-conn") => {
                let config: limit_conn::Config = typed("limit-conn", &settings)?;
                Ok(Action::Plugin(PluginConfig::LimitConn(Arc::new(config))))
            }
            Some(other) => Err(Fault::new(
                "actions[0][0]",
                format!("there is no action {other:?}: give return, limit-count or limit-conn"),
            )),
            None => Err(Fault::new("actions[0]", "must be a list of a name and its settings")),
        }
    }
}

fn typed<T: serde::de::DeserializeOwned + Settings>(plugin: &str, value: &Value) -> Result<T, Fault> {
    let mut faults = Vec::new();
    if let Some(plugin) = super::plugin(plugin) {
        plugin.checker.check("", value, &mut faults);
    }
    let config = if faults.is_empty() { super::read::typed::<T>(value, &mut faults) } else { None };
    match (config, faults.into_iter().next()) {
        (_, Some(fault)) => Err(fault.below("actions[0][1]")),
        (Some(config), None) => Ok(config),
        (None, None) => Err(Fault::new("actions[0][1]", "cannot be read")),
    }
}

impl Settings for Config {
    fn check(&self, faults: &mut Vec<Fault>) {
        for (n, rule) in self.rules.iter().enumerate() {
            let path = format!("rules[{n}]");
            if let Err(fault) = rule.action() {
                faults.push(fault.below(&path));
            }
            if rule.actions.len() > 1 {
                faults.push(Fault::new(format!("{path}.actions[1]"), "is not done: only the first action of a rule is"));
            }
            let action = rule.actions.first().map(Vec::as_slice).unwrap_or_default();
            if action.len() > 2 {
                faults.push(Fault::new(format!("{path}.actions[0][2]"), "is too much: an action is a name and its settings"));
            }
            if action.first().and_then(Value::as_str) == Some("return") {
                let fields = action.get(1).and_then(Value::as_object).into_iter().flatten();
                for (field, _) in fields.filter(|(field, _)| *field != "code") {
                    let path = format!("{path}.actions[0][1].{field}");
                    faults.push(Fault::new(path, "is not done: return takes only code"));
                }
            }
        }
    }
}
