//! Gathers the sources of settings and reads them.

use crate::cli::role::{Flags, RoleArgs};
use crate::config::read::Machine;
use crate::config::{KEYS, Role, Settings, Sources, paths, read};
use crate::document::{Node, toml};
use crate::exit::{Exit, Failure, Outcome, reason};
use std::path::{Path, PathBuf};

/// The settings of a role, and the file that was read.
pub(super) fn load(role: Role, args: &RoleArgs, flags: Flags) -> Outcome<(Settings, Option<PathBuf>)> {
    let file = match &args.config {
        Some(file) => Some(file.clone()),
        None => paths::config_file().filter(|file| file.is_file()),
    };
    let content = file.as_deref().map(content).transpose()?;
    let env =
        KEYS.iter().filter_map(|key| Some((key.env.to_owned(), std::env::var(key.env).ok()?))).collect();
    let sources = Sources { flags, env, file: content };
    let node = nix::unistd::gethostname()
        .map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into_owned());
    let machine = Machine { data_dir: paths::data_dir(role.name()), node };
    Ok((read(role, &sources, &machine)?, file))
}

fn content(file: &Path) -> Outcome<(String, Node)> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let what = format!("{name}: cannot be read: {}", reason(&error));
        Failure::hinted(Exit::Usage, what, "check --config or TOWPATH_CONFIG")
    })?;
    let node = toml::parse(&name, &text)?;
    Ok((name, node))
}
