//! Environment variables that look like ours and mean nothing: most often a slip of the fingers.

use super::KEYS;
use crate::suggest::did_you_mean;

/// What the command line reads besides the settings of roles, and what instances get, and hand on to what they start.
const OTHERS: &[&str] = &[
    "TOWPATH_API",
    "TOWPATH_TOKEN",
    "TOWPATH_TOKEN_FILE",
    "TOWPATH_CA",
    "TOWPATH_CONFIG",
    "TOWPATH_ORG",
    "TOWPATH_SPACE",
    "TOWPATH_APP",
    "TOWPATH_LANE",
    "TOWPATH_INSTANCE",
    "TOWPATH_INSTANCE_INDEX",
    "TOWPATH_RELEASE",
    "TOWPATH_GATEWAY",
    "TOWPATH_DOMAIN",
    "TOWPATH_MEMORY",
    "TOWPATH_BIN",
    "TOWPATH_BUILD",
    "TOWPATH_JAVA",
];
/// Begins the names of variables that are for tests.
const TESTS: &str = "TOWPATH_TEST_";

/// A line for each variable of ours that means nothing.
pub(crate) fn find_strangers<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let known = || KEYS.iter().map(|key| key.env).chain(OTHERS.iter().copied());
    let ours = |name: &&str| name.starts_with("TOWPATH_") && !name.starts_with(TESTS);
    let mut strangers: Vec<&str> =
        names.into_iter().filter(ours).filter(|name| known().all(|known| known != *name)).collect();
    strangers.sort_unstable();
    let line = |name: &str| {
        let hint = did_you_mean(name, known()).map_or_else(String::new, |hint| format!("; {hint}"));
        format!("the variable {name} means nothing to Towpath{hint}")
    };
    strangers.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_means_nothing_is_named_with_the_nearest_that_does() {
        let found = find_strangers([
            "PATH",
            "TOWPATH_GATEWAY_LISTN",
            "TOWPATH_GATEWAY_LISTEN",
            "TOWPATH_API",
            "TOWPATH_TEST_OFFLINE",
            "TOWPATH_ZZZZZZZZZZZZ",
            "TOWPATHS",
        ]);
        assert_eq!(
            found,
            [
                "the variable TOWPATH_GATEWAY_LISTN means nothing to Towpath; did you mean \"TOWPATH_GATEWAY_LISTEN\"?",
                "the variable TOWPATH_ZZZZZZZZZZZZ means nothing to Towpath",
            ]
        );
    }
}
