//! The roles: settings → lock → services → wait for a signal → drain.

mod lock;
mod ports;
mod ready;
mod settings;
mod signals;

use crate::cli::role::{Flags, RoleArgs};
use crate::config::Role;
use crate::exit::Outcome;
use crate::screen::{ColorChoice, Format, Screen};

/// Runs a role until it is told to end.
pub(crate) fn run(role: Role, args: &RoleArgs, flags: Flags, color: ColorChoice) -> Outcome {
    let (settings, file) = settings::load(role, args, flags)?;
    let screen = Screen::new(color, Format::Table);
    if args.check {
        let from = file.map_or_else(String::new, |file| format!(" ({})", file.display()));
        return screen.line(format!("The settings of towpath {}{from} are fine", role.name()));
    }
    let _ = settings;
    Ok(())
}
