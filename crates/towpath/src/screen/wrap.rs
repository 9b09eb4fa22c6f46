//! Long text in lines that fit a terminal.

use unicode_width::UnicodeWidthStr;

/// Columns beyond which lines are hard to read.
const MOST: usize = 100;

/// Columns that text on stderr may take: the terminal's, but no more than are easy to read; `None` without a terminal.
pub(super) fn columns(terminal: bool) -> Option<usize> {
    let (_, columns) = console::Term::stderr().size_checked().filter(|_| terminal)?;
    Some(usize::from(columns).clamp(40, MOST))
}

/// Breaks `text` between words so that no line is wider than `columns`, if its words allow it. The first line stands
/// behind something of the width `head`; further ones begin with `indent` spaces.
pub(super) fn wrap(text: &str, columns: usize, head: usize, indent: usize) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let mut used = head;
    let mut begins = true;
    for word in text.split(' ') {
        let width = word.width();
        if !begins && used + 1 + width > columns {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            used = indent;
        } else if !begins {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
        begins = false;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_nothing_is_lost() {
        assert_eq!(wrap("one two three four", 10, 7, 2), "one\n  two\n  three\n  four");
        assert_eq!(wrap("short", 80, 7, 2), "short");
        assert_eq!(wrap("a  b", 80, 0, 2), "a  b");
        let long = "x".repeat(90);
        assert_eq!(wrap(&format!("see {long} there"), 40, 7, 2), format!("see\n  {long}\n  there"));
        let text = "the quick brown fox jumps over the lazy dog ".repeat(9);
        let wrapped = wrap(&text, 44, 7, 2);
        assert!(wrapped.lines().skip(1).all(|line| line.width() <= 44), "{wrapped}");
        assert_eq!(wrapped.split_whitespace().count(), text.split_whitespace().count());
    }
}
