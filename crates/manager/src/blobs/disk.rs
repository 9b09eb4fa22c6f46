//! The seam to the file system for writing uploads, so that a full disk can be played.

use std::io::{self, Write};
use std::path::Path;

/// Makes files.
pub trait Disk: Send + Sync + 'static {
    /// A new file for writing; it must not exist.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
}

/// A file being written.
pub trait DiskFile: Write + Send {
    /// Makes the content last.
    fn sync(&mut self) -> io::Result<()>;
}

/// The machine's own file system.
pub struct RealDisk;

impl Disk for RealDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(std::fs::File::create_new(path)?))
    }
}

impl DiskFile for std::fs::File {
    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}
