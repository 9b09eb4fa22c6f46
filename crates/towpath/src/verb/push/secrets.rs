//! The secrets that a manifest requires: they are there before anything is uploaded, or the push says which are not.

use super::target::Target;
use crate::api::view::at;
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use serde_json::Value;
use std::collections::BTreeSet;

/// Fails when a secret that the manifest requires is not set, for the app or for the lane.
pub(super) async fn check(context: &Context, target: &Target) -> Outcome {
    let required = &target.manifest.secrets;
    if required.is_empty() {
        return Ok(());
    }
    let (app, lane) = (&target.app, &target.lane);
    let mut found = Found::default();
    let there = context.api.exists(&format!("/v1/apps/{app}")).await?;
    for path in [format!("/v1/apps/{app}/env"), format!("/v1/apps/{app}/env?lane={lane}")] {
        if !there {
            break;
        }
        match context.api.get(&path).await {
            Ok(env) => found.add(&env),
            // Nothing is in the lane yet.
            Err(failure) if failure.exit == Exit::NotFound => {}
            Err(failure) => return Err(failure),
        }
    }
    match found.wrong(required, app.as_str(), there) {
        Some((what, hint)) => Err(Failure::hinted(Exit::Usage, what, hint)),
        None => Ok(()),
    }
}

#[derive(Debug, Default)]
struct Found {
    secret: BTreeSet<String>,
    plain: BTreeSet<String>,
}

impl Found {
    fn add(&mut self, env: &Value) {
        let names =
            |field| at(env, field).and_then(Value::as_object).into_iter().flat_map(|all| all.keys().cloned());
        self.secret.extend(names("secrets"));
        self.plain.extend(names("env"));
    }

    /// What is wrong, and the command that makes it right.
    fn wrong(&self, required: &BTreeSet<String>, app: &str, there: bool) -> Option<(String, String)> {
        let missing: Vec<&str> =
            required.iter().filter(|name| !self.secret.contains(*name)).map(String::as_str).collect();
        let first = missing.first()?;
        let create = if there { "" } else { " --create" };
        let what = match missing.as_slice() {
            [only] if self.plain.contains(*only) => {
                format!("{only} of {app} is set, but not as a secret, which the manifest requires")
            }
            [only] => format!("secret {only} of {app} is not set, and the manifest requires it"),
            all => format!("secrets {} of {app} are not set, and the manifest requires them", all.join(", ")),
        };
        let each = if missing.len() > 1 { "for each of them: " } else { "" };
        Some((what, format!("{each}towpath secrets set {app} {first}{create}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_said_with_the_command_that_sets_it() {
        let required: BTreeSet<String> = ["A", "B"].map(str::to_owned).into();
        let mut found = Found::default();
        let (what, hint) = found.wrong(&required, "shop", false).unwrap();
        assert_eq!(what, "secrets A, B of shop are not set, and the manifest requires them");
        assert_eq!(hint, "for each of them: towpath secrets set shop A --create");
        found.add(&json!({"env": {"B": "1"}, "secrets": {"A": {"secret": true}}}));
        let (what, hint) = found.wrong(&required, "shop", true).unwrap();
        assert_eq!(what, "B of shop is set, but not as a secret, which the manifest requires");
        assert_eq!(hint, "towpath secrets set shop B");
        found.add(&json!({"secrets": {"B": {"secret": true}}}));
        assert_eq!(found.wrong(&required, "shop", true), None);
    }
}
