//! Paths in one form, for matching only: what is sent on is the client's own.
//!
//! Escapes of letters, digits and `-._~` are decoded (once), other escapes keep their place with upper-case digits (so
//! `%2F` separates nothing), several slashes count as one, `.` and `..` segments are resolved (above the root they stay
//! at the root). So a route matches where the path really leads, and no spelling slips past a longer prefix.

use std::borrow::Cow;

/// Longest path that is brought into the one form; a longer one that needs it matches nothing.
pub(crate) const PATH_MAX: usize = 8192;

/// Most segments of a route's path.
pub(crate) const DEPTH_MAX: usize = 32;

/// What a byte means to [`cut`]: 1 = the path ends before it, 2 = `/`, 4 = `.`, 8 = `%`.
const MEANING: [u8; 256] = {
    let mut table = [0; 256];
    #[expect(clippy::indexing_slicing, reason = "the compiler evaluates it, within bounds")]
    {
        table[b'?' as usize] = 1;
        table[b'#' as usize] = 1;
        table[b'/' as usize] = 2;
        table[b'.' as usize] = 4;
        table[b'%' as usize] = 8;
    }
    table
};

/// The path without query and fragment (`/` when there is none: `*`, an empty path), and whether it is in the one form.
pub(crate) fn cut(raw: &[u8]) -> (&[u8], bool) {
    if raw.first() != Some(&b'/') {
        return (b"/", true);
    }
    let (mut plain, mut before) = (true, 0);
    for (at, byte) in raw.iter().enumerate() {
        let meaning = MEANING.get(usize::from(*byte)).copied().unwrap_or_default();
        if meaning != 0 {
            if meaning == 1 {
                return (raw.get(..at).unwrap_or_default(), plain);
            }
            plain &= meaning != 8 && before != 2;
        }
        before = meaning;
    }
    (raw, plain)
}

/// The one form of a path (as [`cut`] gives it), written into `buf`.
pub(crate) fn normalize<'a>(path: &[u8], buf: &'a mut [u8; PATH_MAX]) -> Option<&'a [u8]> {
    let mut end = 0;
    let mut segments = path.get(1..)?.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let last = segments.peek().is_none();
        let start = end;
        push(buf, &mut end, b'/')?;
        let from = end;
        decode(segment, buf, &mut end)?;
        end = match buf.get(from..end)? {
            b"" | b"." => start,
            b".." => buf.get(..start)?.iter().rposition(|byte| *byte == b'/').unwrap_or(0),
            _ => continue,
        };
        if last {
            push(buf, &mut end, b'/')?;
        }
    }
    buf.get(..end)
}

fn push(buf: &mut [u8; PATH_MAX], end: &mut usize, byte: u8) -> Option<()> {
    *buf.get_mut(*end)? = byte;
    *end += 1;
    Some(())
}

fn decode(segment: &[u8], buf: &mut [u8; PATH_MAX], end: &mut usize) -> Option<()> {
    let mut rest = segment;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = tail;
                let byte = hex(*high) << 4 | hex(*low);
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    push(buf, end, byte)?;
                } else {
                    push(buf, end, b'%')?;
                    push(buf, end, high.to_ascii_uppercase())?;
                    push(buf, end, low.to_ascii_uppercase())?;
                }
            }
            _ => push(buf, end, *byte)?,
        }
    }
    Some(())
}

/// Value of a hex digit.
pub(crate) fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit.wrapping_sub(b'A').wrapping_add(10),
    }
}

/// Ends of the first [`DEPTH_MAX`] segments of a path in the one form: `/a/bc/` has 2 and 5.
pub(crate) fn boundaries(path: &[u8], ends: &mut [usize; DEPTH_MAX]) -> usize {
    let mut count = 0;
    for at in 1..=path.len() {
        let boundary = path.get(at).is_none_or(|byte| *byte == b'/');
        if boundary && path.get(at - 1) != Some(&b'/') {
            let Some(slot) = ends.get_mut(count) else { return count };
            *slot = at;
            count += 1;
        }
    }
    count
}

/// Number of segments of a route's path; `/` has none.
pub(crate) fn depth(path: &str) -> usize {
    path.split('/').filter(|segment| !segment.is_empty()).count()
}

/// A raw path (a query may follow) without the prefix of the route that it matched.
pub(crate) fn strip<'a>(raw: &'a str, prefix: &str) -> Cow<'a, str> {
    if prefix == "/" {
        return Cow::Borrowed(raw);
    }
    let (path, plain) = cut(raw.as_bytes());
    let tail = raw.get(path.len()..).unwrap_or_default();
    let mut buf = [0; PATH_MAX];
    let one = if plain { None } else { normalize(path, &mut buf) };
    match one.and_then(|one| std::str::from_utf8(one).ok()) {
        Some(one) => Cow::Owned(rooted(one.strip_prefix(prefix).unwrap_or(one), tail)),
        None => match raw.strip_prefix(prefix) {
            Some(rest) if rest.starts_with('/') => Cow::Borrowed(rest),
            Some(rest) => Cow::Owned(rooted("", rest)),
            None => Cow::Borrowed(raw),
        },
    }
}

