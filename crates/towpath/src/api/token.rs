//! Where the CLI finds its token.

use super::Address;
use crate::config::paths;
use crate::exit::{Exit, Failure, Outcome, reason};
use crate::remembered::Remembered;
use std::path::{Path, PathBuf};

/// A token, or none, with where it came from: what a person has to look at when the API refuses it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Token {
    /// The token.
    pub(crate) text: Option<String>,
    /// What to do when the API wants another.
    pub(crate) remedy: String,
}

/// The token: as given, else from the named file, else that of `towpath login`, else (for an API on this machine) from the data directory's `token`.
pub(crate) fn find_token(
    given: Option<&str>,
    file: Option<&Path>,
    api: &Address,
    remembered: &Remembered,
) -> Outcome<Token> {
    if let Some(token) = not_empty(given.map(str::to_owned)) {
        return Ok(of("--token", token));
    }
    // A flag wins over any variable.
    if file.is_none()
        && let Some(token) = not_empty(std::env::var("TOWPATH_TOKEN").ok())
    {
        return Ok(of("TOWPATH_TOKEN", token));
    }
    let named = match file {
        Some(file) => Some(("--token-file", file.to_owned())),
        None => std::env::var_os("TOWPATH_TOKEN_FILE")
            .filter(|file| !file.is_empty())
            .map(|file| ("TOWPATH_TOKEN_FILE", PathBuf::from(file))),
    };
    if let Some((by, file)) = named {
        return from_file(by, &file);
    }
    if let (Some(token), Some(user)) = (&remembered.token, &remembered.user) {
        let remedy = format!("the session of {user} has ended; log in again: towpath login {user}");
        return Ok(Token { text: Some(token.clone()), remedy });
    }
    Ok(usual(api, [paths::data_dir("up"), paths::data_dir("manager")].into_iter().flatten()))
}

fn not_empty(token: Option<String>) -> Option<String> {
    token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty())
}

/// What makes tokens, for people who have none that works.
const MAKE: &str = "`towpath up` prints where its first token is; users log in with `towpath login NAME`";

fn of(by: &str, token: String) -> Token {
    let remedy = format!("the token in {by} is not one of this platform's; {MAKE}");
    Token { text: Some(token), remedy }
}

fn from_file(by: &str, file: &Path) -> Outcome<Token> {
    match read(file) {
        Ok(token) => Ok(of(&format!("{} ({by})", file.display()), token)),
        Err(why) => Err(Failure::hinted(
            Exit::Unauthorized,
            format!("no token in {}: {why}", file.display()),
            format!("{by} names this file; `towpath up` prints where the token of its platform is"),
        )),
    }
}

/// The token in the first of the usual places that has one. It is used for an API on this machine alone.
fn usual(api: &Address, dirs: impl Iterator<Item = PathBuf>) -> Token {
    if !api.is_loopback() {
        let remedy = format!("say a token with TOWPATH_TOKEN or TOWPATH_TOKEN_FILE; {MAKE}");
        return Token { text: None, remedy };
    }
    let files: Vec<PathBuf> = dirs.map(|dir| dir.join("token")).collect();
    if let Some((file, token)) = files.iter().find_map(|file| Some((file, read(file).ok()?))) {
        return of(&file.display().to_string(), token);
    }
    let shown: Vec<String> = files
        .iter()
        .map(|file| format!("{}: {}", file.display(), read(file).err().unwrap_or_default().to_lowercase()))
        .collect();
    let remedy = format!(
        "no token was found ({}); say it with TOWPATH_TOKEN or TOWPATH_TOKEN_FILE; {MAKE}",
        shown.join("; ")
    );
    Token { text: None, remedy }
}

fn read(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file).map_err(|error| reason(&error))?;
    let token = text.trim();
    if token.is_empty() { Err("it is empty".into()) } else { Ok(token.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_token_is_told_by_where_it_came_from() {
        let dir = tempfile::tempdir().unwrap();
        let here = Address::default();
        let usual_in = |api: &Address| usual(api, std::iter::once(dir.path().to_owned()));
        let nothing = usual_in(&here);
        assert_eq!(nothing.text, None);
        let file = dir.path().join("token");
        let missing = format!("no token was found ({}: no such file or directory)", file.display());
        assert!(nothing.remedy.starts_with(&missing), "{nothing:?}");
        std::fs::write(&file, "twp_a\n").unwrap();
        let found = usual_in(&here);
        assert_eq!(found.text.as_deref(), Some("twp_a"));
        assert!(found.remedy.starts_with(&format!("the token in {}", file.display())), "{found:?}");
        let elsewhere = usual_in(&"https://paas.example.com".parse().unwrap());
        assert_eq!(elsewhere.text, None);
        assert!(elsewhere.remedy.starts_with("say a token with"), "{elsewhere:?}");

        let none = Remembered::default();
        let named = find_token(None, Some(&file), &here, &none).unwrap();
        assert!(named.remedy.contains("token (--token-file)"), "{named:?}");
        let failure = find_token(None, Some(&dir.path().join("none")), &here, &none).unwrap_err();
        assert!(
            failure.lines[0].contains("none: No such file or directory; hint: --token-file names"),
            "{failure:?}"
        );
        assert_eq!(find_token(Some(" twp_b "), None, &here, &none).unwrap().text.as_deref(), Some("twp_b"));
    }
}
