//! Setting and removing variables, secret ones among them.

use super::{Sizes, VaultError, place_of};
use crate::core::Core;
use crate::operations::Given;
use std::collections::BTreeMap;
use towpath_secrets::{Place, Secret};
use towpath_types::AppRef;
use towpath_types::secret::{Env, EnvValue};

/// Where what a client gives is sealed for, until it belongs to a resource. `app`: the app's text.
pub(crate) fn given_place<'a>(app: &'a str, name: &'a str) -> Place<'a> {
    Place { kind: "given", id: app, name }
}

/// Sets and removes variables of a resource (`of`: as in [`towpath_types::secret::SecretVar::of`]).
///
/// What is secret stays secret, whatever sort of value is given, until it is removed. A secret that is set to the value that
/// it has keeps its version, so that nothing is replaced for it. What becomes too large is refused.
pub(crate) fn merge_env(
    core: &Core,
    env: &mut Env,
    of: &str,
    app: &AppRef,
    changes: &BTreeMap<String, Option<Given>>,
) -> Result<(), VaultError> {
    if changes.is_empty() {
        return Ok(());
    }
    let before = Sizes::of(core, env);
    for (name, change) in changes {
        let present = env.get(name).and_then(EnvValue::secret);
        let plain = match (change, present) {
            (None, _) => {
                env.remove(name);
                continue;
            }
            (Some(Given::Plain(value)), None) => {
                env.insert(name.clone(), EnvValue::Plain(value.clone()));
                continue;
            }
            (Some(Given::Plain(value)), Some(_)) => Secret::new(value.clone()),
            (Some(Given::Secret(given)), _) => {
                core.open_secret(given_place(&app.to_string(), name), &given.sealed)?
            }
            (Some(Given::Hidden(given)), present) => {
                let plain = core.open_secret(given_place(&app.to_string(), name), &given.hidden)?;
                if present.is_none() {
                    env.insert(name.clone(), EnvValue::Plain(plain.expose().to_owned()));
                    continue;
                }
                plain
            }
        };
        let same = |present: &towpath_types::secret::SecretVar| {
            present.of == of
                && core.open_secret(place_of(of, name), &present.sealed).is_ok_and(|present| present == plain)
        };
        if !present.is_some_and(same) {
            env.insert(name.clone(), EnvValue::Secret(core.seal_variable(of, name, &plain)?));
        }
    }
    before.may_become(&Sizes::of(core, env))
}
