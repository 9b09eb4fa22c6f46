//! The grammar of subjects and patterns, and how they match.

use crate::BusError;

/// Longest subject in bytes.
const MAX_SUBJECT: usize = 512;

/// Subjects that begin with this are made by the bus itself for answers to requests.
pub(crate) const INBOX: &str = "_INBOX.";

fn check_tokens(text: &str) -> Result<(), BusError> {
    let wrong = |why: &str| Err(BusError::Invalid(format!("subject {text:?} {why}")));
    if text.is_empty() || text.len() > MAX_SUBJECT {
        return wrong("must have 1 to 512 bytes");
    }
    if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return wrong("has white space or control characters");
    }
    if text.split('.').any(str::is_empty) {
        return wrong("has an empty token");
    }
    Ok(())
}

/// Checks a concrete subject: non-empty tokens without wildcards.
pub(crate) fn check_subject(subject: &str) -> Result<(), BusError> {
    check_tokens(subject)?;
    if subject.split('.').any(|token| token == "*" || token == ">") {
        return Err(BusError::Invalid(format!("subject {subject:?} has a wildcard; only patterns may")));
    }
    Ok(())
}

/// Checks a pattern: `*` stands alone in its token, `>` alone in the last.
pub(crate) fn check_pattern(pattern: &str) -> Result<(), BusError> {
    check_tokens(pattern)?;
    let last = pattern.split('.').count() - 1;
    for (at, token) in pattern.split('.').enumerate() {
        let misplaced = (token == ">" && at != last) || (token.len() > 1 && token.contains(['*', '>']));
        if misplaced {
            return Err(BusError::Invalid(format!(
                "pattern {pattern:?}: '*' has to be a token of its own, '>' the last one"
            )));
        }
    }
    Ok(())
}

/// Checks the name of a queue group.
pub(crate) fn check_queue(queue: &str) -> Result<(), BusError> {
    if queue.is_empty() || queue.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(BusError::Invalid(format!("queue group {queue:?} is empty or has white space")));
    }
    Ok(())
}

/// Whether the pattern has wildcards.
pub(crate) fn is_wild(pattern: &str) -> bool {
    pattern.split('.').any(|token| token == "*" || token == ">")
}

/// Whether a concrete subject fits a pattern.
pub(crate) fn matches(pattern: &str, subject: &str) -> bool {
    let mut tokens = subject.split('.');
    for want in pattern.split('.') {
        match (want, tokens.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (want, Some(token)) if want == token => {}
            _ => return false,
        }
    }
    tokens.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_match_whole_tokens() {
        for (pattern, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.b.c", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*", "a.b.c", false),
            ("*.b", "a.b", true),
            ("a.*.c", "a.x.c", true),
            ("a.>", "a.b", true),
            ("a.>", "a.b.c.d", true),
            ("a.>", "a", false),
            (">", "a", true),
            ("*.>", "a", false),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn malformed_subjects_and_patterns_are_refused() {
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "a\n", &"x".repeat(600)] {
            assert!(check_subject(bad).is_err(), "{bad:?}");
            assert!(check_pattern(bad).is_err(), "{bad:?}");
        }
        for bad in ["a.*", ">", "a.>"] {
            assert!(check_subject(bad).is_err(), "{bad:?}");
            assert!(check_pattern(bad).is_ok(), "{bad:?}");
        }
        for bad in [">.a", "a*", "a.b>", "**"] {
            assert!(check_pattern(bad).is_err(), "{bad:?}");
        }
    }
}
