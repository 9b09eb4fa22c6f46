//! Where the gateway's knowledge comes from, and how fresh it is. Without fresh news it serves on with what it knows, which from
//! outside looks like health.

use std::fmt::Write;

/// Silence of managers that is worth a word, milliseconds: three of their signs of life did not come.
const SILENT_MS: u64 = 6_500;

/// The sources, as the control thread saw them last. Times are [`crate::clock::now_ms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Whether there is a connection to the bus.
    pub(crate) bus_up: bool,
    /// Since when that is so.
    pub(crate) bus_since_ms: u64,
    /// When a manager was last heard.
    pub(crate) managers_ms: Option<u64>,
    /// When a cell was last heard.
    pub(crate) announce_ms: Option<u64>,
    /// Known cells.
    pub(crate) cells: usize,
    /// Those of them that have been silent for too long.
    pub(crate) stale: usize,
    /// Items of the routing table that cannot be used.
    pub(crate) refused: usize,
}

impl Sources {
    /// Writes them in Prometheus text form.
    pub(super) fn render(&self, out: &mut String, now_ms: u64) {
        let mut gauge = |name: &str, value: String| {
            let _ = writeln!(out, "# TYPE towpath_gateway_{name} gauge\ntowpath_gateway_{name} {value}");
        };
        gauge("bus_up", u8::from(self.bus_up).to_string());
        for (name, at) in
            [("managers_age_seconds", self.managers_ms), ("announce_age_seconds", self.announce_ms)]
        {
            if let Some(at) = at {
                gauge(name, super::exposition::seconds(now_ms.saturating_sub(at).saturating_mul(1000)));
            }
        }
        gauge("cells", self.cells.to_string());
        gauge("stale_cells", self.stale.to_string());
        gauge("refused_items", self.refused.to_string());
    }

    /// What is not as it should be, for people; empty = all is well.
    pub(crate) fn complaints(&self, now_ms: u64) -> Vec<String> {
        let mut said = Vec::new();
        let seconds = |since: u64| now_ms.saturating_sub(since) / 1000;
        if !self.bus_up {
            said.push(format!("the bus has been down for {} s", seconds(self.bus_since_ms)));
        } else if self.managers_ms.unwrap_or(self.bus_since_ms).saturating_add(SILENT_MS) < now_ms {
            let since = self.managers_ms.unwrap_or(self.bus_since_ms);
            said.push(format!("no manager has been heard for {} s", seconds(since)));
        }
        if self.stale > 0 {
            said.push(format!("{} of {} cells are stale", self.stale, self.cells));
        }
        if self.refused > 0 {
            said.push(format!("{} items of the routing table are refused", self.refused));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stale_is_measured_and_said() {
        let well = Sources {
            bus_up: true,
            bus_since_ms: 0,
            managers_ms: Some(9_000),
            announce_ms: Some(8_500),
            cells: 3,
            stale: 0,
            refused: 0,
        };
        assert_eq!(well.complaints(10_000), Vec::<String>::new());
        let mut text = String::new();
        well.render(&mut text, 10_000);
        for line in [
            "towpath_gateway_bus_up 1",
            "towpath_gateway_managers_age_seconds 1",
            "towpath_gateway_announce_age_seconds 1.5",
            "towpath_gateway_cells 3",
            "towpath_gateway_stale_cells 0",
            "towpath_gateway_refused_items 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let ill = Sources { bus_up: false, bus_since_ms: 4_000, stale: 2, refused: 1, ..well };
        assert_eq!(
            ill.complaints(10_000),
            [
                "the bus has been down for 6 s",
                "2 of 3 cells are stale",
                "1 items of the routing table are refused"
            ]
        );
        assert_eq!(well.complaints(20_000), ["no manager has been heard for 11 s"]);
    }
}
