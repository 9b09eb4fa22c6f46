//! Which headers of interest a request has, found in one pass: most requests have few of them, and a look-up of an absent
//! one in the map costs as much as one of a present one.

use http::HeaderMap;

/// Headers that are looked up for every request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Of {
    Cookie = 1,
    Baggage = 2,
    Traceparent = 4,
    Connection = 8,
    Te = 16,
    Expect = 32,
    Upgrade = 64,
    Via = 128,
    Forwarded = 256,
    XForwarded = 512,
    XRequestId = 1024,
}

/// The set of them that a request has.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Present(u16);

impl Present {
    /// Looks through all headers once.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let bits = headers.keys().map(|name| match name.as_str() {
            "cookie" => Of::Cookie as u16,
            "baggage" => Of::Baggage as u16,
            "traceparent" => Of::Traceparent as u16,
            "connection" => Of::Connection as u16,
            "te" => Of::Te as u16,
            "expect" => Of::Expect as u16,
            "upgrade" => Of::Upgrade as u16,
            "via" => Of::Via as u16,
            "forwarded" => Of::Forwarded as u16,
            "x-request-id" => Of::XRequestId as u16,
            name if name.starts_with("x-forwarded-") => Of::XForwarded as u16,
            _ => 0,
        });
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether it is there.
    pub(crate) fn has(self, what: Of) -> bool {
        self.0 & what as u16 != 0
    }
}
