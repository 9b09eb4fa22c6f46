//! The one thread that writes the cache's files: requests hand over what they have, and never wait for the disk.

use super::disk::{self, body_path, head_path};
use super::disk_format::{self, BLOCK, Meta};
use super::entry::Times;
use super::store::{FillTurn, Store};
use super::{Body, Digest, Entry, Head};
use bytes::Bytes;
use http::HeaderName;
use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

/// Most bytes that wait for the disk, and files that are written at a time; what is beyond is not kept.
const WAITING_BYTES: usize = 32 << 20;
const FILES: usize = 256;

/// Something to do.
pub(crate) enum Job {
    /// What is there from before is put into the index.
    Look(Weak<Store>),
    /// A body begins.
    Begin(Arc<str>),
    /// Its next piece.
    Piece(Arc<str>, Bytes),
    /// It came whole.
    Commit(Box<Commit>),
    /// It did not.
    Abort(Arc<str>),
    /// A head is another one.
    Renew(Box<Commit>),
    /// Nobody needs it any more.
    Remove(Arc<str>),
}

/// A response that came whole.
pub(crate) struct Commit {
    pub(crate) name: Arc<str>,
    pub(crate) vary: Vec<HeaderName>,
    pub(crate) head: Head,
    pub(crate) length: u64,
    pub(crate) times: Times,
    /// Ends when the response can be found.
    pub(crate) turn: FillTurn,
}

/// The way to the thread. It ends with this.
pub(crate) struct Writer {
    jobs: Sender<Job>,
    waiting: Arc<AtomicUsize>,
    files: Arc<AtomicUsize>,
}

impl Writer {
    /// Hands something over.
    pub(crate) fn send(&self, job: Job) {
        if let Job::Piece(_, piece) = &job {
            self.waiting.fetch_add(piece.len(), Relaxed);
        }
        let _ = self.jobs.send(job);
    }

    /// Whether there is room for so many bytes more.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.waiting.load(Relaxed) + bytes <= WAITING_BYTES
    }

    /// Begins a body; `None` = too many are being written.
    pub(crate) fn begin(&self) -> Option<Arc<str>> {
        if self.files.fetch_add(1, Relaxed) >= FILES {
            self.files.fetch_sub(1, Relaxed);
            return None;
        }
        let name: Arc<str> = uuid::Uuid::new_v4().simple().to_string().into();
        self.send(Job::Begin(name.clone()));
        Some(name)
    }
}

/// Starts the thread.
pub(crate) fn start(dir: PathBuf) -> Writer {
    let (jobs, todo) = channel();
    let (waiting, files) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let mut work = Work { dir, open: HashMap::new(), waiting: waiting.clone(), files: files.clone() };
    let spawned = std::thread::Builder::new().name("towpath-cache".into()).spawn(move || work.run(&todo));
    if let Err(error) = spawned {
        tracing::error!(%error, "the cache's thread cannot be started; nothing is kept on disk");
    }
    Writer { jobs, waiting, files }
}

struct Work {
    dir: PathBuf,
    open: HashMap<Arc<str>, Open>,
    waiting: Arc<AtomicUsize>,
    files: Arc<AtomicUsize>,
}

/// A body that is being written.
struct Open {
    /// `None` = that failed.
    file: Option<File>,
    block: Vec<u8>,
    bytes: u64,
}

impl Open {
    fn write(&mut self, piece: &[u8], last: bool) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        self.bytes += piece.len() as u64;
        let mut rest = piece;
        loop {
            let (now, later) = rest.split_at(rest.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            rest = later;
            let whole = self.block.len() == BLOCK;
            if whole || (last && rest.is_empty() && !self.block.is_empty()) {
                file.write_all(&disk_format::before(&self.block))?;
                file.write_all(&self.block)?;
                self.block.clear();
            }
            if rest.is_empty() {
                return Ok(());
            }
        }
    }
}

fn temporary(path: &Path) -> PathBuf {
    path.with_extension("tmp")
}

/// Writes a file under another name first.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let aside = path.with_extension("new");
    fs::write(&aside, bytes)?;
    fs::rename(&aside, path)
}

impl Work {
    fn run(&mut self, todo: &Receiver<Job>) {
        while let Ok(job) = todo.recv() {
            match job {
                Job::Look(store) => {
                    self.look(&store);
                    if let Some(store) = store.upgrade() {
                        store.is_ready();
                    }
                }
                Job::Begin(name) => {
                    let open = self.create(&name);
                    self.open.insert(name, open);
                }
                Job::Piece(name, piece) => {
                    self.waiting.fetch_sub(piece.len(), Relaxed);
                    self.write(&name, &piece, false);
                }
                Job::Commit(commit) => {
                    if let Err(error) = self.commit(&commit) {
                        tracing::warn!(%error, "a response could not be kept on disk");
                        self.remove(&commit.name);
                    }
                }
                Job::Abort(name) => {
                    if self.open.remove(&name).is_some() {
                        self.files.fetch_sub(1, Relaxed);
                    }
                    let _ = fs::remove_file(temporary(&body_path(&self.dir, &name)));
                }
                Job::Renew(commit) => {
                    if let Err(error) = self.finish(&commit) {
                        tracing::warn!(%error, "a response on disk could not be renewed");
                    }
                }
                Job::Remove(name) => self.remove(&name),
            }
        }
    }

