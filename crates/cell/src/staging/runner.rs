//! Runs the steps of a recipe.

use super::Refusal;
use super::job::blocking;
use super::lines::Lines;
use super::recipe::{OnFailure, Places, Step};
use super::report::Reporter;
use super::stop::Stop;
use super::tools::{ToolBox, install};
use crate::build::{BuildCommand, BuildExit, BuildLauncher};
use std::collections::{BTreeMap, VecDeque};
use towpath_types::{ByteSize, ErrorCode};

/// Lines of a failed tool that are repeated in the error.
const LAST_LINES: usize = 25;
/// Open files of a build.
const FILES: u64 = 65_536;
/// Processes and threads of a build's own user.
const PROCESSES: u64 = 2_048;
/// The same where the build shares the cell's user: the kernel counts all that this user runs, a desktop included.
const PROCESSES_SHARED: u64 = 1 << 20;
/// Memory of a build's process tree.
const MEMORY: ByteSize = ByteSize(4 << 30);

/// Runs steps one after another, as one user, in one directory.
pub(crate) struct Runner<'a> {
    pub(crate) launcher: &'a BuildLauncher,
    pub(crate) user: Option<u32>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) places: &'a Places,
    pub(crate) tools: &'a ToolBox,
    pub(crate) reporter: &'a Reporter,
    pub(crate) stop: &'a Stop,
}

impl Runner<'_> {
    /// Runs a step to its end.
    pub(crate) async fn run(&self, step: &Step) -> Result<(), Refusal> {
        self.stop.check()?;
        if let Some(title) = &step.title {
            self.reporter.step(title).await;
        }
        let program = match step.program.contains('/') {
            true => step.program.clone().into(),
            false => {
                let (tools, tool) = (self.tools.clone(), step.program.clone());
                blocking(move || tools.need(&tool)).await?.into_os_string()
            }
        };
        let mut env = self.env.clone();
        env.extend(step.env.clone());
        let command = BuildCommand {
            program,
            args: step.args.iter().map(Into::into).collect(),
            dir: self.places.app.clone(),
            env,
            user: self.user,
            memory: Some(MEMORY),
            files: FILES,
            processes: if self.user.is_some() { PROCESSES } else { PROCESSES_SHARED },
        };
        let (exit, last) = self.follow(command).await?;
        let how = match exit {
            BuildExit::Code(0) => return Ok(()),
            BuildExit::Code(code) => format!("ended with status {code}"),
            BuildExit::Signal(signal) => format!("was ended by signal {signal}"),
            BuildExit::OutOfMemory => format!("used more than {MEMORY} of memory and was ended"),
            BuildExit::Lost => "was lost: its supervisor was killed".to_owned(),
        };
        self.failed(step, &how, &last).await
    }

    async fn failed(&self, step: &Step, how: &str, last: &VecDeque<String>) -> Result<(), Refusal> {
        let title = step.title.as_deref().unwrap_or("A step of the build");
        let program = if step.program.contains('/') { title } else { &step.program };
        let mut message = format!("{program} {how}");
        for line in last {
            message.push_str("\n  ");
            message.push_str(line);
        }
        match step.on_failure {
            OnFailure::Fail => Err(Refusal { code: ErrorCode::BuildFailed, message }),
            OnFailure::Missing(tool) => {
                let message = format!(
                    "{message}\nA part of it may be missing on the cell; on Debian or Ubuntu: {}",
                    install(tool)
                );
                Err(Refusal { code: ErrorCode::ToolMissing, message })
            }
            OnFailure::Note(note) => {
                self.reporter.line(format!("note: {note}")).await;
                Ok(())
            }
        }
    }

    /// Runs a command, passes its output on, and answers how it ended and its last lines.
    async fn follow(&self, command: BuildCommand) -> Result<(BuildExit, VecDeque<String>), Refusal> {
        let broken = |error: &dyn std::error::Error| {
            let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            Refusal { code: ErrorCode::Internal, message: format!("{error}{source}") }
        };
        let mut process = self.launcher.spawn(command).await.map_err(|error| broken(&error))?;
        let (mut lines, mut last) = (Lines::default(), VecDeque::new());
        loop {
            let chunk = tokio::select! {
                chunk = process.next_output() => chunk,
                why = self.stop.wait() => {
                    process.kill().await;
                    return Err(why);
                }
            };
            let mut complete = Vec::new();
            match &chunk {
                Some(chunk) => lines.push(chunk, |line| complete.push(line)),
                None => complete.extend(lines.rest()),
            }
            for line in complete.into_iter().filter(|line| !line.is_empty()) {
                if last.len() == LAST_LINES {
                    last.pop_front();
                }
                last.push_back(line.clone());
                self.reporter.line(line).await;
            }
            if chunk.is_none() {
                break;
            }
        }
        tokio::select! {
            exit = process.wait() => Ok((exit, last)),
            why = self.stop.wait() => {
                process.kill().await;
                Err(why)
            }
        }
    }
}
