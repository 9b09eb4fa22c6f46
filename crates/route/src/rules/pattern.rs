//! Paths of rules: exact, prefix, with parameters.
//!
//! They are matched against a path in the *rules' form*: slashes and dots resolved as in `path`, and escapes decoded as nginx
//! does before it matches, but for `%2F` and `%25`, so that an escaped slash separates nothing.

use crate::path::{PATH_MAX, hex};

/// Longest path of a rule.
const TEXT_MAX: usize = 4096;
/// Most segments of a path with parameters.
const SEGMENTS_MAX: usize = 64;
/// Name of what an unnamed `*` stands for.
const REST: &str = ":ext";

/// A path of a rule.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// As it was written.
    pub(crate) text: Box<str>,
    /// What every path that matches begins with, in the rules' form.
    pub(crate) literal: Box<[u8]>,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// The literal is all of it.
    Exact,
    /// The literal and whatever follows.
    Prefix,
    /// Segment by segment.
    Segments(Box<[Segment]>),
}

#[derive(Debug)]
pub(crate) enum Segment {
    Literal(Box<[u8]>),
    /// One segment that is not empty.
    Param(Box<str>),
    /// Any number of segments; only one of these in a pattern.
    Rest(Box<str>),
}

impl Pattern {
    /// Reads a path; `Err` says what would be right.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "*" {
            return Self::parse("/*").map(|pattern| Self { text: text.into(), ..pattern });
        }
        if text.len() > TEXT_MAX {
            return Err(format!("has {} bytes; {TEXT_MAX} are the most", text.len()));
        }
        let Some(inner) = text.strip_prefix('/') else {
            return Err(format!("{text:?} does not begin with /; write for example /api or /api/*"));
        };
        if let Some(bad) = text.chars().find(|c| matches!(c, '?' | '#') || c.is_control()) {
            return Err(format!(
                "{text:?} has {bad:?} in it, which no path has; conditions on the query go into vars"
            ));
        }
        let segments: Vec<&str> = inner.split('/').collect();
        let last = segments.len() - 1;
        if segments
            .iter()
            .enumerate()
            .any(|(at, part)| matches!(*part, "." | "..") || (part.is_empty() && at < last))
        {
            return Err(format!(
                "{text:?} matches nothing, since //, /./ and /../ are resolved first; write it without"
            ));
        }
        if !segments.iter().any(|part| part.starts_with(':') || (part.contains('*'))) {
            return Ok(Self { text: text.into(), literal: form(text.as_bytes()), kind: Kind::Exact });
        }
        let plain = |parts: &[&str]| !parts.iter().any(|part| part.starts_with(':') || part.contains('*'));
        if let Some(prefix) = text.strip_suffix('*')
            && plain(&prefix.split('/').collect::<Vec<_>>())
        {
            return Ok(Self { text: text.into(), literal: form(prefix.as_bytes()), kind: Kind::Prefix });
        }
        let literal: String = segments
            .iter()
            .take_while(|part| plain(&[part]))
            .flat_map(|part| ["/", part])
            .collect::<String>()
            + "/";
        let segments = read_segments(text, &segments)?;
        Ok(Self { text: text.into(), literal: form(literal.as_bytes()), kind: Kind::Segments(segments) })
    }

    /// Whether a path in the rules' form that begins with the literal (and is it, if the pattern is exact) matches.
    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        match &self.kind {
            Kind::Exact | Kind::Prefix => true,
            Kind::Segments(segments) => walk(segments, path, |_, _| ()).is_some(),
        }
    }

    /// The value of a parameter, in a path that matches.
    pub(crate) fn param<'p>(&self, name: &str, path: &'p [u8]) -> Option<&'p [u8]> {
        match &self.kind {
            Kind::Exact => None,
            Kind::Prefix => path.get(self.literal.len()..).filter(|_| name == REST),
            Kind::Segments(segments) => {
                let mut found = None;
                walk(segments, path, |this, value| {
                    if this == name {
                        found = Some(value);
                    }
                })?;
                found
            }
        }
    }

    /// Names of its parameters, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let (segments, rest) = match &self.kind {
            Kind::Exact => (None, None),
            Kind::Prefix => (None, Some(REST)),
            Kind::Segments(segments) => (Some(segments), None),
        };
        segments.into_iter().flatten().filter_map(Segment::name).chain(rest)
    }
}

