//! Which versions of messages a cluster of builds can speak.
//!
//! A build's protocol rises by one when a message gets a new version. Builds of two protocols that follow each other work
//! side by side: both read what the older one writes, and the newer one writes what the older one reads for as long as one
//! of it is a member. See `docs/adr/0097`.

/// The protocol of this build.
pub const PROTOCOL: u16 = 2;

/// The oldest one that it works with.
pub const OLDEST: u16 = PROTOCOL - 1;

/// What stands in front of the protocol in a build's version, as semantic versioning has it for build metadata.
const MARK: &str = "+protocol.";

/// How a build names itself where others see it: `0.1.0+protocol.2`. The first protocol has no mark.
pub fn name_version(version: &str, protocol: u16) -> String {
    if protocol > 1 { format!("{version}{MARK}{protocol}") } else { version.to_owned() }
}

/// The protocol in a version that [`name_version`] made; 1 if there is none.
pub fn find_protocol(version: &str) -> u16 {
    version.split_once(MARK).and_then(|(_, protocol)| protocol.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_tells_its_protocol() {
        for protocol in [1, 2, 3, 17] {
            assert_eq!(find_protocol(&name_version("0.1.0", protocol)), protocol);
        }
        assert_eq!(name_version("0.1.0", 1), "0.1.0", "as builds before protocols wrote it");
        for odd in ["", "0.1.0+build.5", "0.1.0+protocol.", "0.1.0+protocol.x", "0.1.0+protocol.70000"] {
            assert_eq!(find_protocol(odd), 1, "{odd}");
        }
    }
}
