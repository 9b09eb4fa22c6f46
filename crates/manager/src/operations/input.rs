//! What each verb is given. Stored with the operation, so that another manager could go on with it.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use towpath_types::health::HealthCheck;
use towpath_types::secret::{KeyId, Sealed};
use towpath_types::spec::Limits;
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{Digest, Generation, Millis, OperationId};

/// The verb of rotations, which belong to the platform and to no app.
pub(crate) const ROTATION: &str = "rotate-secrets";

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
        env: BTreeMap<String, Option<Given>>,
    },
    /// New instances of the same.
    Restart,
    /// The group goes.
    DeleteGroup,
    /// The app goes, with all that belongs to it.
    Delete,
    /// All secrets are sealed with another key.
    RotateSecrets {
        /// Which one.
        to: KeyId,
    },
}

/// A value that a client gave for a variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Given {
    /// As it is.
    Plain(String),
    /// Sealed until it belongs to an app or a group.
    Secret(GivenSecret),
    /// Given as it is, and sealed all the same until the change is made: by then the variable may be a secret.
    Hidden(GivenHidden),
}

/// A secret value that a client gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenSecret {
    /// The value.
    pub sealed: Sealed,
    /// Equal for equal values of one variable of one app; tells nothing without the keys.
    pub mark: String,
}

/// A value that a client gave as it is, sealed. An earlier build, which does not know of it, cannot take it for a secret.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GivenHidden {
    /// The value.
    pub hidden: Sealed,
    /// As in [`GivenSecret`].
    pub mark: String,
}

impl From<&str> for Given {
    fn from(value: &str) -> Self {
        Self::Plain(value.to_owned())
    }
}

/// What is stored of a request. Values of variables may be secrets: they are stored only until the change is made, and
/// then belong to the app and the group alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Asked {
    /// The verb with its input.
    #[serde(flatten)]
    pub(crate) input: Input,
    /// Generation that the changed app or group has to be at, when the client gave a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expected: Option<Generation>,
    /// Of the whole request, by which a repeated one is known. Absent in operations of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) digest: Option<Digest>,
    /// The values of the variables were taken out; their names are there yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) blank: bool,
}

impl Asked {
    /// Of a new operation.
    pub(crate) fn new(operation: OperationId, input: Input, expected: Option<Generation>) -> Self {
        let digest = Some(digest_of(operation, &input, expected));
        Self { input, expected, digest, blank: false }
    }

    /// Whether it has values that are not to be kept.
    pub(crate) fn has_values(&self) -> bool {
        self.input.env().is_some_and(|env| env.values().any(Option::is_some))
    }

    /// The same without the values of variables.
    pub(crate) fn blanked(&self) -> Self {
        let mut blanked = self.clone();
        if self.has_values() {
            blanked
                .input
                .env_mut()
                .into_iter()
                .flat_map(BTreeMap::values_mut)
                .for_each(|value| *value = None);
            blanked.blank = true;
        }
        blanked
    }

    /// Whether this, which is stored for an operation, was asked for in the same words.
    pub(crate) fn is_same(&self, operation: OperationId, again: &Asked) -> bool {
        match self.digest {
            Some(digest) => digest == digest_of(operation, &again.input, again.expected),
            None => (&self.input, self.expected) == (&again.input, again.expected),
        }
    }
}

