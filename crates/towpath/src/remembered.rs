//! What the command line remembers between calls, for each API: the org and space to work in, and the session.
//!
//! In a file that its owner alone may read, beside the configuration file.

use crate::api::Address;
use crate::config::paths;
use crate::exit::{Exit, Failure, Outcome, reason};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Of one API.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Remembered {
    /// The org to work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) org: Option<String>,
    /// The space to work in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) space: Option<String>,
    /// Who is logged in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The session's token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

type Book = BTreeMap<String, Remembered>;

fn file() -> Option<PathBuf> {
    paths::config_file().map(|file| file.with_file_name("client.json"))
}

fn read(file: &Path) -> Outcome<Book> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Book::new()),
        Err(error) => return Err(Failure::io(format!("cannot read {}", file.display()), &error)),
    };
    serde_json::from_str(&text).map_err(|error| {
        let what = format!("{} is damaged: {error}", file.display());
        Failure::hinted(Exit::Usage, what, "remove it; then log in and choose the target again")
    })
}

/// Whole or not at all, and nobody else's to read.
fn write(file: &Path, book: &Book) -> std::io::Result<()> {
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let part = file.with_extension(format!("{}.part", std::process::id()));
    let mut out = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    let text = serde_json::to_string_pretty(book).map_err(std::io::Error::other)?;
    let written =
        writeln!(out, "{text}").and_then(|()| out.sync_all()).and_then(|()| std::fs::rename(&part, file));
    if written.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    written
}

/// What is remembered of an API.
pub(crate) fn recall(api: &Address) -> Outcome<Remembered> {
    let Some(file) = file() else { return Ok(Remembered::default()) };
    Ok(read(&file)?.remove(&api.to_string()).unwrap_or_default())
}

/// Changes what is remembered of an API.
pub(crate) fn change(api: &Address, change: impl FnOnce(&mut Remembered)) -> Outcome {
    let file =
        file().ok_or_else(|| Failure::new(Exit::Usage, "there is no home directory to remember it in"))?;
    let mut book = read(&file)?;
    let key = api.to_string();
    change(book.entry(key.clone()).or_default());
    book.retain(|_, remembered| *remembered != Remembered::default());
    write(&file, &book).map_err(|error| {
        Failure::new(Exit::Failed, format!("cannot write {}: {}", file.display(), reason(&error)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_book_is_private_and_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep/client.json");
        assert_eq!(read(&file).unwrap(), Book::new());
        let entry =
            Remembered { org: Some("acme".into()), token: Some("twp_x".into()), ..Default::default() };
        let book = Book::from([("http://127.0.0.1:7700".to_owned(), entry)]);
        write(&file, &book).unwrap();
        assert_eq!(read(&file).unwrap(), book);
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&file, "{").unwrap();
        let failure = read(&file).unwrap_err();
        assert!(failure.lines[0].contains("remove it"), "{failure:?}");
    }
}
