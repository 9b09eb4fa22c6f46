//! A program that is ready to run.

use crate::staging::Refusal;
use crate::staging::recipe::{Bench, Card, Launch, Recipe, Step, no_command};
use towpath_types::ErrorCode;

pub(super) struct Binary;

static CARD: Card = Card { name: "binary", looks_for: "one executable program (ELF)", tools: &[] };

impl Recipe for Binary {
    fn card(&self) -> &'static Card {
        &CARD
    }

    fn detect(&self, bench: &Bench<'_>) -> Option<String> {
        if bench.command.is_some() {
            return None;
        }
        match programs(bench).as_slice() {
            [one] => Some(one.clone()),
            _ => None,
        }
    }

    fn steps(&self, _: &Bench<'_>) -> Result<Vec<Step>, Refusal> {
        Ok(Vec::new())
    }

    fn launch(&self, bench: &Bench<'_>) -> Result<Launch, Refusal> {
        if let Some(command) = bench.command {
            return Ok(Launch::new(command));
        }
        let programs = programs(bench);
        let [program] = programs.as_slice() else {
            let found = if programs.is_empty() {
                "no executable program"
            } else {
                "more than one executable program"
            };
            return Err(no_command(found));
        };
        let head = bench.source.read_bytes(program).unwrap_or_default();
        if let (Some(machine), Some(own)) = (machine(&head), own_machine())
            && machine != own
        {
            let message = format!(
                "{program} is built for another kind of processor than the cell's ({})",
                std::env::consts::ARCH
            );
            return Err(Refusal { code: ErrorCode::BuildFailed, message });
        }
        Ok(Launch::new(format!("./{program}")))
    }
}

/// Executable ELF files in the top directory.
fn programs(bench: &Bench<'_>) -> Vec<String> {
    let executable =
        bench.source.list("").into_iter().filter(|entry| entry.executable && !entry.name.contains(".so"));
    let names = executable.map(|entry| entry.name).filter(|name| is_plain_name(name));
    names
        .filter(|name| bench.source.read_bytes(name).is_some_and(|head| head.starts_with(b"\x7fELF")))
        .collect()
}

/// Whether the name needs no quoting in a shell.
fn is_plain_name(name: &str) -> bool {
    !name.starts_with('-') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-+".contains(&b))
}

/// `e_machine` of an ELF file.
fn machine(head: &[u8]) -> Option<u16> {
    let bytes: [u8; 2] = head.get(18..20)?.try_into().ok()?;
    Some(if head.get(5) == Some(&2) { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
}

fn own_machine() -> Option<u16> {
    match std::env::consts::ARCH {
        "x86_64" => Some(62),
        "aarch64" => Some(183),
        "riscv64" => Some(243),
        _ => None,
    }
}
