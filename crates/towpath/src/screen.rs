//! Where output goes: text to stdout and stderr, with colours only where a person looks.

pub(crate) mod live;
pub(crate) mod plain;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod time;

use crate::exit::{Exit, Failure, Outcome};
use serde_json::Value;
use std::io::{IsTerminal, Write};
use style::{Paint, Style};

/// When colours are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set or TERM is "dumb".
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How a verb prints what it found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Table,
    /// For people with wide terminals: ids and digests in full, more columns.
    Wide,
    /// The API's JSON.
    Json,
}

/// Standard output and error with what is known of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Screen {
    /// Format of results.
    pub(crate) format: Format,
    /// Whether stdout is a terminal.
    pub(crate) terminal: bool,
    /// Whether stderr is a terminal.
    pub(crate) err_terminal: bool,
    out: Paint,
    err: Paint,
}

impl Screen {
    /// Looks at the standard streams and the environment.
    pub(crate) fn new(color: ColorChoice, format: Format) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let err_terminal = std::io::stderr().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let paint = |terminal: bool| match color {
            ColorChoice::Always => Paint::On,
            ColorChoice::Never => Paint::Off,
            ColorChoice::Auto if terminal && !plain => Paint::On,
            ColorChoice::Auto => Paint::Off,
        };
        Self { format, terminal, err_terminal, out: paint(terminal), err: paint(err_terminal) }
    }

    /// Whether results are printed as JSON.
    pub(crate) fn json(&self) -> bool {
        self.format == Format::Json
    }

    /// Colours for stdout.
    pub(crate) fn paint(&self) -> Paint {
        self.out
    }

    /// Whether stderr has colours.
    pub(crate) fn paints_errors(&self) -> bool {
        self.err == Paint::On
    }

    /// Writes a line to stdout. A closed pipe ends the program quietly.
    pub(crate) fn line(&self, text: impl AsRef<str>) -> Outcome {
        self.write(&format!("{}\n", text.as_ref()))
    }

    /// Writes text to stdout as it is.
    pub(crate) fn write(&self, text: &str) -> Outcome {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| stdout_failed(&error))
    }

    /// Prints a JSON document, indented.
    pub(crate) fn json_document(&self, value: &Value) -> Outcome {
        let text = serde_json::to_string_pretty(value)
            .map_err(|error| Failure::new(Exit::Failed, format!("cannot write JSON: {error}")))?;
        self.line(text)
    }

    /// Says something beside the result, on stderr.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        let _ = writeln!(std::io::stderr().lock(), "{}", self.err.text(Style::Dim, text));
    }

    /// Says that something deserves attention, on stderr.
    pub(crate) fn warn(&self, text: impl AsRef<str>) {
        let head = self.err.text(Style::Warn, "warning:");
        let _ = writeln!(std::io::stderr().lock(), "{head} {}", text.as_ref());
    }

    /// Says what went wrong, on stderr.
    pub(crate) fn failure(&self, failure: &Failure) {
        let head = self.err.text(Style::Bad, "error:");
        let mut err = std::io::stderr().lock();
        for line in &failure.lines {
            let text = match line.split_once("; hint: ") {
                Some((what, hint)) => format!("{what}; {} {hint}", self.err.text(Style::Strong, "hint:")),
                None => line.clone(),
            };
            let _ = writeln!(err, "{head} {text}");
        }
    }
}

fn stdout_failed(error: &std::io::Error) -> Failure {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        Failure::silent(Exit::Failed)
    } else {
        Failure::io("cannot write the output", error)
    }
}
