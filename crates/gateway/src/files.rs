//! Files of the data directory, written whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file that only its owner may read: to a temporary name first, then renamed, and on the disk when this returns.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = Path::new(&name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(temporary, path)?;
    path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Reads a file that [`write_private`] has written; `None` = there is none. An empty one counts as none: it was never written
/// like that, so whoever emptied it has taken nothing from it that could be lost still.
pub(crate) fn read_own(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) if bytes.is_empty() => {
            tracing::warn!(path = %path.display(), "a file of the gateway is empty; it is made again");
            Ok(None)
        }
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

/// The error of a file with other content: it may be somebody's mistake, so it is not overwritten.
pub(crate) fn not_ours(path: &Path, what: &str, consequence: &str) -> io::Error {
    io::Error::other(format!(
        "{} is {what}; put the right one back, or delete it to have it made anew ({consequence})",
        path.display()
    ))
}
