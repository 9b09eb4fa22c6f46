//! Which request headers pass a gateway, and so can carry a lane.

/// Whether a client's header of this name (in lower case) is passed on. What gateways write themselves, and what belongs to
/// one hop, is not.
#[inline]
pub fn header_passes(name: &str) -> bool {
    match name {
        "host"
        | "connection"
        | "keep-alive"
        | "proxy-connection"
        | "proxy-authorization"
        | "te"
        | "upgrade"
        | "transfer-encoding"
        | "content-length"
        | "http2-settings"
        | "via"
        | "forwarded"
        | "x-forwarded-for"
        | "x-forwarded-host"
        | "x-forwarded-proto"
        | "x-forwarded-port"
        | "x-forwarded-prefix"
        | "x-real-ip"
        | "x-request-id"
        | "traceparent" => false,
        name => !name.contains('_') || !imitates_ours(name),
    }
}

/// CGI-like servers read `_` in a name as `-`.
fn imitates_ours(name: &str) -> bool {
    let same = |ours: &str| {
        name.len() == ours.len()
            && name.bytes().zip(ours.bytes()).all(|(a, b)| a == b || (a == b'_' && b == b'-'))
    };
    [
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-forwarded-prefix",
        "x-real-ip",
        "x-request-id",
        "x-consumer-username",
        "x-consumer-custom-id",
        "x-credential-identifier",
    ]
    .into_iter()
    .any(same)
}

/// Whether a request header of this name can carry a lane: one that gateways drop or write themselves cannot.
pub(crate) fn can_name_lanes(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        && header_passes(&name)
        && !matches!(name.as_str(), "baggage" | "cookie" | "expect" | "tracestate" | "trailer")
}
