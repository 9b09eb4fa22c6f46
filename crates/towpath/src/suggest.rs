//! "Did you mean": the nearest of a set of known words.

/// The known word that is most like `word`, if any is like enough to be a slip of the fingers.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let limit = 1 + folded.chars().count() / 4;
    known
        .into_iter()
        .filter(|candidate| !candidate.is_empty())
        .map(|candidate| (distance(&folded, &fold(candidate)), candidate))
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `did you mean "x"?`, or nothing.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    nearest(word, known).map(|found| format!("did you mean {found:?}?"))
}

/// Spelling variants count as the same: `health-check`, `health_check`, `Health Check`.
fn fold(word: &str) -> String {
    word.to_lowercase().replace(['-', ' '], "_")
}

/// Edits from one to the other; a word that the other begins with counts as one edit.
fn distance(word: &str, candidate: &str) -> usize {
    if word.len() >= 3 && (candidate.starts_with(word) || word.starts_with(candidate)) && word != candidate {
        return 1;
    }
    strsim::osa_distance(word, candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_recognised_and_strangers_are_not() {
        let known = ["instances", "memory", "command", "env", "health_check"];
        for (word, found) in [
            ("instance", Some("instances")),
            ("memroy", Some("memory")),
            ("Command", Some("command")),
            ("health-check", Some("health_check")),
            ("envs", Some("env")),
            ("zebra", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), found, "{word}");
        }
    }
}
