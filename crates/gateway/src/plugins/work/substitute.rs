//! Replacements by regular expressions, as PCRE users write them: `$1`, `${1}`, `$$`.

use regex::bytes::{Captures, Regex};

/// An expression that cannot be used matches nothing. Configurations with such are refused before they come here.
pub(super) fn pattern(text: &str, any_case: bool) -> Option<Regex> {
    towpath_route::vars::pattern(text, any_case).ok()
}

/// Several as one.
pub(super) fn patterns<'a>(texts: impl IntoIterator<Item = &'a String>, any_case: bool) -> Vec<Regex> {
    texts.into_iter().filter_map(|text| pattern(text, any_case)).collect()
}

/// The text that a replacement stands for.
fn expand(replacement: &str, captures: &Captures<'_>, escape: fn(&[u8]) -> Vec<u8>, out: &mut Vec<u8>) {
    let mut rest = replacement;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before.as_bytes());
        let after = after.get(1..).unwrap_or_default();
        let (number, tail) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((inside, tail)) => (inside.parse().ok(), tail),
            None => {
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                let (digits, tail) = after.split_at(digits);
                (digits.parse().ok(), tail)
            }
        };
        match number {
            Some(number) => {
                let group: Option<regex::bytes::Match<'_>> = captures.get(number);
                out.extend(group.map(|group| escape(group.as_bytes())).unwrap_or_default());
                rest = tail;
            }
            None => {
                out.push(b'$');
                rest = after.strip_prefix('$').unwrap_or(after);
            }
        }
    }
    out.extend_from_slice(rest.as_bytes());
}

/// The first match, or each one, replaced; `None` = there is none.
pub(super) fn replace(regex: &Regex, text: &[u8], replacement: &str, all: bool) -> Option<Vec<u8>> {
    replace_escaped(regex, text, replacement, all, <[u8]>::to_vec)
}

/// The same, with all that comes from the text passed through `escape`.
pub(super) fn replace_escaped(
    regex: &Regex,
    text: &[u8],
    replacement: &str,
    all: bool,
    escape: fn(&[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let (mut out, mut end, mut found) = (Vec::with_capacity(text.len()), 0, false);
    for captures in regex.captures_iter(text) {
        let Some(whole) = captures.get(0) else { break };
        found = true;
        out.extend(escape(text.get(end..whole.start()).unwrap_or_default()));
        expand(replacement, &captures, escape, &mut out);
        end = whole.end();
        if !all {
            break;
        }
    }
    out.extend(escape(text.get(end..).unwrap_or_default()));
    found.then_some(out)
}

/// The same for a text that is part of a path: it begins no query.
pub(super) fn safe_in_path(text: &[u8]) -> Vec<u8> {
    safe(text).replace('?', "%3F").into_bytes()
}

/// A value in a template of a path and query: it begins no query, where the template does not say so.
pub(super) fn no_query(text: &[u8]) -> Vec<u8> {
    text.split(|&byte| byte == b'?').collect::<Vec<_>>().join(b"%3F".as_slice())
}

/// Encodes what cannot stand in a request line; escapes that are there stay.
pub(super) fn safe(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for &byte in text {
        if byte.is_ascii_graphic()
            && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | b'#')
        {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_put_in_as_pcre_does() {
        let regex = pattern("^/(\\w+)/(\\w+)", false).unwrap();
        let to = |replacement: &str| {
            String::from_utf8(replace(&regex, b"/a/b/c", replacement, false).unwrap()).unwrap()
        };
        assert_eq!(to("/$2/$1"), "/b/a/c");
        assert_eq!(to("/${1}1"), "/a1/c");
        assert_eq!(to("/$1x$9$$y$"), "/ax$y$/c");
        assert_eq!(replace(&regex, b"none", "", false), None);
        let letter = pattern("a", false).unwrap();
        assert_eq!(replace(&letter, b"banana", "o", true).unwrap(), b"bonono");
        assert_eq!(replace(&letter, b"banana", "o", false).unwrap(), b"bonana");
    }

    #[test]
    fn what_cannot_stand_in_a_uri_is_encoded_and_escapes_stay() {
        assert_eq!(safe("/a b\r\n%20/ä?x".as_bytes()), "/a%20b%0D%0A%20/%C3%A4?x");
    }
}
