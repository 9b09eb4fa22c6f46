//! Colours by meaning.

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// Nothing special.
    Plain,
    /// Beside the point.
    Dim,
    /// The point.
    Strong,
    /// All is well.
    Good,
    /// Deserves a look.
    Warn,
    /// Wrong.
    Bad,
    /// A name or an address.
    Name,
}

/// Whether colours are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    /// With colours.
    On,
    /// As plain text.
    Off,
}

impl Paint {
    /// `text` in a style.
    pub(crate) fn text(self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Plain => "",
            Style::Dim => "2",
            Style::Strong => "1",
            Style::Good => "32",
            Style::Warn => "33",
            Style::Bad => "1;31",
            Style::Name => "36",
        };
        if self == Paint::Off || code.is_empty() || text.is_empty() {
            return text.to_owned();
        }
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// The style of a state or phase, by its word.
pub(crate) fn of_state(state: &str) -> Style {
    match state {
        "running" | "ready" | "steady" | "succeeded" | "up" | "ok" | "live" => Style::Good,
        "degraded" | "starting" | "rolling" | "rolling_back" | "waiting" | "draining" | "stopping"
        | "assigned" | "suspect" | "leaving" | "unhealthy" | "pending" | "staging" | "backoff" => Style::Warn,
        "failed" | "crash_loop" | "down" | "lost" | "evicted" => Style::Bad,
        _ => Style::Dim,
    }
}
