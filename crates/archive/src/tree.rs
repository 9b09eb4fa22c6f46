//! What an archive has made so far: the shape that it may add to.

use crate::error::UnpackError;
use crate::limits::Limits;
use crate::link::stays_inside;
use std::collections::HashMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    Dir,
    File,
    Link,
}

/// Every path that the archive has made, with what it is. A path is only ever built below directories made here, never
/// below a link, so the file system need not be asked.
pub(crate) struct Tree {
    limits: Limits,
    made: HashMap<Box<[u8]>, Made>,
}

/// A path that may be made, and the directories above it that must be made first.
#[derive(Debug)]
pub(crate) struct Place {
    /// Cleaned: relative, no `.`, no `..`, no double slashes. Empty for the root itself.
    pub(crate) path: Vec<u8>,
    /// Outermost first.
    pub(crate) new_dirs: Vec<Vec<u8>>,
}

impl Tree {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, made: HashMap::new() }
    }

    pub(crate) fn entries(&self) -> u64 {
        self.made.len() as u64
    }

    /// A directory; one that is there already is no fault.
    pub(crate) fn add_dir(&mut self, raw: &[u8]) -> Result<Place, UnpackError> {
        let path = self.clean(raw)?;
        let mut new_dirs = self.add_parents(raw, &path)?;
        if !path.is_empty() {
            match self.made.get(path.as_slice()) {
                Some(Made::Dir) => {}
                Some(_) => return Err(UnpackError::refused(raw, "which it holds twice")),
                None => {
                    self.insert(path.clone(), Made::Dir)?;
                    new_dirs.push(path.clone());
                }
            }
        }
        Ok(Place { path, new_dirs })
    }

    /// A regular file.
    pub(crate) fn add_file(&mut self, raw: &[u8]) -> Result<Place, UnpackError> {
        self.add_leaf(raw, Made::File)
    }

    /// A symbolic link.
    pub(crate) fn add_link(&mut self, raw: &[u8], target: &[u8]) -> Result<Place, UnpackError> {
        let place = self.add_leaf(raw, Made::Link)?;
        let depth = place.path.iter().filter(|b| **b == b'/').count();
        if stays_inside(depth, target) {
            Ok(place)
        } else {
            Err(UnpackError::refused(raw, "a symbolic link that leads, or could lead, out of the directory"))
        }
    }

    /// A second name of a file that the archive made before. Answers the cleaned path of that file too.
    pub(crate) fn add_hard_link(
        &mut self,
        raw: &[u8],
        target: &[u8],
    ) -> Result<(Place, Vec<u8>), UnpackError> {
        let target = self.clean(target)?;
        if self.made.get(target.as_slice()) != Some(&Made::File) {
            return Err(UnpackError::refused(
                raw,
                "a hard link to something that is no file of this archive",
            ));
        }
        Ok((self.add_leaf(raw, Made::File)?, target))
    }

    fn add_leaf(&mut self, raw: &[u8], made: Made) -> Result<Place, UnpackError> {
        let path = self.clean(raw)?;
        if path.is_empty() || raw.ends_with(b"/") {
            return Err(UnpackError::refused(raw, "a file without a name"));
        }
        let new_dirs = self.add_parents(raw, &path)?;
        if self.made.contains_key(path.as_slice()) {
            return Err(UnpackError::refused(raw, "which it holds twice"));
        }
        self.insert(path.clone(), made)?;
        Ok(Place { path, new_dirs })
    }

    fn add_parents(&mut self, raw: &[u8], path: &[u8]) -> Result<Vec<Vec<u8>>, UnpackError> {
        let mut new_dirs = Vec::new();
        for (at, _) in path.iter().enumerate().filter(|(_, b)| **b == b'/') {
            let Some(parent) = path.get(..at) else { continue };
            match self.made.get(parent) {
                Some(Made::Dir) => {}
                Some(Made::Link) => {
                    return Err(UnpackError::refused(raw, "which would be written through a symbolic link"));
                }
                Some(Made::File) => return Err(UnpackError::refused(raw, "which lies below a file")),
                None => {
                    self.insert(parent.to_vec(), Made::Dir)?;
                    new_dirs.push(parent.to_vec());
                }
            }
        }
        Ok(new_dirs)
    }

    fn insert(&mut self, path: Vec<u8>, made: Made) -> Result<(), UnpackError> {
        if self.entries() >= self.limits.entries {
            return Err(UnpackError::OverLimit { what: "entries", limit: self.limits.entries });
        }
        self.made.insert(path.into_boxed_slice(), made);
        Ok(())
    }

    fn clean(&self, raw: &[u8]) -> Result<Vec<u8>, UnpackError> {
        if raw.starts_with(b"/") {
            return Err(UnpackError::refused(raw, "an absolute path"));
        }
        if raw.contains(&0) {
            return Err(UnpackError::refused(raw, "a path with a NUL byte"));
        }
        if raw.len() > self.limits.path {
            return Err(UnpackError::refused(raw, "a path that is too long"));
        }
        let mut path = Vec::with_capacity(raw.len());
        let mut depth = 0_usize;
        for part in raw.split(|b| *b == b'/') {
            match part {
                b"" | b"." => continue,
                b".." => return Err(UnpackError::refused(raw, "a path with '..' in it")),
                _ if part.len() > 255 => return Err(UnpackError::refused(raw, "a name that is too long")),
                _ => {}
            }
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(part);
            depth = depth.saturating_add(1);
        }
        if depth > self.limits.depth {
            return Err(UnpackError::refused(raw, "a path that is too deep"));
        }
        Ok(path)
    }
}
