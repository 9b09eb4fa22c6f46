//! Variables as clients send and see them: secret ones have names here, never values.

use super::ApiState;
use super::auth::Caller;
use super::body::Checked;
use super::problem::{FieldError, Outcome};
use super::validate;
use super::view::sees_env;
use crate::operations::{Given, GivenHidden, GivenSecret};
use crate::vault::{Sizes, given_place};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use towpath_secrets::Secret;
use towpath_types::AppRef;
use towpath_types::secret::{Env, EnvValue, KeyId};

/// Variables to set; `null` removes one. A value is a string, or `{"secret": "…"}`, which is sealed and never shown again.
/// A variable that is secret stays secret when a string is given.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, VariableValue>)]
pub(crate) struct EnvBody(pub(crate) BTreeMap<String, Option<GivenBody>>);

/// For the API's documents, which show what a body is when nothing is sent: names alone.
impl Serialize for EnvBody {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.keys().map(|name| (name, ())))
    }
}

/// A value for a variable, as the API's documents describe it.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a description")]
pub(crate) enum VariableValue {
    /// As it is.
    Plain(String),
    /// To be sealed, and never shown again.
    Secret {
        /// The value.
        secret: String,
    },
    /// Removed.
    Removed,
}

impl Checked for EnvBody {
    fn check(&self, errors: &mut Vec<FieldError>) {
        check("", &self.0, errors);
    }
}

/// Names and sizes; and no secrets for builds, since what a build sees ends in its output and its artifact.
pub(crate) fn check(field: &str, env: &BTreeMap<String, Option<GivenBody>>, errors: &mut Vec<FieldError>) {
    validate::env(field, env, errors);
    for (name, value) in env {
        if matches!(value, Some(GivenBody::Secret(_))) && name.starts_with(validate::BUILD_PREFIX) {
            let place = if field.is_empty() { name.clone() } else { format!("{field}.{name}") };
            errors.push(FieldError::new(
                place,
                "builds see BUILD_* variables and may write them into what they make, so they cannot be secret",
            ));
        }
    }
}

/// A value for a variable.
#[derive(Debug)]
pub(crate) enum GivenBody {
    /// As it is.
    Plain(String),
    /// To be sealed.
    Secret(Secret),
}

impl AsRef<str> for GivenBody {
    fn as_ref(&self) -> &str {
        match self {
            Self::Plain(value) => value,
            Self::Secret(value) => value.expose(),
        }
    }
}

impl<'de> Deserialize<'de> for GivenBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(GivenVisitor)
    }
}

struct GivenVisitor;

/// What is wrong is never told with the value.
const EXPECTED: &str = "expected a string, null, or {\"secret\": \"…\"} with a string in it";

impl<'de> Visitor<'de> for GivenVisitor {
    type Value = GivenBody;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, null, or {\"secret\": \"…\"}")
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<GivenBody, E> {
        Ok(GivenBody::Plain(value.to_owned()))
    }

    fn visit_string<E: serde::de::Error>(self, value: String) -> Result<GivenBody, E> {
        Ok(GivenBody::Plain(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<GivenBody, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name != "secret" || found.is_some() {
                return Err(A::Error::custom(EXPECTED));
            }
            found = Some(map.next_value::<Secret>().map_err(|_| A::Error::custom(EXPECTED))?);
        }
        found.map(GivenBody::Secret).ok_or_else(|| A::Error::custom(EXPECTED))
    }
}

/// What is told of a secret variable.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[schema(as = SecretVariable)]
pub(crate) struct SecretView {
    /// Always `null`: nobody is shown it.
    value: Option<String>,
    /// Always true.
    secret: bool,
    /// The key that it is sealed with.
    key: Option<KeyId>,
    /// When it was set, store clock, milliseconds since 1970.
    set_ms: u64,
}

/// Secret variables by name.
pub(crate) type Secrets = BTreeMap<String, SecretView>;

/// Plain variables with their values, and secret ones without.
pub(crate) fn shown(env: &Env) -> (BTreeMap<String, String>, Secrets) {
    let plain = env.iter().filter_map(|(name, value)| Some((name.clone(), value.plain()?.to_owned())));
    let secret = env.iter().filter_map(|(name, value)| {
        let secret = value.secret()?;
        let view =
            SecretView { value: None, secret: true, key: secret.sealed.key_id(), set_ms: secret.set_ms };
        Some((name.clone(), view))
    });
    (plain.collect(), secret.collect())
}

/// What a caller sees of an environment.
pub(crate) fn visible(env: &Env, caller: &Caller) -> (Option<BTreeMap<String, String>>, Secrets) {
    if !sees_env(caller) {
        return (None, Secrets::new());
    }
    let (plain, secrets) = shown(env);
    (Some(plain), secrets)
}

/// An environment that was written anew as a whole: plain variables as they were sent, secrets as they are.
pub(crate) fn replaced(present: Option<&Env>, sent: BTreeMap<String, String>) -> Outcome<Env> {
    let mut env: Env = present
        .into_iter()
        .flatten()
        .filter(|(_, value)| value.secret().is_some())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    for (name, value) in sent {
        if env.contains_key(&name) {
            let what = "is a secret, which this cannot change; PATCH /v1/apps/{app}/env can";
            return Err(super::problem::Problem::field(format!("env.{name}"), what));
        }
        env.insert(name, EnvValue::Plain(value));
    }
    Ok(env)
}

impl ApiState {
    /// Whether an environment is not too large after a change.
    pub(crate) fn has_room(&self, before: Option<&Env>, after: &Env) -> Outcome<()> {
        let before = Sizes::of(&self.core, before.unwrap_or(&Env::new()));
        Ok(before.may_become(&Sizes::of(&self.core, after))?)
    }

