//! The small files in which a shim says how its app fares. On a full disk there is no room for a new one, and an app must not stay down
//! for want of a hundred bytes: so each has a spare, made while there was room.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

fn spare_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.spare"))
}

/// Makes sure that there is a spare for the record `name`, if that can be: the last record, which is stale, or a new file.
pub(crate) fn keep_spare(dir: &Path, name: &str) {
    let spare = spare_of(dir, name);
    let is_there = fs::metadata(&spare).is_ok_and(|about| about.len() > 0);
    if !is_there && fs::rename(dir.join(name), &spare).is_err() {
        let _ = fs::write(&spare, [b' '; 256]);
    }
}

/// Writes a record so that a reader sees it whole or not at all; into the block of its spare where there is no room for another file.
pub(crate) fn write(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let (new, path) = (dir.join(format!("{name}.new")), dir.join(name));
    let written = fs::write(&new, content).and_then(|()| fs::rename(&new, &path));
    written.or_else(|error| {
        let _ = fs::remove_file(&new);
        let spare = spare_of(dir, name);
        // Not cut off first: that would give the block away.
        let mut file = File::options().write(true).open(&spare).map_err(|_| error)?;
        file.write_all(content)?;
        file.set_len(content.len() as u64)?;
        fs::rename(&spare, &path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_room_for_a_new_file_the_spare_is_used() {
        let dir = tempfile::tempdir().unwrap();
        let record = || fs::read_to_string(dir.path().join("r.json"));
        write(dir.path(), "r.json", b"{\"first\":1}").unwrap();
        // Nothing can be written under the name that a new file would have.
        fs::create_dir(dir.path().join("r.json.new")).unwrap();
        assert!(write(dir.path(), "r.json", b"{}").is_err(), "no spare yet");
        for round in 0..3 {
            keep_spare(dir.path(), "r.json");
            let _ = fs::remove_file(dir.path().join("r.json"));
            let content = format!("{{\"n\":{round}}}");
            write(dir.path(), "r.json", content.as_bytes()).unwrap();
            assert_eq!(record().unwrap(), content);
        }
        // A spare of which nothing was used before.
        fs::remove_file(dir.path().join("r.json")).unwrap();
        keep_spare(dir.path(), "r.json");
        write(dir.path(), "r.json", b"{}").unwrap();
        assert_eq!(record().unwrap(), "{}");
    }
}