impl Segment {
    fn name(&self) -> Option<&str> {
        match self {
            Segment::Literal(_) => None,
            Segment::Param(name) | Segment::Rest(name) => Some(name),
        }
    }
}

fn read_segments(text: &str, parts: &[&str]) -> Result<Box<[Segment]>, String> {
    let mut segments: Vec<Segment> = Vec::with_capacity(parts.len());
    for part in parts {
        let segment = match part.as_bytes() {
            [b':'] => {
                return Err(format!("{text:?} has a parameter without a name; write for example /:name"));
            }
            [b':', ..] if part.contains('*') => {
                return Err(format!("{text:?} has a * in the name of a parameter"));
            }
            [b':', ..] => Segment::Param(part.get(1..).unwrap_or_default().into()),
            [b'*'] => Segment::Rest(REST.into()),
            [b'*', name @ ..] if !name.contains(&b'*') => {
                Segment::Rest(part.get(1..).unwrap_or_default().into())
            }
            _ if part.contains('*') => {
                return Err(format!(
                    "{text:?} has a * inside a segment; it stands at the end of a path without parameters, or begins a segment: /a/*rest"
                ));
            }
            _ => Segment::Literal(form(part.as_bytes())),
        };
        let twice = segments.iter().any(|other| match (&segment, other) {
            (Segment::Rest(_), Segment::Rest(_)) => true,
            _ => segment.name().is_some() && segment.name() == other.name(),
        });
        if twice {
            return Err(format!("{text:?} has two * or two parameters of one name; one of each is right"));
        }
        segments.push(segment);
    }
    if segments.len() > SEGMENTS_MAX {
        return Err(format!(
            "has {} segments; {SEGMENTS_MAX} are the most beside parameters",
            segments.len()
        ));
    }
    Ok(segments.into())
}

/// Gives each parameter with its value to `visit` (also before it is known whether all matches); `None` = no match.
fn walk<'s, 'p>(
    segments: &'s [Segment],
    path: &'p [u8],
    mut visit: impl FnMut(&'s str, &'p [u8]),
) -> Option<()> {
    let inner = path.strip_prefix(b"/")?;
    let at = segments.iter().position(|segment| matches!(segment, Segment::Rest(_)));
    let (head, tail) = segments.split_at(at.unwrap_or(segments.len()));
    let mut pieces = inner.split(|byte| *byte == b'/');
    let (mut front, mut back) = (0, 0);
    for segment in head {
        let piece = pieces.next()?;
        front += piece.len() + 1;
        take(segment, piece, &mut visit)?;
    }
    let Some((Segment::Rest(name), tail)) = tail.split_first() else {
        return pieces.next().is_none().then_some(());
    };
    for segment in tail.iter().rev() {
        let piece = pieces.next_back()?;
        back += piece.len() + 1;
        take(segment, piece, &mut visit)?;
    }
    // something is left for the rest, if only an empty piece
    pieces.next()?;
    visit(name, inner.get(front..inner.len().checked_sub(back)?)?);
    Some(())
}

fn take<'s, 'p>(
    segment: &'s Segment,
    piece: &'p [u8],
    visit: &mut impl FnMut(&'s str, &'p [u8]),
) -> Option<()> {
    match segment {
        Segment::Literal(literal) => (**literal == *piece).then_some(()),
        Segment::Param(name) | Segment::Rest(name) => (!piece.is_empty()).then(|| visit(name, piece)),
    }
}

/// The rules' form of a text.
fn form(text: &[u8]) -> Box<[u8]> {
    let mut out = Vec::with_capacity(text.len());
    decode(text, |byte| {
        out.push(byte);
        Some(())
    });
    out.into()
}

/// The rules' form of a path whose slashes and dots are resolved, in `buf`.
pub(crate) fn rules_form<'b>(path: &[u8], buf: &'b mut [u8; PATH_MAX]) -> Option<&'b [u8]> {
    let mut len = 0;
    decode(path, |byte| {
        *buf.get_mut(len)? = byte;
        len += 1;
        Some(())
    })?;
    buf.get(..len)
}

