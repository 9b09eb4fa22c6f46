//! A response that is kept.

use bytes::Bytes;
use http::header::{AGE, CACHE_CONTROL, ETAG, HeaderMap, HeaderName, HeaderValue, LAST_MODIFIED};
use std::sync::Arc;

/// Status and headers, as the upstream sent them.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
}

/// Where a body is.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// Head and body in memory.
    Memory(Arc<Head>, Bytes),
    /// In files with this name.
    Disk(Arc<str>),
}

/// What is known of a response without looking at it.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) body: Body,
    /// Bytes of the body.
    pub(crate) length: u64,
    /// What it takes of the store.
    pub(crate) size: u64,
    pub(crate) times: Times,
}

/// How long a response is good for; milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Times {
    /// When it came, since 1970.
    pub(crate) stored: u64,
    /// How old it was then.
    pub(crate) age: u64,
    /// The age up to which it is fresh.
    pub(crate) life: u64,
    /// How long after that it may be given while a newer one is fetched.
    pub(crate) while_fetched: u64,
    /// How long after that it may be given when no newer one can be fetched.
    pub(crate) if_error: u64,
}

impl Times {
    /// Its age.
    pub(crate) fn age_at(&self, now: u64) -> u64 {
        self.age + now.saturating_sub(self.stored)
    }

    /// Whether it may be given as it is.
    pub(crate) fn is_fresh(&self, now: u64) -> bool {
        self.age_at(now) < self.life
    }

    /// Whether it may be given while a newer one is fetched.
    pub(crate) fn serves_meanwhile(&self, now: u64) -> bool {
        self.age_at(now) < self.life.saturating_add(self.while_fetched)
    }

    /// Whether it may be given when no newer one can be fetched.
    pub(crate) fn serves_on_error(&self, now: u64) -> bool {
        self.if_error > 0 && self.age_at(now) < self.life.saturating_add(self.if_error)
    }
}

/// Headers that say nothing to the next who gets the response.
const HOP: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "x-request-id",
    "apisix-cache-status",
];

impl Head {
    /// What is kept of a head.
    pub(crate) fn of(status: u16, headers: &HeaderMap) -> Self {
        let mut kept = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            let hop = HOP.contains(&name.as_str()) || name.as_str().contains("ratelimit-remaining");
            if !hop && name != AGE {
                kept.append(name.clone(), value.clone());
            }
        }
        Self { status, headers: kept }
    }

    /// The head after the upstream has said that it is still good: what it says anew counts.
    pub(crate) fn renewed(&self, by: &HeaderMap) -> Self {
        let mut renewed = self.clone();
        let news = Self::of(self.status, by).headers;
        for name in news.keys().filter(|name| !name.as_str().starts_with("content-")) {
            renewed.headers.remove(name);
            for value in news.get_all(name) {
                renewed.headers.append(name.clone(), value.clone());
            }
        }
        renewed
    }

    /// Whether the upstream can be asked if it is still good.
    pub(crate) fn validators(&self) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
        let tag = self.headers.get(ETAG).map(|tag| (http::header::IF_NONE_MATCH, tag.clone()));
        let time =
            self.headers.get(LAST_MODIFIED).map(|time| (http::header::IF_MODIFIED_SINCE, time.clone()));
        tag.into_iter().chain(time)
    }

    /// Memory that it takes, about.
    pub(crate) fn size(&self) -> u64 {
        let lines = self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 64);
        lines.sum::<usize>() as u64 + 256
    }

    /// Its `Cache-Control`.
    pub(crate) fn control(&self) -> super::control::Control {
        super::control::Control::of(self.headers.get_all(CACHE_CONTROL).iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_response_is_good_for_depends_on_its_age() {
        let times = Times { stored: 1000, age: 500, life: 2000, while_fetched: 1000, if_error: 3000 };
        assert!(times.is_fresh(2499) && !times.is_fresh(2500));
        assert!(times.serves_meanwhile(3499) && !times.serves_meanwhile(3500));
        assert!(times.serves_on_error(5499) && !times.serves_on_error(5500));
        assert!(!Times { if_error: 0, ..times }.serves_on_error(0));
    }

    #[test]
    fn a_renewed_head_keeps_what_was_not_said_anew() {
        let map = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
            pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
        };
        let old =
            map(&[("etag", "\"1\""), ("x", "1"), ("content-type", "a"), ("connection", "x"), ("age", "9")]);
        let head = Head::of(200, &old).renewed(&map(&[("x", "2"), ("content-type", "b"), ("date", "d")]));
        assert_eq!(
            (head.headers["x"].as_bytes(), head.headers["content-type"].as_bytes()),
            (&b"2"[..], &b"a"[..])
        );
        assert_eq!((head.headers.len(), head.validators().count()), (4, 1));
    }
}
