//! A kept response on its way to a client.

use crate::cache::Head;
use crate::cache::entry::Times;
use crate::cache::store::LoadedBody;
use crate::plugins::Answer;
use crate::plugins::exchange::Given;
use bytes::Bytes;
use http::header::{
    AGE, CONTENT_LOCATION, ETAG, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH,
    LAST_MODIFIED,
};

/// What the client has already: the cache judges that itself.
#[derive(Default)]
pub(super) struct Conditions {
    tags: Vec<HeaderValue>,
    since: Option<HeaderValue>,
}

impl Conditions {
    /// Takes them out of a request, since what is kept must be whole.
    pub(super) fn take(headers: &mut HeaderMap) -> Self {
        let tags = headers.get_all(IF_NONE_MATCH).iter().cloned().collect();
        headers.remove(IF_NONE_MATCH);
        Self { tags, since: headers.remove(IF_MODIFIED_SINCE) }
    }

    /// Puts them back into a request whose response is not kept.
    pub(super) fn give_back(self, headers: &mut HeaderMap) {
        for tag in self.tags {
            headers.append(IF_NONE_MATCH, tag);
        }
        if let Some(since) = self.since {
            headers.insert(IF_MODIFIED_SINCE, since);
        }
    }

    /// Whether the client has just this response.
    fn are_met(&self, head: &Head) -> bool {
        if !self.tags.is_empty() {
            let weak = |tag: &[u8]| tag.strip_prefix(b"W/").unwrap_or(tag).to_vec();
            let own = head.headers.get(ETAG).map(|tag| weak(tag.as_bytes()));
            let listed = |line: &HeaderValue| {
                let mut tags = line.as_bytes().split(|&b| b == b',').map(<[u8]>::trim_ascii);
                tags.any(|tag| tag == b"*" || own.as_ref().is_some_and(|own| weak(tag) == *own))
            };
            return self.tags.iter().any(listed);
        }
        let date = |value: &HeaderValue| httpdate::parse_http_date(value.to_str().ok()?).ok();
        let since = self.since.as_ref().and_then(date);
        let modified = head.headers.get(LAST_MODIFIED).and_then(date);
        matches!((since, modified), (Some(since), Some(modified)) if modified <= since)
    }
}

/// The answer that gives it.
pub(super) fn given(
    conditions: &Conditions,
    head: &Head,
    body: LoadedBody,
    times: &Times,
    now: u64,
) -> Given {
    let not_modified = head.status == 200 && conditions.are_met(head);
    let passes = |name: &HeaderName| {
        !not_modified || !name.as_str().starts_with("content-") || name == CONTENT_LOCATION
    };
    let headers = head.headers.iter().filter(|(name, _)| passes(name));
    let mut headers: Vec<_> = headers.map(|(name, value)| (name.clone(), value.clone())).collect();
    headers.push((AGE, (times.age_at(now) / 1000).into()));
    if not_modified {
        return Given { answer: Answer { status: 304, headers, body: Some(Bytes::new()) }, file: None };
    }
    let (bytes, file) = match body {
        LoadedBody::Whole(bytes) => (bytes, None),
        LoadedBody::File(file) => (Bytes::new(), Some(file)),
    };
    Given { answer: Answer { status: head.status, headers, body: Some(bytes) }, file }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn who_has_it_already_is_told_so() {
        let day = "Tue, 15 Nov 1994 12:45:26 GMT";
        let head = Head { status: 200, headers: map(&[(ETAG, "W/\"a\""), (LAST_MODIFIED, day)]) };
        let met = |pairs: &[(HeaderName, &'static str)]| Conditions::take(&mut map(pairs)).are_met(&head);
        assert!(met(&[(IF_NONE_MATCH, "\"b\", \"a\"")]) && met(&[(IF_NONE_MATCH, "*")]));
        assert!(met(&[(IF_MODIFIED_SINCE, day)]));
        assert!(!met(&[(IF_NONE_MATCH, "\"b\""), (IF_MODIFIED_SINCE, day)]), "the tag counts");
        assert!(!met(&[(IF_MODIFIED_SINCE, "Tue, 15 Nov 1994 12:45:25 GMT")]));
        assert!(!met(&[]) && !met(&[(IF_MODIFIED_SINCE, "x")]));
    }
}