/// Decodes all escapes but those of `/` and `%`; a `%` that begins none is one.
fn decode(text: &[u8], mut push: impl FnMut(u8) -> Option<()>) -> Option<()> {
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        let escaped = match (byte, after) {
            (b'%', [high, low, tail @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = tail;
                hex(*high) << 4 | hex(*low)
            }
            (b'%', _) => b'%',
            _ => {
                push(*byte)?;
                continue;
            }
        };
        match escaped {
            b'/' => b"%2F".iter().try_for_each(|byte| push(*byte))?,
            b'%' => b"%25".iter().try_for_each(|byte| push(*byte))?,
            other => push(other)?,
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a request's path does to a pattern: its parameters, or no match.
    fn params(pattern: &str, path: &str) -> Option<Vec<(String, String)>> {
        let pattern = Pattern::parse(pattern).unwrap();
        let mut buf = [0; PATH_MAX];
        let path = rules_form(path.as_bytes(), &mut buf).unwrap();
        let begins = match pattern.kind {
            Kind::Exact => path == &*pattern.literal,
            _ => path.starts_with(&pattern.literal),
        };
        (begins && pattern.matches(path)).then(|| {
            let text = |name: &str| String::from_utf8_lossy(pattern.param(name, path).unwrap()).into_owned();
            pattern.names().map(|name| (name.to_owned(), text(name))).collect()
        })
    }

    #[test]
    fn paths_match_exactly_by_prefix_or_by_segments() {
        let none: &[(&str, &str)] = &[];
        for (pattern, path, want) in [
            ("/a", "/a", Some(none)),
            ("/a", "/a/", None),
            ("/a*", "/ab/c", Some(&[(":ext", "b/c")][..])),
            ("/a/*", "/a/", Some(&[(":ext", "")])),
            ("/a/*", "/a", None),
            ("*", "/x", Some(&[(":ext", "x")])),
            ("/b/:n", "/b/dog", Some(&[("n", "dog")])),
            ("/b/:n", "/b/dog/", None),
            ("/b/:n", "/b/", None),
            ("/b/:n/", "/b/dog/", Some(&[("n", "dog")])),
            ("/b/:n/c/:m", "/b/1/c/2", Some(&[("n", "1"), ("m", "2")])),
            ("/b/:n/c/:m", "/b/1/d/2", None),
            ("/:n", "/a%2Fb", Some(&[("n", "a%2Fb")])),
            ("/f/*path", "/f/a/b/", Some(&[("path", "a/b/")])),
            ("/f/*path", "/f/", Some(&[("path", "")])),
            ("/f/*path", "/f", None),
            ("/f/:n/*", "/f/1/2/3", Some(&[("n", "1"), (":ext", "2/3")])),
            ("/f/*p/x/:n", "/f/a/b/x/1", Some(&[("p", "a/b"), ("n", "1")])),
            ("/f/*p/x", "/f/x", None),
            ("/f/*p/x", "/f//x", Some(&[("p", "")])),
            ("/a:b", "/a:b", Some(none)),
            ("/a b%41", "/a%20bA", Some(none)),
            ("/50%", "/50%25", Some(none)),
            ("/a%2fb", "/a%2Fb", Some(none)),
            ("/a%2fb", "/a/b", None),
            ("/ü", "/%C3%BC", Some(none)),
        ] {
            let want = want.map(|all| all.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect());
            assert_eq!(params(pattern, path), want, "{pattern} {path}");
        }
    }

    #[test]
    fn paths_that_cannot_be_are_refused() {
        for (bad, word) in [
            ("", "begin"),
            ("a", "begin"),
            ("/a?b", "vars"),
            ("/a//b", "resolved"),
            ("/a/../b", "resolved"),
            ("/a*b/c", "inside"),
            ("/a/:x/b*", "inside"),
            ("/:", "without a name"),
            ("/:a/:a", "two"),
            ("/*a/*b", "two"),
            (&format!("/:a{}", "/b".repeat(70)), "64"),
            (&format!("/{}", "b".repeat(5000)), "4096"),
        ] {
            let told = Pattern::parse(bad).map(|_| ()).unwrap_err();
            assert!(told.contains(word), "{bad}: {told}");
        }
    }
}
