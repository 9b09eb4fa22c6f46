//! The base URL of the API.

use std::fmt;
use std::str::FromStr;

/// `http://127.0.0.1:7700`, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    tls: bool,
    host: String,
    port: u16,
    path: String,
}

impl Address {
    /// Whether TLS is used.
    pub(crate) fn tls(&self) -> bool {
        self.tls
    }

    /// Host name or address, without brackets.
    pub(crate) fn host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }

    /// Port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Path before `/v1`, without a slash at its end.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// What stands in the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let default = if self.tls { 443 } else { 80 };
        if self.port == default { self.host.clone() } else { format!("{}:{}", self.host, self.port) }
    }

    /// Whether it is this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let host = self.host();
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl Default for Address {
    /// Where the API of a platform on this machine is: `http://127.0.0.1:7700`.
    fn default() -> Self {
        Self { tls: false, host: "127.0.0.1".into(), port: 7700, path: String::new() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

impl FromStr for Address {
    type Err = String;

    /// Empty text is the usual address: an empty variable counts as none.
    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let wrong = |why: &str| {
            format!("{text:?} is not the URL of an API: {why}; write for example http://127.0.0.1:7700")
        };
        let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("it does not begin with http:// or https://")),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(wrong("it has a user in it; the token goes into TOWPATH_TOKEN"));
        }
        let after_bracket = authority.rfind(']').map_or(0, |at| at + 1);
        let (host, port) = match authority.get(after_bracket..).and_then(|tail| tail.rfind(':')) {
            Some(colon) => {
                let (host, port) = authority.split_at(after_bracket + colon);
                let port =
                    port.trim_start_matches(':').parse().map_err(|_| wrong("its port is not a number"))?;
                (host, port)
            }
            None => (authority, if tls { 443 } else { 80 }),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._[]:".contains(c);
        if host.is_empty() || !host.chars().all(plain) {
            return Err(wrong("it has no host name"));
        }
        let path = path.trim_end_matches('/');
        if path.contains(['?', '#', ' ']) {
            return Err(wrong("it has more than a path behind the host"));
        }
        Ok(Self { tls, host: host.to_ascii_lowercase(), port, path: path.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_written_again() {
        for (text, authority, path, loopback) in [
            ("http://127.0.0.1:7700", "127.0.0.1:7700", "", true),
            ("https://paas.example.com/towpath/", "paas.example.com", "/towpath", false),
            ("http://[::1]:80", "[::1]", "", true),
            ("http://LOCALHOST:7700/", "localhost:7700", "", true),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.authority(), authority);
            assert_eq!(address.path(), path);
            assert_eq!(address.is_loopback(), loopback);
            assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
        }
        assert_eq!(Address::default().to_string(), "http://127.0.0.1:7700");
        for bad in ["127.0.0.1:7700", "http://", "http://a:b", "http://u@h", "http://a b/", "ftp://x"] {
            assert!(bad.parse::<Address>().unwrap_err().contains("write for example"), "{bad}");
        }
    }
}
