//! Patterns for names of buckets and access keys: `*` stands for any text, `?` for one character.

/// Whether the text fits the pattern.
pub fn fits(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to go on if what follows the last `*` does not fit.
    let mut again: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (mut after_pattern, mut after_text) = (pattern.clone(), text.clone());
        match (after_pattern.next(), after_text.next()) {
            (Some('*'), _) => {
                again = Some((after_pattern.clone(), text.clone()));
                pattern = after_pattern;
            }
            (Some(wanted), Some(given)) if wanted == '?' || wanted == given => {
                (pattern, text) = (after_pattern, after_text);
            }
            (None, None) => return true,
            _ => {
                let Some((star, rest)) = &mut again else { return false };
                if rest.next().is_none() {
                    return false;
                }
                (pattern, text) = (star.clone(), rest.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, text) in [
            ("", ""),
            ("*", ""),
            ("*", "abc"),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a?c", "abc"),
            ("*b*b*", "abcab"),
            ("a*a", "aaaa"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("", "a"), ("?", ""), ("a", "abc"), ("*b", "abc"), ("a*d", "abc"), ("abc?", "abc")]
        {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
        assert!(!fits(&"*a".repeat(30), &"a".repeat(29)));
    }
}
