//! What a recipe is: a card of facts, a look at the source, steps to run, and how to start what they made.
//!
//! A recipe never runs anything and never writes anything itself: its steps are data, so that they can be run by whatever
//! isolates builds.

use super::Refusal;
use super::source::Source;
use super::tools::ToolBox;
use std::collections::BTreeMap;
use std::path::PathBuf;
use towpath_types::ErrorCode;
use towpath_types::health::HealthCheck;

/// Facts about a recipe.
pub(crate) struct Card {
    /// Its name, for `builder = "…"`.
    pub(crate) name: &'static str,
    /// What it recognises a source by, for people.
    pub(crate) looks_for: &'static str,
    /// Tools without which it can build nothing.
    pub(crate) tools: &'static [&'static str],
}

/// A way to build and start one kind of app.
pub(crate) trait Recipe: Send + Sync {
    /// Its facts.
    fn card(&self) -> &'static Card;

    /// Whether the source is of this kind; the answer says by what it was recognised.
    fn detect(&self, bench: &Bench<'_>) -> Option<String>;

    /// What to run, in order.
    fn steps(&self, bench: &Bench<'_>) -> Result<Vec<Step>, Refusal>;

    /// How to start it, when the steps are done.
    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal>;
}

/// What a recipe works on.
pub(crate) struct Bench<'a> {
    /// The app's directory.
    pub(crate) source: &'a Source,
    /// Tools on the cell.
    pub(crate) tools: &'a ToolBox,
    /// The start command that was given, in the request or in the Procfile.
    pub(crate) command: Option<&'a str>,
    /// Where steps may write what is not part of the app.
    pub(crate) places: &'a Places,
    /// Name of the app.
    pub(crate) app: &'a str,
}

/// Directories of a build, as its steps see them.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The app's directory, where steps run. What is in it at the end is the artifact.
    pub(crate) app: PathBuf,
    /// Home; gone after the build.
    pub(crate) home: PathBuf,
    /// Temporary and intermediate files; gone after the build.
    pub(crate) scratch: PathBuf,
    /// Kept for the next build of the same app, as long as it is not too large.
    pub(crate) cache: PathBuf,
}

/// Something to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// What it does, for people; `None` = not worth a title.
    pub(crate) title: Option<String>,
    /// Program: a tool by name, or a path.
    pub(crate) program: String,
    /// Arguments.
    pub(crate) args: Vec<String>,
    /// Variables beside those of the build.
    pub(crate) env: BTreeMap<String, String>,
    /// What it means when it fails.
    pub(crate) on_failure: OnFailure,
}

/// What a step's failure means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// The build has failed.
    Fail,
    /// Go on, after saying this.
    Note(&'static str),
    /// This tool is missing.
    Missing(&'static str),
}

impl Step {
    /// Runs a tool.
    pub(crate) fn tool(title: &str, program: &str, args: &[&str]) -> Self {
        Self {
            title: Some(title.to_owned()),
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            on_failure: OnFailure::Fail,
        }
    }

    /// Runs a shell script, which ends at the first failure.
    pub(crate) fn script(title: Option<&str>, script: &str) -> Self {
        let mut step = Self::tool("", "/bin/sh", &["-ec", script]);
        step.title = title.map(str::to_owned);
        step
    }

    /// Writes a small file in the app's directory.
    pub(crate) fn write(path: &str, content: &str) -> Self {
        Self::script(None, "mkdir -p -- \"$(dirname -- \"$TO\")\"; printf %s \"$CONTENT\" > \"$TO\"")
            .env("TO", path)
            .env("CONTENT", content)
    }

    /// With this variable.
    pub(crate) fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.insert(name.to_owned(), value.into());
        self
    }

    /// With this meaning of failure.
    pub(crate) fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }
}

/// How to start what was built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The recipe's command; a given command takes its place.
    pub(crate) command: String,
    /// Whether [`super::command::ENV_FILE`] was written.
    pub(crate) env_file: bool,
    /// Environment of instances; the app's own settings win.
    pub(crate) env: BTreeMap<String, String>,
    /// Default health check.
    pub(crate) health: HealthCheck,
    /// Remarks for people.
    pub(crate) notes: Vec<String>,
}

impl Launch {
    /// Starts with this command.
    pub(crate) fn new(command: impl Into<String>) -> Self {
        Self {
            command: command.into(),
            env_file: false,
            env: BTreeMap::new(),
            health: HealthCheck::default(),
            notes: Vec::new(),
        }
    }

    /// With this variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// With the shell's settings of [`super::command::ENV_FILE`].
    pub(crate) fn env_file(mut self) -> Self {
        self.env_file = true;
        self
    }

    /// With a remark.
    pub(crate) fn note(mut self, note: &str) -> Self {
        self.notes.push(note.to_owned());
        self
    }
}

/// The address to listen on: the cell says it, everywhere if it does not.
pub(crate) const HOST: &str = "${HOST:-0.0.0.0}";

/// The refusal when a recipe cannot find out how to start the app.
pub(crate) fn no_command(looked_for: &str) -> Refusal {
    Refusal {
        code: ErrorCode::NoBuilder,
        message: format!(
            "it is not clear how to start the app: there is {looked_for}; say it with a Procfile that has a line \
             'web: <command>', or with --command; the app must listen on the port in $PORT"
        ),
    }
}
