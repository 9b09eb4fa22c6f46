//! Finds and reads the manifest files of a directory.

use super::{Manifest, cloudfoundry, procfile, towpath};
use crate::document::problem::Problem;
use crate::exit::reason;
use std::path::{Path, PathBuf};

/// Largest manifest in bytes.
const MAX_BYTES: u64 = 1024 * 1024;

/// The manifests of `dir`, one for each app in it. `explicit` names the file instead of looking for it.
pub(crate) fn load(dir: &Path, explicit: Option<&Path>) -> Result<Vec<Manifest>, Vec<Problem>> {
    let mut manifests = match explicit {
        Some(file) => read_file(dir, file)?,
        None => find(dir)?,
    };
    let procfile = dir.join("Procfile");
    if procfile.is_file() {
        let found = procfile::read("Procfile", &read_text(&procfile, "Procfile")?)?;
        if let [only] = manifests.as_mut_slice() {
            if only.command.is_none() {
                only.command = found.web;
            }
            only.ignored.extend(found.ignored);
        }
    }
    Ok(manifests)
}

fn find(dir: &Path) -> Result<Vec<Manifest>, Vec<Problem>> {
    let ours = dir.join("towpath.toml");
    let foreign =
        ["manifest.yml", "manifest.yaml"].map(|name| dir.join(name)).into_iter().find(|file| file.is_file());
    if ours.is_file() {
        let mut manifests = read_file(dir, &ours)?;
        if let (Some(foreign), Some(first)) = (foreign, manifests.first_mut()) {
            first.ignored.push(format!("{}: not read, because towpath.toml is there", shown(&foreign)));
        }
        return Ok(manifests);
    }
    match foreign {
        Some(file) => read_file(dir, &file),
        None => Ok(vec![Manifest::default()]),
    }
}

fn read_file(dir: &Path, file: &Path) -> Result<Vec<Manifest>, Vec<Problem>> {
    let name = file.strip_prefix(dir).unwrap_or(file).display().to_string();
    let text = read_text(file, &name)?;
    let yaml = file.extension().is_some_and(|ext| ext == "yml" || ext == "yaml");
    if yaml { cloudfoundry::read(&name, &text) } else { towpath::read(&name, &text).map(|one| vec![one]) }
}

fn read_text(file: &Path, name: &str) -> Result<String, Vec<Problem>> {
    let wrong = |message: String| vec![Problem { source: name.into(), message, ..Problem::default() }];
    let size =
        std::fs::metadata(file).map_err(|error| wrong(format!("cannot be read: {}", reason(&error))))?.len();
    if size > MAX_BYTES {
        return Err(wrong(format!("it has {size} bytes; a manifest has at most {MAX_BYTES}")));
    }
    let bytes = std::fs::read(file).map_err(|error| wrong(format!("cannot be read: {}", reason(&error))))?;
    String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8 text".into()))
}

fn shown(file: &Path) -> String {
    file.file_name().map_or_else(|| file.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// The directory that is packed for a manifest: `dir`, or what the manifest names inside of it.
pub(crate) fn source_dir(dir: &Path, manifest: &Manifest) -> PathBuf {
    match &manifest.path {
        Some(path) => dir.join(path),
        None => dir.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(load(dir.path(), None).unwrap(), [Manifest::default()]);
        std::fs::write(dir.path().join("Procfile"), "web: ./run\n").unwrap();
        assert_eq!(load(dir.path(), None).unwrap()[0].command.as_deref(), Some("./run"));
        std::fs::write(dir.path().join("manifest.yml"), "applications:\n- name: a\n  command: x\n").unwrap();
        let found = load(dir.path(), None).unwrap();
        assert_eq!(found[0].command.as_deref(), Some("x"));
        std::fs::write(dir.path().join("towpath.toml"), "name = \"b\"\n").unwrap();
        let found = load(dir.path(), None).unwrap();
        assert_eq!(found[0].name.as_ref().unwrap().as_str(), "b");
        assert_eq!(found[0].command.as_deref(), Some("./run"));
        assert!(found[0].ignored[0].starts_with("manifest.yml: not read"), "{found:?}");
        let found = load(dir.path(), Some(&dir.path().join("manifest.yml"))).unwrap();
        assert_eq!(found[0].name.as_ref().unwrap().as_str(), "a");
    }

    #[test]
    fn unreadable_files_are_said() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("towpath.toml"), [0xff, 0xfe]).unwrap();
        let problems = load(dir.path(), None).unwrap_err();
        assert_eq!(problems[0].to_string(), "towpath.toml: it is not UTF-8 text");
        let problems = load(dir.path(), Some(Path::new("/nowhere/x.toml"))).unwrap_err();
        assert_eq!(problems[0].to_string(), "/nowhere/x.toml: cannot be read: No such file or directory");
    }

    #[test]
    fn every_example_is_read() {
        let mut dirs = vec![PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples"))];
        let mut read = 0;
        while let Some(dir) = dirs.pop() {
            let found = load(&dir, None).unwrap_or_else(|problems| panic!("{}: {problems:?}", dir.display()));
            read += found.iter().filter(|manifest| **manifest != Manifest::default()).count();
            let entries = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path());
            dirs.extend(entries.filter(|path| path.is_dir() && !path.is_symlink()));
        }
        assert!(read >= 3, "{read} manifests were read");
    }
}
