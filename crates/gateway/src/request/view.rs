//! A request as the routing table looks at it.

use super::present::Of;
use super::record::Record;
use http::HeaderMap;
use std::net::IpAddr;
use towpath_route::RequestView;
use towpath_route::vars::Value;

/// A client's request.
pub(crate) struct View<'a> {
    pub(crate) record: &'a Record,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) client: IpAddr,
    pub(crate) inside: bool,
}

impl RequestView for View<'_> {
    fn header(&self, name: &str, nth: usize) -> Option<&[u8]> {
        let present = self.record.present;
        let absent = (name == "cookie" && !present.has(Of::Cookie))
            || (name == "baggage" && !present.has(Of::Baggage));
        if absent {
            return None;
        }
        if nth == 0 {
            return self.headers.get(name).map(http::HeaderValue::as_bytes);
        }
        self.headers.get_all(name).iter().nth(nth).map(http::HeaderValue::as_bytes)
    }

    fn path(&self) -> &str {
        self.record.uri.path()
    }

    fn query(&self) -> Option<&str> {
        self.record.uri.query()
    }

    fn client(&self) -> Option<IpAddr> {
        Some(self.client)
    }

    fn inside(&self) -> bool {
        self.inside
    }

    fn method(&self) -> &str {
        self.record.method.as_str()
    }

    fn scheme(&self) -> &str {
        self.record.scheme()
    }

    fn host(&self) -> Option<&[u8]> {
        Some(self.record.host())
    }

    fn port(&self) -> Option<u16> {
        self.record.conn.local.map(|local| local.port())
    }

    fn variable(&self, name: &str) -> Option<Value<'_>> {
        crate::plugins::vars::Vars { record: self.record, headers: self.headers, reply: None }
            .other(name)
            .map(crate::plugins::vars::value)
    }
}
