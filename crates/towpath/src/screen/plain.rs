//! Text from apps and build tools, made safe for a terminal.

/// Without control sequences and control characters; tabs are kept.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\t' => out.push(c),
            '\x1b' => skip_sequence(&mut chars),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

/// Skips what follows an escape character: a control sequence, a string up to its end, or one character.
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        Some('[') => {
            while let Some(c) = chars.peek() {
                let (c, last) = (*c, ('@'..='~').contains(c));
                if !c.is_ascii() {
                    return;
                }
                chars.next();
                if last {
                    return;
                }
            }
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = chars.next() {
                if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                    return;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_vanish_and_text_stays() {
        for (text, left) in [
            ("\x1b[1;32mok\x1b[0m done", "ok done"),
            ("a\tb\r\x07c", "a\tbc"),
            ("\x1b]0;title\x07x", "x"),
            ("\x1b]8;;http://a\x1b\\link\x1b]8;;\x1b\\", "link"),
            ("\x1b[2J\x1b[Hé", "é"),
            ("\x1b[", ""),
            ("\x1bcx", "x"),
        ] {
            assert_eq!(plain(text), left, "{text:?}");
        }
    }
}
