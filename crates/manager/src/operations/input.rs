//! What each verb is given. Stored with the operation, so that another manager could go on with it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towpath_types::health::HealthCheck;
use towpath_types::spec::Limits;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{Digest, Generation, Millis};

/// A verb with its input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum Input {
    /// Builds and rolls out.
    Push(Box<Push>),
    /// Rolls an earlier release out.
    Rollback {
        /// Which one.
        release: Digest,
    },
    /// Another count, or stopped.
    Scale(GroupChange),
    /// Other settings of a group.
    Update(GroupChange),
    /// Other environment of the whole app.
    Env {
        /// New values; `null` removes.
        env: BTreeMap<String, Option<String>>,
    },
    /// New instances of the same.
    Restart,
    /// The group goes.
    DeleteGroup,
    /// The app goes, with all that belongs to it.
    Delete,
}

/// What is stored of a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The verb with its input.
    #[serde(flatten)]
    pub(crate) input: Input,
    /// Generation that the changed app or group has to be at, when the client gave a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<Generation>,
}

/// Input of a push.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Push {
    /// The uploaded source.
    pub source: Option<Digest>,
    /// Wanted count; `None` = as it is, 1 for a new group.
    pub instances: Option<u32>,
    /// Limits; each field that is there replaces the group's.
    pub limits: Limits,
    /// Environment to merge into the group's; `null` removes.
    pub env: BTreeMap<String, Option<String>>,
    /// Recipe; `None` = detect.
    pub builder: Option<String>,
    /// Start command; `None` = the recipe's.
    pub command: Option<String>,
    /// Health check; `None` = the recipe's.
    pub health: Option<HealthCheck>,
    /// Protocol.
    pub protocol: Protocol,
    /// Grace from SIGTERM to SIGKILL.
    pub grace: Option<Millis>,
    /// Further routes, as host and path.
    pub routes: Vec<(String, String)>,
    /// Free text.
    pub note: String,
    /// How gateways treat the app; `None` = as it is.
    pub upstream: Option<UpstreamSpec>,
}

/// Changes of a group's settings; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct GroupChange {
    /// Count.
    pub count: Option<u32>,
    /// Stopped or not.
    pub stopped: Option<bool>,
    /// Environment to merge; `null` removes.
    pub env: BTreeMap<String, Option<String>>,
    /// Limits; each field that is there replaces the group's.
    pub limits: Limits,
    /// `Some(None)` = back to the release's own.
    #[serde(with = "double")]
    pub health: Option<Option<HealthCheck>>,
}

impl Input {
    /// The verb as clients see it.
    pub fn verb(&self) -> &'static str {
        match self {
            Input::Push(_) => "push",
            Input::Rollback { .. } => "rollback",
            Input::Scale(_) => "scale",
            Input::Update(_) => "update",
            Input::Env { .. } => "env",
            Input::Restart => "restart",
            Input::DeleteGroup => "delete-group",
            Input::Delete => "delete",
        }
    }

    /// Whether it decides which release the group runs: of two such operations the later one wins.
    pub fn sets_release(&self) -> bool {
        matches!(self, Input::Push(_) | Input::Rollback { .. } | Input::DeleteGroup | Input::Delete)
    }
}

/// Sets and removes variables.
pub(crate) fn merge_env(env: &mut BTreeMap<String, String>, changes: &BTreeMap<String, Option<String>>) {
    for (name, value) in changes {
        match value {
            Some(value) => drop(env.insert(name.clone(), value.clone())),
            None => drop(env.remove(name)),
        }
    }
}

/// Takes over the limits that are given.
pub(crate) fn merge_limits(limits: &mut Limits, changes: &Limits) {
    limits.memory = changes.memory.or(limits.memory);
    limits.disk = changes.disk.or(limits.disk);
    limits.files = changes.files.or(limits.files);
    limits.processes = changes.processes.or(limits.processes);
}

/// `Option<Option<T>>` in JSON as absent or a list of none or one, which survives a round trip.
mod double {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(|inner| inner.iter().collect::<Vec<_>>()).serialize(serializer)
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Ok(Option::<Vec<T>>::deserialize(deserializer)?.map(|list| list.into_iter().next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_survive_the_store() {
        for input in [
            Input::Push(Box::new(Push { instances: Some(2), ..Push::default() })),
            Input::Update(GroupChange { health: Some(None), ..GroupChange::default() }),
            Input::Update(GroupChange {
                health: Some(Some(HealthCheck::default())),
                ..GroupChange::default()
            }),
            Input::Scale(GroupChange { count: Some(0), ..GroupChange::default() }),
            Input::Env { env: [("A".to_owned(), None)].into() },
            Input::Restart,
        ] {
            let json = serde_json::to_value(&input).unwrap();
            assert_eq!(json["verb"], input.verb());
            assert_eq!(serde_json::from_value::<Input>(json).unwrap(), input);
            for expected in [None, Some(Generation(7))] {
                let asked = Asked { input: input.clone(), expected };
                let json = serde_json::to_value(&asked).unwrap();
                assert_eq!(json["verb"], input.verb());
                assert_eq!(serde_json::from_value::<Asked>(json).unwrap(), asked);
            }
        }
    }
}