fn rooted(path: &str, tail: &str) -> String {
    let slash = if path.starts_with('/') { "" } else { "/" };
    format!("{slash}{path}{tail}")
}

/// Checks the path of a route; `Err` says what would be right.
pub fn check_route_path(path: &str) -> Result<(), String> {
    let bytes = path.as_bytes();
    if bytes.first() != Some(&b'/')
        || bytes.iter().any(|b| matches!(b, b'?' | b'#') || *b <= b' ' || *b >= 0x7f)
    {
        return Err(format!("path {path:?} is not a path prefix; write for example / or /api"));
    }
    if depth(path) > DEPTH_MAX || bytes.len() > 1024 {
        return Err(format!("path has more than {DEPTH_MAX} segments or 1024 bytes; write a shorter prefix"));
    }
    let mut buf = [0; PATH_MAX];
    let one = normalize(bytes, &mut buf).unwrap_or_default();
    let one = if one.len() > 1 { one.strip_suffix(b"/").unwrap_or(one) } else { one };
    if one == bytes {
        Ok(())
    } else {
        Err(format!("path {path:?} is written {:?}", String::from_utf8_lossy(one)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(raw: &str) -> String {
        let mut buf = [0; PATH_MAX];
        String::from_utf8(normalize(cut(raw.as_bytes()).0, &mut buf).unwrap().to_vec()).unwrap()
    }

    #[test]
    fn paths_come_into_one_form() {
        for (raw, want) in [
            ("/", "/"),
            ("", "/"),
            ("*", "/"),
            ("/a/b?x=/../c", "/a/b"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/../../etc", "/etc"),
            ("/a/%2e%2E/b", "/b"),
            ("/%61dmin", "/admin"),
            ("/a%2fb", "/a%2Fb"),
            ("/a/%2e%2e%2fb", "/a/..%2Fb"),
            ("/%252e%252e/a", "/%252e%252e/a"),
            ("/a%zz%", "/a%zz%"),
            ("/.well-known/x", "/.well-known/x"),
            ("/a/...", "/a/..."),
        ] {
            assert_eq!(one(raw), want, "{raw}");
            let (path, plain) = cut(raw.as_bytes());
            assert!(!plain || path == want.as_bytes(), "{raw}");
        }
    }

    #[test]
    fn a_prefix_is_cut_off_and_the_rest_is_the_clients_own() {
        for (raw, prefix, want) in [
            ("/a?x", "/", "/a?x"),
            ("/api/v1?x=1", "/api", "/v1?x=1"),
            ("/api", "/api", "/"),
            ("/api?x=/api", "/api", "/?x=/api"),
            ("/api/", "/api", "/"),
            ("//api//v1?x", "/api", "/v1?x"),
            ("/x/../%61pi/..%2f?x", "/api", "/..%2F?x"),
        ] {
            assert_eq!(strip(raw, prefix), want, "{raw}");
        }
    }

    #[test]
    fn a_long_odd_path_matches_nothing_and_a_long_plain_one_needs_no_room() {
        let mut buf = [0; PATH_MAX];
        assert!(normalize(format!("/%{}", "a".repeat(PATH_MAX)).as_bytes(), &mut buf).is_none());
        assert!(cut(format!("/{}", "a".repeat(PATH_MAX)).as_bytes()).1);
    }

    #[test]
    fn segments_end_where_they_end() {
        let mut ends = [0; DEPTH_MAX];
        for (path, want) in
            [("/", vec![]), ("/a", vec![2]), ("/a/bc/", vec![2, 5]), ("/a/b/c", vec![2, 4, 6])]
        {
            let count = boundaries(path.as_bytes(), &mut ends);
            assert_eq!(&ends[..count], want, "{path}");
        }
        assert_eq!(boundaries("/x".repeat(100).as_bytes(), &mut ends), DEPTH_MAX);
    }

    #[test]
    fn route_paths_must_be_in_the_one_form() {
        for good in ["/", "/api", "/a/b", "/caf%C3%A9", "/.well-known"] {
            assert_eq!(check_route_path(good), Ok(()), "{good}");
        }
        for (bad, right) in
            [("/api/", "\"/api\""), ("//a", "\"/a\""), ("/%61", "\"/a\""), ("/a/../b", "\"/b\"")]
        {
            assert!(check_route_path(bad).unwrap_err().contains(right), "{bad}");
        }
        for bad in ["", "api", "/a?b", "/a b", "/ä", &"/x".repeat(33)] {
            assert!(check_route_path(bad).is_err(), "{bad}");
        }
    }
}
