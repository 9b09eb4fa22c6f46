//! Default places on disk (XDG).

use std::path::PathBuf;

/// The data directory of a role: `TOWPATH_DATA_DIR`, else `$XDG_DATA_HOME/towpath`, else `~/.local/share/towpath`; roles
/// of a cluster have a directory of their own inside of the latter two. `None` when there is no home directory.
pub(crate) fn data_dir(role: &str) -> Option<PathBuf> {
    if let Some(dir) = absolute("TOWPATH_DATA_DIR") {
        return Some(dir);
    }
    let base = absolute("XDG_DATA_HOME").or_else(|| home().map(|home| home.join(".local/share")))?;
    let base = base.join("towpath");
    Some(if role == "up" { base } else { base.join(role) })
}

/// The configuration file that is read when none is named.
pub(crate) fn config_file() -> Option<PathBuf> {
    let base = absolute("XDG_CONFIG_HOME").or_else(|| home().map(|home| home.join(".config")))?;
    Some(base.join("towpath/config.toml"))
}

fn home() -> Option<PathBuf> {
    absolute("HOME")
}

fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| !path.as_os_str().is_empty())
}
