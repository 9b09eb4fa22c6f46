//! The declarative file of a gateway that runs alone: `apisix.yaml` as APISIX reads it, or the same as JSON or TOML. What it says
//! and what is wrong with it is the resources' own crate's to tell; this is about when it is looked at.

use crate::exit::reason;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use towpath_gateway::{Loaded, ResourceSource};
use towpath_resources::{Document, Format, read_file};

/// A file that is younger than this is looked at again, whatever the file system says: its clock may be coarser than
/// writers are fast.
const YOUNG_SECONDS: u64 = 2;

/// A watched file.
pub(crate) struct ResourcesFile {
    path: PathBuf,
    /// What the file system last said of it, so that a file that nobody touched is not read again.
    last: Mutex<Option<(SystemTime, u64)>>,
}

impl ResourcesFile {
    /// The file at `path`.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, last: Mutex::new(None) }
    }

    /// All documents in it now, or all that is wrong.
    pub(crate) fn read(&self) -> Result<Vec<Document>, Vec<String>> {
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| vec![format!("{}: cannot be read: {}", self.path.display(), reason(&error))])?;
        self.parse(&text)
    }

    fn parse(&self, text: &str) -> Result<Vec<Document>, Vec<String>> {
        let name = self.path.display().to_string();
        let variable = |name: &str| std::env::var(name).ok();
        read_file(text, Format::of(&name), &variable)
            .map_err(|faults| faults.iter().map(|fault| format!("{name}: {fault}")).collect())
    }

    /// A YAML file without its last line is still being written.
    fn is_whole(&self, text: &str) -> bool {
        let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
        Format::of(&self.path.display().to_string()) != Format::Yaml || last == Some("#END")
    }

    /// Its text, if it may be another than before.
    fn touched(&self) -> Option<String> {
        let about = std::fs::metadata(&self.path).ok()?;
        let now = about.modified().ok().map(|modified| (modified, about.len()));
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let young =
            now.and_then(|(at, _)| at.elapsed().ok()).is_some_and(|age| age.as_secs() < YOUNG_SECONDS);
        if now.is_some() && *last == now && !young {
            return None;
        }
        let text = std::fs::read_to_string(&self.path).ok().filter(|text| self.is_whole(text))?;
        *last = now;
        Some(text)
    }
}

impl ResourceSource for ResourcesFile {
    fn load(&self, seen: Option<u64>) -> Loaded {
        let Some(text) = self.touched() else { return Loaded::Same };
        let mut hash = DefaultHasher::new();
        text.hash(&mut hash);
        let mark = hash.finish();
        if seen == Some(mark) {
            return Loaded::Same;
        }
        match self.parse(&text) {
            Ok(documents) => Loaded::Documents { mark, documents },
            Err(faults) => Loaded::Refused { mark, faults },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "routes:\n  - id: 1\n    uri: /*\n    upstream_id: 1\n    plugins:\n      limit-count:\n        \
                        count: 2\n        time_window: 60\nupstreams:\n  - id: 1\n    nodes:\n      \"127.0.0.1:80\": 1\n#END\n";

    #[test]
    fn a_file_is_loaded_again_when_its_content_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("apisix.yaml");
        let file = ResourcesFile::new(path.clone());
        assert_eq!(file.load(None), Loaded::Same, "a file that is not there changes nothing");
        assert!(file.read().unwrap_err()[0].contains("cannot be read"));
        std::fs::write(&path, "routes:\n  - id: 1\n").unwrap();
        assert_eq!(file.load(None), Loaded::Same, "it is still being written");
        std::fs::write(&path, GOOD).unwrap();
        let Loaded::Documents { mark, documents } = file.load(None) else { panic!() };
        assert_eq!(documents.len(), 2);
        assert_eq!(file.load(Some(mark)), Loaded::Same);
        std::fs::write(&path, GOOD.replace("time_window: 60", "time_window: -1")).unwrap();
        let Loaded::Refused { mark: other, faults } = file.load(Some(mark)) else { panic!() };
        let place = format!("{}: line 8: routes/1: plugins.limit-count.time_window", path.display());
        assert!(faults[0].starts_with(&place), "{faults:?}");
        assert_eq!(file.load(Some(other)), Loaded::Same, "a fault is said once");
    }
}