/// With the operation's id in it, so that equal secrets of different operations do not look alike.
/// No value is sealed twice alike, so secrets count by their marks.
fn digest_of(operation: OperationId, input: &Input, expected: Option<Generation>) -> Digest {
    let mut input = input.clone();
    for given in input.env_mut().into_iter().flat_map(BTreeMap::values_mut).flatten() {
        match given {
            Given::Secret(secret) => secret.sealed = Sealed::blank(),
            Given::Hidden(value) => value.hidden = Sealed::blank(),
            Given::Plain(_) => {}
        }
    }
    let text = serde_json::to_vec(&(operation, &input, expected)).unwrap_or_default();
    Digest::from_bytes(Sha256::digest(&text).into())
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
    pub env: BTreeMap<String, Option<Given>>,
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
    pub env: BTreeMap<String, Option<Given>>,
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
            Input::RotateSecrets { .. } => ROTATION,
        }
    }

    /// Variables that it sets or removes.
    fn env(&self) -> Option<&BTreeMap<String, Option<Given>>> {
        match self {
            Input::Push(push) => Some(&push.env),
            Input::Scale(change) | Input::Update(change) => Some(&change.env),
            Input::Env { env } => Some(env),
            Input::Rollback { .. }
            | Input::Restart
            | Input::DeleteGroup
            | Input::Delete
            | Input::RotateSecrets { .. } => None,
        }
    }

    fn env_mut(&mut self) -> Option<&mut BTreeMap<String, Option<Given>>> {
        match self {
            Input::Push(push) => Some(&mut push.env),
            Input::Scale(change) | Input::Update(change) => Some(&mut change.env),
            Input::Env { env } => Some(env),
            Input::Rollback { .. }
            | Input::Restart
            | Input::DeleteGroup
            | Input::Delete
            | Input::RotateSecrets { .. } => None,
        }
    }

    /// Whether it decides which release the group runs: of two such operations the later one wins.
    pub fn sets_release(&self) -> bool {
        matches!(self, Input::Push(_) | Input::Rollback { .. } | Input::DeleteGroup | Input::Delete)
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
            Input::RotateSecrets { to: KeyId::new("0011aabb") },
        ] {
            let json = serde_json::to_value(&input).unwrap();
            assert_eq!(json["verb"], input.verb());
            assert_eq!(serde_json::from_value::<Input>(json).unwrap(), input);
            for expected in [None, Some(Generation(7))] {
                let asked = Asked::new(OperationId::mint(1, [1; 10]), input.clone(), expected);
                for asked in [asked.clone(), asked.blanked(), Asked { digest: None, ..asked }] {
                    let json = serde_json::to_value(&asked).unwrap();
                    assert_eq!(json["verb"], input.verb());
                    assert_eq!(serde_json::from_value::<Asked>(json).unwrap(), asked);
                }
            }
        }
    }

    #[test]
    fn a_request_is_known_again_without_its_values() {
        let id = |n| OperationId::mint(n, [1; 10]);
        let env = |value: &str| Input::Env { env: [("A".to_owned(), Some(value.into()))].into() };
        let first = Asked::new(id(1), env("secret"), None);
        let stored = first.blanked();
        let text = serde_json::to_string(&stored).unwrap();
        assert!(stored.blank && !text.contains("secret") && text.contains("\"A\""), "{text}");
        assert!(stored.is_same(id(1), &Asked::new(id(2), env("secret"), None)));
        assert!(!stored.is_same(id(1), &Asked::new(id(2), env("other"), None)));
        assert!(!stored.is_same(id(1), &Asked::new(id(2), env("secret"), Some(Generation(1)))));
        assert_ne!(first.digest, Asked::new(id(2), env("secret"), None).digest);
        let secret = |body: &str, mark: &str| {
            let sealed = format!("tps1.00.{body}").parse().unwrap();
            let given = Given::Secret(GivenSecret { sealed, mark: mark.into() });
            Input::Env { env: [("A".to_owned(), Some(given))].into() }
        };
        let hidden = |body: &str, mark: &str| {
            let hidden = format!("tps1.00.{body}").parse().unwrap();
            let given = Given::Hidden(GivenHidden { hidden, mark: mark.into() });
            Input::Env { env: [("A".to_owned(), Some(given))].into() }
        };
        let json = serde_json::to_value(hidden("x", "m")).unwrap();
        assert_eq!(serde_json::from_value::<Input>(json).unwrap(), hidden("x", "m"));
        let stored = Asked::new(id(1), hidden("x", "m"), None);
        assert!(stored.is_same(id(1), &Asked::new(id(2), hidden("y", "m"), None)));
        assert!(!stored.is_same(id(1), &Asked::new(id(2), hidden("x", "n"), None)));
        let stored = Asked::new(id(1), secret("x", "m"), None).blanked();
        assert!(stored.is_same(id(1), &Asked::new(id(2), secret("y", "m"), None)), "sealed anew");
        assert!(!stored.is_same(id(1), &Asked::new(id(2), secret("x", "n"), None)), "another value");
        let earlier = Asked { digest: None, ..first };
        assert!(earlier.is_same(id(1), &Asked::new(id(2), env("secret"), None)));
    }
}
