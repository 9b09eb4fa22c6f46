//! Files of the data directory, written whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Writes a file that only its owner may read: to a temporary name first, then renamed.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    let temporary = Path::new(&name);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(temporary, path)
}
