//! Whether a subscription still lives. A server may forget one while the connection to it stands: nothing ends, nothing
//! comes. But what is subscribed to has a rhythm (managers tell every 2 s at which revision they are, cells say what they
//! run), so silence is a sign.

use towpath_wire::cell::ANNOUNCE_INTERVAL_MS;

/// Silence that is tolerated at first: three signs of life in a row did not come.
const SILENT_MS: u64 = 3 * ANNOUNCE_INTERVAL_MS;
/// A random part is added, so that gateways that a server forgot at one moment do not come back at one moment.
const SPREAD_MS: u64 = ANNOUNCE_INTERVAL_MS;
/// Silence that is tolerated once making the subscription anew has changed nothing for long: nobody speaks.
const SILENT_MOST_MS: u64 = 60_000;

/// When a subscription was last heard.
#[derive(Debug)]
pub(super) struct Signs {
    since_ms: u64,
    patience_ms: u64,
    spread_ms: u64,
}

impl Signs {
    /// Of a subscription that was made now.
    pub(super) fn new(now_ms: u64, random: u64) -> Self {
        Self { since_ms: now_ms, patience_ms: SILENT_MS, spread_ms: random % SPREAD_MS }
    }

    /// Something came.
    pub(super) fn heard(&mut self, now_ms: u64) {
        (self.since_ms, self.patience_ms) = (now_ms, SILENT_MS);
    }

    /// Whether nothing has come for too long, while the bus was up all the time.
    pub(super) fn are_missing(&self, now_ms: u64, up_since_ms: Option<u64>) -> bool {
        let Some(up_ms) = up_since_ms else { return false };
        now_ms.saturating_sub(self.since_ms.max(up_ms)) >= self.patience_ms + self.spread_ms
    }

    /// It was made anew.
    pub(super) fn renewed(&mut self, now_ms: u64, random: u64) {
        self.since_ms = now_ms;
        self.patience_ms = (self.patience_ms * 2).min(SILENT_MOST_MS);
        self.spread_ms = random % SPREAD_MS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_while_the_bus_is_up_counts() {
        let mut signs = Signs::new(1000, 5);
        assert!(!signs.are_missing(1_000_000, None));
        assert!(!signs.are_missing(1_000_000, Some(999_000)));
        assert!(
            !signs.are_missing(1004 + SILENT_MS, Some(0)) && signs.are_missing(1005 + SILENT_MS, Some(0))
        );
        signs.heard(5000);
        assert!(!signs.are_missing(1005 + SILENT_MS, Some(0)));
    }

    #[test]
    fn where_nobody_speaks_it_is_tried_ever_more_rarely() {
        let mut signs = Signs::new(0, 0);
        let mut tries = Vec::new();
        for now_ms in 0..600_000 {
            if signs.are_missing(now_ms, Some(0)) {
                signs.renewed(now_ms, 0);
                tries.push(now_ms);
            }
        }
        assert_eq!(tries[..4], [6000, 18_000, 42_000, 90_000]);
        assert!(tries.len() < 14, "{tries:?}");
        signs.heard(600_000);
        assert!(signs.are_missing(600_000 + SILENT_MS, Some(0)));
    }
}
