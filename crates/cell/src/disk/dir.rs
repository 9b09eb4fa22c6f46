//! A directory held by its descriptor, and what is done with the names in it.
//!
//! Nothing here follows a symbolic link, and no path has more than one part: whatever others rename or swap meanwhile, an effect
//! stays in the directory that was opened.

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::process::{Gid, Uid};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A directory. Its place in the tree may change, itself never does.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
}

/// Which file something is, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Id {
    device: u64,
    inode: u64,
}

impl Id {
    pub(crate) fn of(about: &Stat) -> Self {
        Self { device: about.st_dev, inode: about.st_ino }
    }
}

/// What sort of thing an entry is.
pub(crate) fn kind(about: &Stat) -> FileType {
    FileType::from_raw_mode(about.st_mode)
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Dir {
    /// Opens a directory whose parents only the cell can change; it is not followed if it is a link itself.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        Self::open_in(CWD, path.as_os_str())
    }

    /// The directory above `path`, which only the cell can change, and the name in it.
    pub(crate) fn above(path: &Path) -> io::Result<(Self, &OsStr)> {
        let name = path.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let fd =
            fs::openat(CWD, parent, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok((Self { fd }, name))
    }

    /// Opens a directory in this one.
    pub(crate) fn open(&self, name: &OsStr) -> io::Result<Self> {
        Self::open_in(self.fd.as_fd(), name)
    }

    fn open_in(dir: BorrowedFd<'_>, name: &OsStr) -> io::Result<Self> {
        Ok(Self { fd: fs::openat(dir, name, DIRECTORY, Mode::empty())? })
    }

    /// Opens a directory in this one, after giving its owner back what rights were taken away.
    pub(crate) fn open_usable(&self, name: &OsStr) -> io::Result<Self> {
        match self.open(name) {
            Ok(dir) => {
                let mode = dir.about()?.st_mode;
                if mode & 0o700 != 0o700 {
                    dir.set_mode(mode & 0o777 | 0o700)?;
                }
                Ok(dir)
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let node = self.node(name)?;
                // The descriptor gives no access; the kernel's name for it takes the mode without a look at the tree.
                fs::chmodat(
                    CWD,
                    format!("/proc/self/fd/{}", node.as_raw_fd()),
                    Mode::RWXU,
                    AtFlags::empty(),
                )?;
                self.open(name)
            }
            Err(error) => Err(error),
        }
    }

    /// The directory that this one is in now.
    pub(crate) fn up(&self) -> io::Result<Self> {
        self.open(OsStr::new(".."))
    }

    pub(crate) fn about(&self) -> io::Result<Stat> {
        Ok(fs::fstat(&self.fd)?)
    }

    /// What is directly in it; names that vanish or come meanwhile may be missing.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// What an entry is now; of a link, the link. `None`: it is not there.
    pub(crate) fn look(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(about) => Ok(Some(about)),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Fixes which file a name means, without access to it.
    pub(crate) fn node(&self, name: &OsStr) -> io::Result<OwnedFd> {
        Ok(fs::openat(&self.fd, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Where a link leads.
    pub(crate) fn link_target(&self, name: &OsStr) -> io::Result<OsString> {
        let target = fs::readlinkat(&self.fd, name, Vec::new())?;
        Ok(OsStr::from_bytes(target.as_bytes()).to_owned())
    }

    /// Opens a regular file to read; anything else is refused, and no pipe is waited for.
    pub(crate) fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(fs::openat(&self.fd, name, flags, Mode::empty())?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no regular file")) }
    }

    /// Makes a file that was not there.
    pub(crate) fn create_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)?))
    }

    /// Makes a directory that was not there, closed to others.
    pub(crate) fn make(&self, name: &OsStr) -> io::Result<Self> {
        fs::mkdirat(&self.fd, name, Mode::RWXU)?;
        let made = self.open(name)?;
        let about = made.about()?;
        // Nobody but this process makes directories that belong to it.
        if about.st_uid != rustix::process::geteuid().as_raw() {
            return Err(moved());
        }
        Ok(made)
    }

    /// Makes a link.
    pub(crate) fn make_link(&self, name: &OsStr, target: &OsStr) -> io::Result<()> {
        Ok(fs::symlinkat(target, &self.fd, name)?)
    }

    /// Gives the file `original` in a directory of the cell's a second name here.
    pub(crate) fn link_file(&self, name: &OsStr, original: &Path) -> io::Result<()> {
        Ok(fs::linkat(CWD, original, &self.fd, name, AtFlags::empty())?)
    }

    /// Removes anything but a directory. `false`: it is a directory.
    pub(crate) fn unlink(&self, name: &OsStr) -> io::Result<bool> {
        match fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(true),
            Err(rustix::io::Errno::ISDIR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty directory. `false`: it is not empty, or none.
    pub(crate) fn remove_dir(&self, name: &OsStr) -> io::Result<bool> {
        match fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(true),
            Err(rustix::io::Errno::NOTEMPTY | rustix::io::Errno::EXIST | rustix::io::Errno::NOTDIR) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fs::fchmod(&self.fd, Mode::from_raw_mode(mode))?)
    }

    /// Gives the directory itself to a user and its group.
    pub(crate) fn give(&self, uid: u32) -> io::Result<()> {
        give(self.fd.as_fd(), uid)
    }
}

/// Gives the very file of the descriptor, which may be one of [`Dir::node`], to a user and its group.
pub(crate) fn give(file: BorrowedFd<'_>, uid: u32) -> io::Result<()> {
    Ok(fs::chownat(file, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)), AtFlags::EMPTY_PATH)?)
}

/// Somebody else changed the tree in a way that makes it impossible to go on.
pub(crate) fn moved() -> io::Error {
    io::Error::other("the directory was changed by another process meanwhile")
}

/// Whether an error only says that what was listed a moment ago is another thing now.
pub(crate) fn is_swap(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP)
    )
}
