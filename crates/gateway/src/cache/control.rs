//! `Cache-Control`, and how long a response is fresh (RFC 9111).

use super::entry::Times;
use http::HeaderName;
use http::header::{AGE, CACHE_CONTROL, DATE, EXPIRES, HeaderMap, HeaderValue, VARY};
use std::time::UNIX_EPOCH;

/// What `Cache-Control` says. Seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) no_transform: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) s_maxage: Option<u64>,
    /// `Some(None)` = however old.
    pub(crate) max_stale: Option<Option<u64>>,
    pub(crate) min_fresh: Option<u64>,
    pub(crate) while_fetched: Option<u64>,
    pub(crate) if_error: Option<u64>,
}

/// Longest time that is believed, seconds.
const LONGEST: u64 = 10 * 365 * 86_400;

impl Control {
    /// Of these lines. A number that cannot be read counts as 0, the safe side.
    pub(crate) fn of<'a>(lines: impl Iterator<Item = &'a HeaderValue>) -> Self {
        let mut control = Self::default();
        for line in lines {
            split_list(line.as_bytes(), |part| control.take(part));
        }
        control
    }

    fn take(&mut self, part: &[u8]) {
        let mut halves = part.splitn(2, |&b| b == b'=');
        let name = halves.next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
        let value = halves.next().map(|value| value.trim_ascii());
        let seconds = || {
            let text = value
                .map(|value| value.strip_prefix(b"\"").and_then(|v| v.strip_suffix(b"\"")).unwrap_or(value));
            let text = text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
            if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
                text.parse().unwrap_or(LONGEST).min(LONGEST)
            } else {
                0
            }
        };
        match name.as_slice() {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache = true,
            b"private" => self.private = true,
            b"public" => self.public = true,
            b"must-revalidate" | b"proxy-revalidate" => self.must_revalidate = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"no-transform" => self.no_transform = true,
            b"max-age" => {
                self.max_age = Some(self.max_age.map_or_else(seconds, |known| known.min(seconds())))
            }
            b"s-maxage" => {
                self.s_maxage = Some(self.s_maxage.map_or_else(seconds, |known| known.min(seconds())))
            }
            b"max-stale" => self.max_stale = Some(value.map(|_| seconds())),
            b"min-fresh" => self.min_fresh = Some(seconds()),
            b"stale-while-revalidate" => self.while_fetched = Some(seconds()),
            b"stale-if-error" => self.if_error = Some(seconds()),
            _ => {}
        }
    }
}

/// The parts of a list, where commas in quotes part nothing.
fn split_list(line: &[u8], mut each: impl FnMut(&[u8])) {
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, byte) in line.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                each(line.get(start..at).unwrap_or_default());
                start = at + 1;
            }
            _ => {}
        }
    }
    each(line.get(start..).unwrap_or_default());
}

/// Milliseconds since 1970 of an HTTP date.
fn moment(value: &HeaderValue) -> Option<u64> {
    let time = httpdate::parse_http_date(value.to_str().ok()?).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// How long a response is good for that came now. `otherwise` = its life in seconds where it says nothing of that itself.
pub(crate) fn times(headers: &HeaderMap, control: &Control, otherwise: u64, now: u64) -> Times {
    let said = control.s_maxage.or(control.max_age).map(|seconds| seconds * 1000);
    let life = said.or_else(|| {
        // Of several the last one counts; one that is no date is in the past.
        let expires = headers.get_all(EXPIRES).iter().next_back()?;
        let date = headers.get(DATE).and_then(moment).unwrap_or(now);
        Some(moment(expires).map_or(0, |expires| expires.saturating_sub(date)))
    });
    let age = headers.get(AGE).and_then(|age| age.to_str().ok()?.trim().parse::<u64>().ok()).unwrap_or(0);
    let strict = control.must_revalidate || control.s_maxage.is_some();
    let grace = |seconds: Option<u64>| if strict { 0 } else { seconds.unwrap_or_default() * 1000 };
    Times {
        stored: now,
        age: age.min(LONGEST) * 1000,
        life: life.unwrap_or(otherwise * 1000).min(LONGEST * 1000),
        while_fetched: grace(control.while_fetched),
        if_error: grace(control.if_error),
    }
}

/// The headers that a response varies by, sorted; `None` = by something that nobody can know.
pub(crate) fn vary(headers: &HeaderMap) -> Option<Vec<HeaderName>> {
    let mut names = Vec::new();
    for line in headers.get_all(VARY) {
        for name in line.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii).filter(|n| !n.is_empty()) {
            names.push(HeaderName::from_bytes(name).ok().filter(|_| name != b"*")?);
        }
    }
    names.sort_unstable_by(|a, b| a.as_str().cmp(b.as_str()));
    names.dedup();
    Some(names)
}

/// What a request says for itself.
pub(crate) fn of_request(headers: &HeaderMap) -> Control {
    Control::of(headers.get_all(CACHE_CONTROL).iter())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(lines: &[&'static str]) -> Control {
        Control::of(lines.iter().map(|line| HeaderValue::from_static(line)).collect::<Vec<_>>().iter())
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    #[test]
    fn directives_are_read_whatever_their_spelling() {
        let read =
            control(&["Max-Age=\"5\", x=\"a,no-store\", S-MAXAGE = 7", "private=\"set-cookie\", max-stale"]);
        assert_eq!(
            (read.max_age, read.s_maxage, read.private, read.no_store),
            (Some(5), Some(7), true, false)
        );
        assert_eq!((read.max_stale, control(&["max-stale=3"]).max_stale), (Some(None), Some(Some(3))));
        assert_eq!(control(&["max-age=x"]).max_age, Some(0));
        assert_eq!(control(&["max-age=99999999999999999999"]).max_age, Some(LONGEST));
        assert_eq!(control(&["max-age=9, max-age=2"]).max_age, Some(2));
    }

    #[test]
    fn lives_come_from_the_response_before_the_configuration() {
        let date = ("date", "Thu, 01 Jan 1970 00:00:10 GMT");
        let life = |pairs: &[(&'static str, &'static str)]| {
            let map = headers(pairs);
            times(&map, &Control::of(map.get_all(CACHE_CONTROL).iter()), 300, 20_000).life
        };
        assert_eq!(life(&[]), 300_000);
        assert_eq!(life(&[date, ("expires", "Thu, 01 Jan 1970 00:00:40 GMT")]), 30_000);
        assert_eq!(life(&[date, ("expires", "Thu, 01 Jan 1970 00:00:05 GMT")]), 0);
        assert_eq!(life(&[("expires", "0")]), 0);
        assert_eq!(life(&[("cache-control", "max-age=9"), ("expires", "0")]), 9_000);
        let map = headers(&[("age", "7")]);
        let times = times(&map, &control(&["stale-if-error=5, s-maxage=3"]), 300, 20_000);
        assert_eq!((times.age, times.life, times.if_error), (7000, 3000, 0));
    }

    #[test]
    fn what_varies_by_anything_is_told() {
        assert_eq!(vary(&headers(&[("vary", "B, a,,b")])).unwrap(), ["a", "b"]);
        assert_eq!(vary(&headers(&[("vary", "a, *")])), None);
        assert_eq!(vary(&headers(&[])).unwrap().len(), 0);
    }
}
