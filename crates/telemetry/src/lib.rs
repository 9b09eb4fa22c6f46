//! Logging set-up, the printer of error chains, and lines that are not to be said too often.
//!
//! Invariants: logs go to standard error, standard output belongs to what a command prints; libraries only use
//! `tracing`'s macros, the binary calls [`init`] once.
//!
//! Must not: know any other crate of Towpath.

mod held;
mod outlet;
mod seldom;

pub use held::Held;
pub use seldom::{Seldom, SeldomHere};

use std::error::Error;
use std::fmt::Write;
use std::io::IsTerminal;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFormat {
    /// For people; coloured on a terminal.
    #[default]
    Text,
    /// One JSON object a line, for log collectors.
    Json,
}

impl std::str::FromStr for LogFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!("log format {other:?} is not known; use text or json")),
        }
    }
}

/// Why logging was not set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter cannot be read.
    #[error("log filter {0:?} cannot be read; use for example `info` or `warn,towpath_gateway=debug`")]
    Filter(String, #[source] tracing_subscriber::filter::ParseError),
    /// It was set up before.
    #[error("logging is set up already")]
    Twice(#[source] Box<dyn Error + Send + Sync>),
}

/// Sets up logging to standard error for the whole process. `filter` is in the syntax of `RUST_LOG`.
pub fn init(format: LogFormat, filter: &str) -> Result<(), TelemetryError> {
    set_up(format, filter, std::io::stderr().is_terminal(), &Held::released())
}

/// Like [`init`], but lines are held back until the result is released or dropped; for a start screen that should come
/// first. `ansi` = with colours.
pub fn init_held(format: LogFormat, filter: &str, ansi: bool) -> Result<Held, TelemetryError> {
    let held = Held::new();
    set_up(format, filter, ansi, &held)?;
    Ok(held)
}

fn set_up(format: LogFormat, filter: &str, ansi: bool, held: &Held) -> Result<(), TelemetryError> {
    let filter = EnvFilter::builder()
        .parse(filter)
        .map_err(|error| TelemetryError::Filter(filter.to_owned(), error))?;
    // The library's own word about a failed write goes to standard error by a macro that panics when that fails too.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(held.writer())
        .log_internal_errors(false);
    let done = match format {
        LogFormat::Text => builder.with_ansi(ansi).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).try_init(),
    };
    done.map_err(TelemetryError::Twice)
}

/// Waits until what was logged so far is written, at most for so long: for the end of a process.
pub fn flush(wait: Duration) {
    outlet::Outlet::stderr().flush(wait);
}

/// The error and all that caused it, each layer in its own words: `a: b: c`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let layer = error.to_string();
        // Some libraries repeat their source's text in their own.
        if !text.ends_with(&layer) {
            // Writing to a string does not fail.
            let _ = write!(text, ": {layer}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Layer {
        #[error("the top")]
        Top(#[source] Box<Layer>),
        #[error("the middle: the bottom")]
        Repeats(#[source] Box<Layer>),
        #[error("the bottom")]
        Bottom,
    }

    #[test]
    fn a_chain_names_each_layer_once() {
        let bottom = Box::new(Layer::Bottom);
        assert_eq!(chain(&Layer::Top(bottom)), "the top: the bottom");
        let repeats = Layer::Repeats(Box::new(Layer::Bottom));
        assert_eq!(chain(&Layer::Top(Box::new(repeats))), "the top: the middle: the bottom");
    }

    #[test]
    fn a_filter_that_cannot_be_read_is_named() {
        let error = init(LogFormat::Text, "towpath=loudly").unwrap_err();
        assert!(chain(&error).contains("towpath=loudly"), "{}", chain(&error));
    }

    #[test]
    fn logging_is_set_up_once() {
        init(LogFormat::Json, "info").unwrap();
        assert!(matches!(init(LogFormat::Json, "info"), Err(TelemetryError::Twice(_))));
    }
}
