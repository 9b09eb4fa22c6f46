//! The file that holds the keys: one a line, newest first; `#` begins a comment.

use crate::keyring::{Key, Keyring};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroizing;

/// How a line begins.
const WORD: &str = "towpath-key-1 ";

/// Why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It cannot be read or written.
    #[error("the key file {} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is no key. The line itself is not told: it may be most of one.
    #[error("line {line} of the key file {} is not `towpath-key-1` and 64 hex digits", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
    },
    /// It has no key.
    #[error("the key file {} has no key in it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Others can read it.
    #[error("the key file {} can be read by others (mode {mode:o}); chmod 600 it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The system gave no randomness.
    #[error("no key could be made")]
    NoKey,
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> KeyFileError {
    move |source| KeyFileError::Io { path: path.to_owned(), source }
}

/// Reads the keys. `Ok(None)` = there is no such file.
pub fn load(path: &Path) -> Result<Option<Keyring>, KeyFileError> {
    let about = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        about => about.map_err(io_error(path))?,
    };
    let mode = about.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::Open { path: path.to_owned(), mode });
    }
    let text = Zeroizing::new(fs::read_to_string(path).map_err(io_error(path))?);
    let mut keys = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = line.strip_prefix(WORD).and_then(Key::from_hex);
        keys.push(key.ok_or_else(|| KeyFileError::Line { path: path.to_owned(), line: index + 1 })?);
    }
    if keys.is_empty() {
        return Err(KeyFileError::Empty { path: path.to_owned() });
    }
    Ok(Some(Keyring::new(keys)))
}

fn line_of(key: &Key) -> Zeroizing<String> {
    let hex = key.to_hex();
    let mut line = Zeroizing::new(String::with_capacity(WORD.len() + hex.expose().len() + 1));
    line.push_str(WORD);
    line.push_str(hex.expose());
    line.push('\n');
    line
}

/// Writes these keys, in the place of whatever was there; the file is whole at any moment.
pub fn save(path: &Path, ring: &Keyring) -> Result<(), KeyFileError> {
    let new = temporary(path);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        for key in ring.keys() {
            file.write_all(line_of(key).as_bytes())?;
        }
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if let Err(error) = written {
        let _ = fs::remove_file(&new);
        return Err(io_error(path)(error));
    }
    sync_parent(path);
    Ok(())
}

/// Makes a file with one new key; never over one that is there.
pub fn create(path: &Path) -> Result<Keyring, KeyFileError> {
    let key = Key::generate().map_err(|_| KeyFileError::NoKey)?;
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(io_error(path))?;
    let written = file.write_all(line_of(&key).as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        let _ = fs::remove_file(path);
        return Err(io_error(path)(error));
    }
    sync_parent(path);
    Ok(Keyring::new(vec![key]))
}

/// One key is added at a time in this process.
static ADDING: Mutex<()> = Mutex::new(());

/// Puts a new key before the others; the file is whole at any moment. Who adds one at the same time waits.
pub fn prepend(path: &Path) -> Result<Keyring, KeyFileError> {
    let key = Key::generate().map_err(|_| KeyFileError::NoKey)?;
    let _turn = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
    // The directory's lock, as the file itself is replaced; and nothing is left behind. File systems without locks leave it at
    // the turns of each process.
    let dir = File::open(parent_of(path)).map_err(io_error(path))?;
    let _ = dir.lock();
    load(path)?.ok_or_else(|| io_error(path)(io::ErrorKind::NotFound.into()))?;
    let old = Zeroizing::new(fs::read_to_string(path).map_err(io_error(path))?);
    let new = temporary(path);
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let owner = fs::metadata(path)?;
        // The platform may run as another user than whoever adds the key.
        let _ = std::os::unix::fs::fchown(&file, Some(owner.uid()), Some(owner.gid()));
        file.write_all(line_of(&key).as_bytes())?;
        file.write_all(old.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    })();
    if let Err(error) = written {
        let _ = fs::remove_file(&new);
        return Err(io_error(path)(error));
    }
    dir.sync_all().map_err(io_error(path))?;
    load(path)?.ok_or_else(|| io_error(path)(io::ErrorKind::NotFound.into()))
}