    fn create(&self, name: &str) -> Open {
        let path = body_path(&self.dir, name);
        let dir =
            path.parent().map_or(Ok(()), |dir| DirBuilder::new().recursive(true).mode(0o700).create(dir));
        let made = dir.and_then(|()| File::create(temporary(&path)));
        if let Err(error) = &made {
            tracing::warn!(path = %path.display(), %error, "the cache cannot write a file");
        }
        Open { file: made.ok(), block: Vec::new(), bytes: 0 }
    }

    fn write(&mut self, name: &str, piece: &[u8], last: bool) {
        if let Some(open) = self.open.get_mut(name)
            && let Err(error) = open.write(piece, last)
        {
            tracing::warn!(%error, "the cache cannot write a file");
            open.file = None;
        }
    }

    fn commit(&mut self, commit: &Commit) -> io::Result<()> {
        self.write(&commit.name, &[], true);
        let open = self.open.remove(&commit.name).ok_or(io::ErrorKind::NotFound)?;
        self.files.fetch_sub(1, Relaxed);
        if open.file.is_none() || open.bytes != commit.length {
            return Err(io::Error::other("it could not be written whole"));
        }
        let path = body_path(&self.dir, &commit.name);
        fs::rename(temporary(&path), &path)?;
        self.finish(commit)
    }

    /// Writes the head, and makes the response one that can be found.
    fn finish(&self, commit: &Commit) -> io::Result<()> {
        let turn = &commit.turn;
        let what = (&turn.key, &turn.variant);
        let meta = Meta::of(what, &commit.vary, &commit.head, commit.length, commit.times).write();
        replace(&head_path(&self.dir, &commit.name), &meta)?;
        let entry = entry(&commit.name, commit.length, meta.len() as u64, commit.times);
        turn.store.put(turn.key, turn.variant, &commit.vary, entry);
        Ok(())
    }

    fn remove(&self, name: &str) {
        for path in [head_path(&self.dir, name), body_path(&self.dir, name)] {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(temporary(&path));
        }
    }

    /// What is there from before.
    fn look(&self, store: &Weak<Store>) {
        let mut found: Vec<(Digest, Digest, Vec<HeaderName>, Entry)> = Vec::new();
        let Ok(parts) = fs::read_dir(&self.dir) else { return };
        for part in parts.flatten() {
            let Ok(files) = fs::read_dir(part.path()) else { continue };
            for path in files.flatten().map(|file| file.path()) {
                let name = path.file_stem().and_then(|name| name.to_str()).map(Arc::<str>::from);
                match (path.extension().and_then(|kind| kind.to_str()), name) {
                    (Some("head"), Some(name)) => match self.known(&name) {
                        Ok(known) => found.push(known),
                        Err(error) => {
                            tracing::debug!(%name, %error, "a response on disk cannot be used");
                            self.remove(&name);
                        }
                    },
                    (Some("body"), Some(name)) if head_path(&self.dir, &name).exists() => {}
                    (Some("body" | "tmp" | "new"), _) => drop(fs::remove_file(&path)),
                    _ => {}
                }
            }
        }
        found.sort_by_key(|(_, _, _, entry)| entry.times.stored);
        let Some(store) = store.upgrade() else { return };
        for (key, variant, vary, entry) in found {
            store.put(key, variant, &vary, entry);
        }
    }

    fn known(&self, name: &Arc<str>) -> io::Result<(Digest, Digest, Vec<HeaderName>, Entry)> {
        let head = head_path(&self.dir, name);
        let meta = disk::read_head(&head)?;
        let bytes = fs::metadata(body_path(&self.dir, name))?.len();
        if bytes != disk_format::file_bytes(meta.length) {
            return Err(io::Error::other("its body has another length"));
        }
        let entry = entry(name, meta.length, fs::metadata(&head)?.len(), meta.times);
        let (key, variant) = meta.of_what();
        Ok((key, variant, meta.vary(), entry))
    }
}

fn entry(name: &Arc<str>, length: u64, head: u64, times: Times) -> Entry {
    let size = disk_format::file_bytes(length) + head;
    Entry { body: Body::Disk(name.clone()), length, size, times }
}
