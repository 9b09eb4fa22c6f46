//! Nothing to build: a command says how to start it.

use crate::staging::Refusal;
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step, no_command};

pub(super) struct Procfile;

static CARD: Card = Card {
    name: "procfile",
    looks_for: "a Procfile with a web line, or a start command (--command)",
    tools: &[],
};

impl Recipe for Procfile {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        bench.command.map(|_| "start command".to_owned())
    }

    fn steps(&self, _: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        Ok(Vec::new())
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        bench.command.map(Launch::new).ok_or_else(|| no_command("no start command"))
    }
}