    /// What was sent, with secrets sealed: all that are said to be, and all that are already.
    pub(crate) fn given(
        &self,
        app: &AppRef,
        present: Option<&Env>,
        body: EnvBody,
    ) -> Outcome<BTreeMap<String, Option<Given>>> {
        // It is decided when the change is made, but here a client is told at once.
        let before = Sizes::of(&self.core, present.unwrap_or(&Env::new()));
        let values = body.0.iter().map(|(name, value)| (name, value.as_ref().map(AsRef::as_ref)));
        before.may_become(&before.with(values))?;
        let is_secret =
            |name: &str| present.is_some_and(|env| env.get(name).is_some_and(|v| v.secret().is_some()));
        let can_seal = self.core.sealing_trouble().is_none();
        let app = app.to_string();
        let given = |name: &str, value: GivenBody| -> Outcome<Given> {
            // What is given as it is may come to a variable that is a secret by then, so it is no more to be read than that one.
            // Builds' own variables cannot become secrets.
            let (plain, hidden) = match value {
                GivenBody::Plain(value) if is_secret(name) => (Secret::new(value), false),
                GivenBody::Plain(value) if can_seal && !name.starts_with(validate::BUILD_PREFIX) => {
                    (Secret::new(value), true)
                }
                GivenBody::Plain(value) => return Ok(Given::Plain(value)),
                GivenBody::Secret(value) => (value, false),
            };
            let sealed = self.core.seal_secret(given_place(&app, name), &plain)?;
            let kind = if hidden { &b"hidden"[..] } else { &b"given"[..] };
            let parts = [kind, app.as_bytes(), name.as_bytes(), plain.expose().as_bytes()];
            let mark = self.core.keyed_digest(&parts)?;
            Ok(match hidden {
                true => Given::Hidden(GivenHidden { hidden: sealed, mark }),
                false => Given::Secret(GivenSecret { sealed, mark }),
            })
        };
        let sealed = body.0.into_iter().map(|(name, value)| {
            let value = value.map(|value| given(&name, value)).transpose()?;
            Ok::<_, super::problem::Problem>((name, value))
        });
        sealed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::body::read_checked;

    #[test]
    fn errors_about_values_do_not_tell_them() {
        for body in [
            r#"{"A": {"secret": 98765}}"#,
            r#"{"A": {"secret": ["hunter2"]}}"#,
            r#"{"A": {"secret": "hunter2", "x": 1}}"#,
            r#"{"A": {"Secret": "hunter2"}}"#,
            r#"{"A": {"secret": "hunter2\u0000"}}"#,
            r#"{"BUILD_A": {"secret": "hunter2"}}"#,
            r#"{"PORT": {"secret": "hunter2"}}"#,
        ] {
            let problem = format!("{:?}", read_checked::<EnvBody>(body.as_bytes()).unwrap_err());
            assert!(!problem.contains("hunter2") && !problem.contains("98765"), "{problem}");
            assert!(problem.contains("A\"") || problem.contains("PORT"), "{problem}");
        }
        let read: EnvBody = read_checked(br#"{"A": "1", "B": null, "C": {"secret": "hunter2"}}"#).unwrap();
        assert!(matches!(&read.0["A"], Some(GivenBody::Plain(one)) if one == "1") && read.0["B"].is_none());
        assert!(!format!("{read:?}").contains("hunter2"));
    }
}
