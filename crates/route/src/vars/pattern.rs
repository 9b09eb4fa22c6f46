//! Regular expressions of people, within bounds: they are matched in time linear in the text, whatever they say.

use regex::bytes::{Regex, RegexBuilder};

/// Longest text of a regular expression.
const TEXT_MAX: usize = 4096;
/// Most memory of a compiled one, and of its lazily built automaton.
const SIZE_MAX: usize = 1 << 20;

/// Compiles a regular expression; `Err` says what is wrong. Bytes are matched, as PCRE does without `u`; an expression with
/// letters beyond ASCII matches UTF-8.
pub fn pattern(text: &str, any_case: bool) -> Result<Regex, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("regular expression has {} bytes; {TEXT_MAX} are the most", text.len()));
    }
    let built = RegexBuilder::new(text)
        .unicode(!text.is_ascii())
        .case_insensitive(any_case)
        .size_limit(SIZE_MAX)
        .dfa_size_limit(SIZE_MAX)
        .build();
    built.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => {
            format!(
                "regular expression {text:?} becomes larger than {SIZE_MAX} bytes; write smaller repetitions"
            )
        }
        error => {
            // the last line says what is wrong, those before it draw where
            let told = error.to_string();
            let last = told.lines().last().unwrap_or_default().trim();
            let why = last.strip_prefix("error: ").unwrap_or(last);
            format!("regular expression {text:?} cannot be used: {why}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_letters_match_as_they_are_written() {
        assert!(pattern("^/a[0-9]+$", false).unwrap().is_match(b"/a12"));
        assert!(pattern("dev", true).unwrap().is_match(b"\xffDEV"));
        assert!(pattern("^中国.$", false).unwrap().is_match("中国ä".as_bytes()));
        assert!(pattern(r"^a\/b\-c$", false).unwrap().is_match(b"a/b-c"));
    }

    #[test]
    fn what_cannot_be_had_is_said() {
        assert!(pattern("a(?=b)", false).unwrap_err().contains("look-around"));
        assert!(pattern(r"(a)\1", false).unwrap_err().contains("backreference"));
        assert!(pattern("(((a{100}){100}){100})", false).unwrap_err().contains("smaller repetitions"));
        assert!(pattern(&"a".repeat(5000), false).unwrap_err().contains("4096"));
        assert!(pattern("(", false).unwrap_err().contains("unclosed group"));
    }
}