/// A name beside the file that nobody else uses.
fn temporary(path: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{count}.new", std::process::id()));
    path.with_file_name(name)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// So that the name is there after a power cut, too.
fn sync_parent(path: &Path) {
    if let Ok(dir) = File::open(parent_of(path)) {
        let _ = dir.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_are_made_added_and_read_newest_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        assert!(load(&path).unwrap().is_none());
        let first = create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(create(&path).is_err(), "never over one that is there");
        let both = prepend(&path).unwrap();
        assert_eq!(both.keys().len(), 2);
        assert_eq!(both.keys()[1].id(), first.newest().unwrap().id());
        let again = load(&path).unwrap().unwrap();
        assert_eq!(again.newest().unwrap().id(), both.newest().unwrap().id());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let other = Keyring::new(vec![Key::generate().unwrap()]);
        save(&path, &other).unwrap();
        assert_eq!(load(&path).unwrap().unwrap().newest().unwrap().id(), other.newest().unwrap().id());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn keys_that_are_added_at_the_same_time_are_all_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        // What one that was killed has left is in nobody's way.
        fs::write(dir.path().join("secrets.new"), "").unwrap();
        fs::write(temporary(&path), "").unwrap();
        let mut all = vec![create(&path).unwrap().newest().unwrap().id().clone()];
        let added = std::thread::scope(|scope| {
            let adds: Vec<_> = (0..8).map(|_| scope.spawn(|| prepend(&path).unwrap())).collect();
            adds.into_iter().map(|add| add.join().unwrap()).collect::<Vec<_>>()
        });
        all.extend(added.iter().map(|ring| ring.newest().unwrap().id().clone()));
        let ring = load(&path).unwrap().unwrap();
        assert_eq!(ring.keys().len(), 9);
        assert!(all.iter().all(|id| ring.find(id).is_some()), "{all:?}");
        let distinct: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(distinct.len(), 9, "each was told of the key that it added");
        let torn = fs::read_to_string(&path).unwrap();
        assert_eq!(torn.lines().count(), 9);
    }

    #[test]
    fn a_key_is_added_only_once_another_process_has_added_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        create(&path).unwrap();
        // As another process would hold it.
        let held = File::open(dir.path()).unwrap();
        held.lock().unwrap();
        std::thread::scope(|scope| {
            let add = scope.spawn(|| prepend(&path).unwrap());
            std::thread::sleep(std::time::Duration::from_millis(50));
            let other = Key::generate().unwrap();
            let text = format!("{}{}", *line_of(&other), fs::read_to_string(&path).unwrap());
            fs::write(&path, text).unwrap();
            held.unlock().unwrap();
            let ring = add.join().unwrap();
            assert_eq!(ring.keys().len(), 3);
            assert!(ring.find(other.id()).is_some(), "the other's key is kept");
        });
    }

    #[test]
    fn what_is_wrong_is_said_without_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.key");
        let write = |text: &str, mode: u32| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        };
        let hex = "ab".repeat(31);
        write(&format!("# ours\n\ntowpath-key-1 {hex}zz\n"), 0o600);
        let error = load(&path).unwrap_err().to_string();
        assert!(error.contains("line 3") && !error.contains("abab"), "{error}");
        write("# none\n", 0o600);
        assert!(matches!(load(&path), Err(KeyFileError::Empty { .. })));
        write(&format!("towpath-key-1 {hex}ab\n"), 0o640);
        assert!(matches!(load(&path), Err(KeyFileError::Open { mode: 0o640, .. })));
        write(&format!("  towpath-key-1 {hex}ab\n"), 0o400);
        assert_eq!(load(&path).unwrap().unwrap().keys().len(), 1);
    }
}
