//! `towpath completions`.

use crate::cli::Cli;
use crate::exit::Outcome;
use crate::screen::Screen;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  towpath completions bash > /etc/bash_completion.d/towpath\n  towpath completions zsh > \"${fpath[1]}/_towpath\"\n  towpath completions fish > ~/.config/fish/completions/towpath.fish"
)]
pub(crate) struct CompletionsArgs {
    /// Shell
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(self, screen: &Screen) -> Outcome {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "towpath", &mut script);
        screen.write(&String::from_utf8_lossy(&script))
    }
}
