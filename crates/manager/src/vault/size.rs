//! How large an environment may become. Requests have limits of their own, but many small ones add up, and a cell is told
//! of an instance in one message of the bus: with the app's environment and the group's, secrets sealed (4/3 as long).

use super::{VaultError, place_of};
use crate::core::Core;
use std::collections::BTreeMap;
use towpath_types::secret::{Env, EnvValue};

/// Most bytes of an app's environment, and of a group's: each variable as it is in JSON, where some characters take six bytes.
/// Both, as secrets, take 524,288 of a message's 1,000,000 bytes.
pub(crate) const MOST: usize = 192 * 1024;

/// What a variable takes in JSON.
fn bytes(name: &str, value: &str) -> usize {
    // The quotes are counted; a colon and a comma are not.
    name.len() + serde_json::to_string(value).map_or(value.len(), |text| text.len()) + 4
}

/// What variables take, by their names.
pub(crate) struct Sizes(BTreeMap<String, usize>);

impl Sizes {
    /// Of a resource's environment.
    pub(crate) fn of(core: &Core, env: &Env) -> Self {
        let size = |(name, value): (&String, &EnvValue)| {
            let size = match value {
                EnvValue::Plain(value) => bytes(name, value),
                // One that cannot be opened is not sent either, so about right is right enough.
                EnvValue::Secret(secret) => core
                    .open_secret(place_of(&secret.of, name), &secret.sealed)
                    .map_or(name.len() + secret.sealed.as_str().len(), |plain| bytes(name, plain.expose())),
            };
            (name.clone(), size)
        };
        Self(env.iter().map(size).collect())
    }

    /// With other values of some; `None` = removed.
    pub(crate) fn with<'a>(&self, changes: impl Iterator<Item = (&'a String, Option<&'a str>)>) -> Self {
        let mut sizes = self.0.clone();
        for (name, value) in changes {
            match value {
                Some(value) => drop(sizes.insert(name.clone(), bytes(name, value))),
                None => drop(sizes.remove(name)),
            }
        }
        Self(sizes)
    }

    fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Whether it may become `after`: one that is too large already may still become smaller.
    pub(crate) fn may_become(&self, after: &Sizes) -> Result<(), VaultError> {
        let bytes = after.total();
        if bytes > MOST && bytes > self.total() { Err(VaultError::TooLarge { bytes }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_environment_may_become_is_counted_as_json_and_it_may_always_shrink() {
        let sizes = |values: &[(&str, String)]| {
            let values: Vec<(String, String)> =
                values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            Sizes(BTreeMap::new()).with(values.iter().map(|(name, value)| (name, Some(value.as_str()))))
        };
        let none = sizes(&[]);
        assert!(none.may_become(&sizes(&[("A", "x".repeat(MOST - 100))])).is_ok());
        let half = |name| (name, "x".repeat(MOST / 2));
        let error = none.may_become(&sizes(&[half("A"), half("B")])).unwrap_err().to_string();
        assert!(error.contains("environment") && error.contains(&MOST.to_string()), "{error}");
        assert!(
            none.may_become(&sizes(&[("A", "\u{1}".repeat(MOST / 5))])).is_err(),
            "\\u0001 takes six bytes"
        );
        let large = sizes(&[half("A"), half("B"), half("C")]);
        let smaller = large.with([(&"A".to_owned(), None)].into_iter());
        assert!(large.may_become(&smaller).is_ok() && smaller.may_become(&large).is_err());
    }
}
