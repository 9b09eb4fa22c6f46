//! Full disks, crashes and collection.

use super::*;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use towpath_archive::PackOptions;

/// A disk with room for so many bytes.
struct SmallDisk(Arc<AtomicUsize>);

struct SmallFile(std::fs::File, Arc<AtomicUsize>);

impl Disk for SmallDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(SmallFile(std::fs::File::create_new(path)?, self.0.clone())))
    }
}

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.1.load(Ordering::SeqCst);
        if room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let n = self.0.write(bytes.get(..room).unwrap_or(bytes))?;
        self.1.fetch_sub(n, Ordering::SeqCst);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DiskFile for SmallFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// A source with one incompressible file.
fn source(size: usize) -> (Digest, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let noise: Vec<u8> = (0..size).map(|_| fastrand::u8(..)).collect();
    std::fs::write(dir.path().join("noise"), noise).unwrap();
    let mut bytes = Vec::new();
    let summary =
        towpath_archive::pack(dir.path(), &PackOptions::default(), &mut bytes, &mut |_| {}).unwrap();
    (summary.digest, bytes)
}

async fn upload(blobs: &Blobs, digest: Digest, bytes: &[u8]) -> Result<Stored, UploadError> {
    let mut upload = blobs.begin_upload(BlobKind::Source, digest).unwrap();
    for chunk in bytes.chunks(1000) {
        if !upload.write(chunk.to_vec().into()).await {
            break;
        }
    }
    upload.finish().await
}

fn files(root: &Path, directory: &str) -> usize {
    std::fs::read_dir(root.join("blobs").join(directory)).unwrap().count()
}

#[tokio::test]
async fn a_disk_that_fills_up_is_told_and_keeps_nothing_and_works_again_with_room() {
    let dir = tempfile::tempdir().unwrap();
    let room = Arc::new(AtomicUsize::new(20_000));
    let blobs = Blobs::open_on(dir.path(), BlobLimits::default(), Arc::new(SmallDisk(room.clone()))).unwrap();
    let (digest, bytes) = source(50_000);
    let error = upload(&blobs, digest, &bytes).await.unwrap_err();
    assert!(matches!(error, UploadError::Full), "{error:?}");
    assert_eq!(error.code().status(), 507);
    assert_eq!((files(dir.path(), "uploads"), files(dir.path(), "sources")), (0, 0));
    room.store(usize::MAX, Ordering::SeqCst);
    let stored = upload(&blobs, digest, &bytes).await.unwrap();
    assert_eq!(stored.bytes, bytes.len() as u64);
    assert_eq!(blobs.find(BlobKind::Source, &digest).await, Some(bytes.len() as u64));
}

#[tokio::test]
async fn what_a_crash_left_is_removed_at_the_start_and_nobody_else_may_look_in() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    drop(Blobs::open(dir.path(), BlobLimits::default()).unwrap());
    std::fs::write(dir.path().join("blobs/uploads/x.part"), "half").unwrap();
    drop(Blobs::open(dir.path(), BlobLimits::default()).unwrap());
    assert_eq!(files(dir.path(), "uploads"), 0);
    let mode = std::fs::metadata(dir.path().join("blobs")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn what_nothing_refers_to_goes_after_its_grace() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::open(dir.path(), BlobLimits::default()).unwrap();
    let (kept, bytes) = source(10);
    upload(&blobs, kept, &bytes).await.unwrap();
    let (loose, bytes) = source(20);
    upload(&blobs, loose, &bytes).await.unwrap();
    let keep = [(BlobKind::Source, kept.hex()), (BlobKind::Artifact, loose.hex())].into();
    let now = SystemTime::now();
    assert_eq!(blobs.collect(&keep, now).unwrap(), collect::Collected::default());
    let later = now + Duration::from_secs(3601);
    let collected = blobs.collect(&keep, later).unwrap();
    assert_eq!((collected.files, collected.bytes), (1, bytes.len() as u64));
    assert!(blobs.find(BlobKind::Source, &loose).await.is_none());
    assert!(blobs.find(BlobKind::Source, &kept).await.is_some());
}
