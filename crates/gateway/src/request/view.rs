//! A request as the routing table looks at it.

use super::present::{Of, Present};
use http::{HeaderMap, Uri};
use std::net::IpAddr;
use towpath_route::RequestView;

/// A client's request.
pub(crate) struct View<'a> {
    pub(crate) headers: &'a HeaderMap,
    pub(crate) uri: &'a Uri,
    pub(crate) client: IpAddr,
    pub(crate) inside: bool,
    pub(crate) present: Present,
}

impl RequestView for View<'_> {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        let absent = (name == "cookie" && !self.present.has(Of::Cookie))
            || (name == "baggage" && !self.present.has(Of::Baggage));
        if absent {
            return None;
        }
        if nth == 0 {
            return self.headers.get(name).map(http::HeaderValue::as_bytes);
        }
        self.headers.get_all(name).iter().nth(nth).map(http::HeaderValue::as_bytes)
    }

    fn path(&self) -> &str {
        self.uri.path()
    }

    fn query(&self) -> Option<&str> {
        self.uri.query()
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.client)
    }

    fn inside(&self) -> bool {
        self.inside
    }
}
