//! Turns what tools print into lines for people.

/// Longest line in bytes.
pub(crate) const MAX_LINE: usize = 4096;

/// Collects output into lines: valid UTF-8, without escape sequences and control characters, at most [`MAX_LINE`] bytes.
/// A line that was rewritten with carriage returns (a progress bar) counts as its last state.
#[derive(Default)]
pub(crate) struct Lines {
    pending: Vec<u8>,
    /// The rest of an overlong line is being dropped.
    cut: bool,
}

impl Lines {
    /// Takes a chunk; hands each complete line to `emit`.
    pub(crate) fn push(&mut self, chunk: &[u8], mut emit: impl FnMut(String)) {
        for piece in chunk.split_inclusive(|b| *b == b'\n') {
            let (text, complete) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            // Escape sequences are longer than what they leave: gather some more than a line's worth.
            let room = (4 * MAX_LINE).saturating_sub(self.pending.len());
            self.cut |= text.len() > room;
            self.pending.extend_from_slice(text.get(..room.min(text.len())).unwrap_or_default());
            if complete {
                emit(self.take());
            }
        }
    }

    /// What stands there without an end of line.
    pub(crate) fn rest(&mut self) -> Option<String> {
        if self.pending.is_empty() { None } else { Some(self.take()) }
    }

    fn take(&mut self) -> String {
        let line = clean(&self.pending, self.cut);
        self.pending.clear();
        self.cut = false;
        line
    }
}

fn clean(bytes: &[u8], cut: bool) -> String {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    let bytes = bytes.rsplit(|b| *b == b'\r').find(|part| !part.is_empty()).unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    let mut line = String::new();
    let mut chars = text.chars().peekable();
    let mut too_long = cut;
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            skip_escape(&mut chars);
        } else if c == '\t' || !c.is_control() {
            if line.len() + c.len_utf8() > MAX_LINE - '…'.len_utf8() {
                too_long = true;
                break;
            }
            line.push(c);
        }
    }
    if too_long {
        line.push('…');
    }
    line.truncate(line.trim_end().len());
    line
}

/// Skips the rest of an ANSI escape sequence.
fn skip_escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.next() {
        // CSI: parameters, then one letter.
        Some('[') => {
            for c in chars.by_ref() {
                if ('@'..='~').contains(&c) {
                    break;
                }
            }
        }
        // OSC and its like: up to BEL or ESC \.
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' {
                    break;
                }
                if c == '\u{1b}' {
                    chars.next();
                    break;
                }
            }
        }
        // Character set: one more.
        Some('(' | ')' | '#' | ' ') => {
            chars.next();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line| out.push(line));
        }
        out.extend(lines.rest());
        out
    }

    #[test]
    fn lines_are_put_together_and_cleaned() {
        assert_eq!(all(&[b"a", b"b\nc\r\n", b"\n", b"last"]), ["ab", "c", "", "last"]);
        assert_eq!(all(&[b"\x1b[31mred\x1b[0m \x1b]0;title\x07ok\x1b(B\n"]), ["red ok"]);
        assert_eq!(all(&[b"10%\r50%\r100%\n"]), ["100%"]);
        assert_eq!(all(&[b"\xff\x00a\x07\tb\n"]), ["\u{fffd}a\tb"]);
        // A character that arrives in two chunks.
        assert_eq!(all(&[b"\xc3", b"\xa4\n"]), ["ä"]);
    }

    #[test]
    fn long_and_endless_lines_are_cut() {
        let long = vec![b'x'; 100_000];
        let lines = all(&[&long, &long, b"\nnext\n"]);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].len() <= MAX_LINE && lines[0].ends_with('…'));
        assert_eq!(lines[1], "next");
        let wide = "ä".repeat(5000);
        assert!(all(&[wide.as_bytes()])[0].len() <= MAX_LINE);
        assert!(all(&[&[0xff; 9000]])[0].len() <= MAX_LINE);
    }
}
