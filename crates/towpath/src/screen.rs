//! Where output goes: text to stdout and stderr, with colours only where a person looks.

pub(crate) mod live;
pub(crate) mod plain;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod time;
mod wrap;

use crate::exit::{Exit, Failure, HINT, Outcome};
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

/// Text behind `indent` columns that goes on below itself.
pub(crate) fn wrapped(text: &str, columns: usize, indent: usize) -> String {
    wrap::wrap(text, columns, indent, indent)
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

    /// Columns that tables may take: the terminal's, unless all columns were asked for; `None` = as many as they need.
    pub(crate) fn columns(&self) -> Option<usize> {
        if !self.terminal || self.format == Format::Wide {
            return None;
        }
        let (_, columns) = console::Term::stdout().size_checked()?;
        Some(usize::from(columns).max(40))
    }

    /// Text of a titled line that goes on below itself, indented, where the terminal ends.
    pub(crate) fn fit(&self, text: &str, indent: usize) -> String {
        match self.columns() {
            Some(columns) => wrapped(text, columns, indent),
            None => text.to_owned(),
        }
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

    /// Says what was done, on stderr; to programs, as a document on stdout.
    pub(crate) fn done(&self, text: impl AsRef<str>, document: Value) -> Outcome {
        if self.json() {
            return self.json_document(&document);
        }
        self.note(text);
        Ok(())
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

    /// Says what went wrong, on stderr: a line for each error; on a terminal, in lines that fit; one JSON document where
    /// results are JSON.
    pub(crate) fn failure(&self, failure: &Failure) {
        if self.json() && !failure.lines.is_empty() {
            let _ = writeln!(std::io::stderr().lock(), "{:#}", failure.document());
            return;
        }
        let columns = wrap::columns(self.err_terminal);
        let mut err = std::io::stderr().lock();
        for line in &failure.lines {
            let _ = writeln!(err, "{}", self.error_text(line, columns));
        }
    }

    /// `error: what; hint: what would be right`. With columns, the hint has lines of its own. Further lines of an error
    /// are indented.
    fn error_text(&self, error: &str, columns: Option<usize>) -> String {
        let (what, hint) = match error.rsplit_once(HINT) {
            Some((what, hint)) => (what, Some(hint)),
            None => (error, None),
        };
        let (first, more) = what.split_once('\n').unwrap_or((what, ""));
        let fit = |text: &str, head: usize| match columns {
            Some(columns) => wrap::wrap(text, columns, head, 2),
            None => text.to_owned(),
        };
        let mut out = format!("{} {}", self.err.text(Style::Bad, "error:"), fit(first, 7));
        for line in more.lines() {
            out += &format!("\n  {line}");
        }
        let head = self.err.text(Style::Strong, "hint:");
        match hint {
            Some(hint) if columns.is_some() || !more.is_empty() => {
                out + &format!("\n  {head} {}", fit(hint, 8))
            }
            Some(hint) => out + &format!("; {head} {hint}"),
            None => out,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_a_document_for_programs() {
        let failure =
            Failure::hinted(Exit::NotFound, "there is no app oen (not_found)", "did you mean \"one\"?");
        let wanted = serde_json::json!({"exit": 4, "code": "not_found", "errors": [
            {"message": "there is no app oen", "hint": "did you mean \"one\"?"}
        ]});
        assert_eq!(failure.coded("not_found").document(), wanted);
        let failure = Failure::new(Exit::Usage, "TOWPATH_ORG: too long");
        assert_eq!(failure.document()["code"], serde_json::Value::Null);
    }

    #[test]
    fn an_error_is_one_line_in_a_pipe_and_fits_a_terminal() {
        let screen = Screen::new(ColorChoice::Never, Format::Table);
        let error = "there is no app oen in default/default (not_found); hint: did you mean \"one\"?";
        assert_eq!(screen.error_text(error, None), format!("error: {error}"));
        assert_eq!(
            screen.error_text(error, Some(40)),
            "error: there is no app oen in\n  default/default (not_found)\n  hint: did you mean \"one\"?"
        );
        let several = "nothing fits\nfound: a, b\nlooked for: c; hint: write c";
        let lines = "error: nothing fits\n  found: a, b\n  looked for: c\n  hint: write c";
        assert_eq!(screen.error_text(several, None), lines);
        assert_eq!(screen.error_text(several, Some(80)), lines);
    }
}
