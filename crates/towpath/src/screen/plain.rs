//! Text from apps and build tools, made safe for a terminal.

/// Without control sequences and control characters; tabs are kept. Characters that turn the direction of text are escaped.
pub(crate) fn plain(text: &str) -> String {
    clean(text, false)
}

/// Likewise, but colours and weights are kept, and reset at the end: they change nothing but the look of this text.
pub(crate) fn coloured(text: &str) -> String {
    clean(text, true)
}

fn clean(text: &str, colours: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut is_coloured = false;
    while let Some(c) = chars.next() {
        match c {
            '\t' => out.push(c),
            '\x1b' => {
                let sequence = skip_sequence(&mut chars);
                if let Some(colour) = sequence.filter(|_| colours) {
                    out.push_str("\x1b[");
                    out.push_str(&colour);
                    is_coloured = true;
                }
            }
            c if c.is_control() => {}
            c if turns_direction(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    if is_coloured {
        out.push_str("\x1b[0m");
    }
    out
}

/// Whether it can show text in another order than it has. The marks that texts in Arabic or Hebrew need cannot.
pub(super) fn turns_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Skips what follows an escape character: a control sequence, a string up to its end, or one character. Gives what
/// follows `ESC [` of a sequence for a colour or weight: `1;31m`.
fn skip_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    match chars.next() {
        Some('[') => {
            let mut sequence = String::new();
            while let Some(c) = chars.peek() {
                let (c, last) = (*c, ('@'..='~').contains(c));
                if !c.is_ascii() {
                    return None;
                }
                chars.next();
                sequence.push(c);
                if last {
                    let parameters = sequence.strip_suffix('m')?;
                    let plain = |c: char| c.is_ascii_digit() || c == ';' || c == ':';
                    return parameters.chars().all(plain).then_some(sequence);
                }
            }
        }
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = chars.next() {
                if c == '\x07' || (c == '\x1b' && chars.next_if_eq(&'\\').is_some()) {
                    return None;
                }
            }
        }
        _ => {}
    }
    None
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
            ("a\u{202e}b\u{2066}", "a\\u{202e}b\\u{2066}"),
            ("\u{200f}\u{5d0}", "\u{200f}\u{5d0}"),
        ] {
            assert_eq!(plain(text), left, "{text:?}");
        }
    }
    #[test]
    fn colours_may_stay_but_nothing_that_moves_the_cursor_or_sets_a_title() {
        for (text, left) in [
            ("\x1b[1;32mok\x1b[0m done", "\x1b[1;32mok\x1b[0m done\x1b[0m"),
            ("\x1b[38:5:12mx", "\x1b[38:5:12mx\x1b[0m"),
            ("\x1b[2J\x1b[H\x1b[5A\x1b[?1049hx\r", "x"),
            ("\x1b[>4;2mx\x1b[?4m", "x"),
            ("\x1b]0;title\x07x\x1b]52;c;aGk=\x1b\\", "x"),
            ("plain", "plain"),
        ] {
            assert_eq!(coloured(text), left, "{text:?}");
        }
    }
}
