//! Where the CLI finds its token.

use super::Address;
use crate::config::paths;
use crate::exit::{Exit, Failure, Outcome, reason};
use std::path::{Path, PathBuf};

/// What was said of the token.
#[derive(Debug, Default)]
pub(crate) struct TokenArgs {
    /// The token itself.
    pub(crate) token: Option<String>,
    /// A file that holds it.
    pub(crate) file: Option<PathBuf>,
}

/// The token: as given, else from the named file, else (for an API on this machine) from the data directory's `token`.
pub(crate) fn find_token(args: &TokenArgs, api: &Address) -> Outcome<Option<String>> {
    if let Some(token) = args.token.as_deref().map(str::trim).filter(|token| !token.is_empty()) {
        return Ok(Some(token.to_owned()));
    }
    if let Some(file) = &args.file {
        return read(file).map(Some).map_err(|why| {
            Failure::hinted(
                Exit::Unauthorized,
                format!("token file {}: {why}", file.display()),
                "check --token-file or TOWPATH_TOKEN_FILE",
            )
        });
    }
    if !api.is_loopback() {
        return Ok(None);
    }
    let places = [paths::data_dir("up"), paths::data_dir("manager")];
    Ok(places.into_iter().flatten().find_map(|dir| read(&dir.join("token")).ok()))
}

fn read(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| reason(&error))?;
    let token = text.trim();
    if token.is_empty() { Err("it is empty".into()) } else { Ok(token.to_owned()) }
}
