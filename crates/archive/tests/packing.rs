//! Packing: what is taken, in which form, and that it comes out again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use towpath_archive::{
    ArtifactOptions, Limits, PackError, PackOptions, PackSummary, Verifier, digest, pack, pack_artifact,
    unpack, unpack_artifact, verify, verify_artifact,
};

fn write(root: &Path, path: &str, content: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn packed(dir: &Path) -> (Vec<u8>, PackSummary) {
    let mut bytes = Vec::new();
    let summary = pack(dir, &PackOptions::default(), &mut bytes, &mut |_| {}).unwrap();
    (bytes, summary)
}

/// Paths of files and links that are packed.
fn names(dir: &Path) -> Vec<String> {
    let (bytes, _) = packed(dir);
    let out = tempfile::tempdir().unwrap();
    unpack(bytes.as_slice(), &out.path().join("app"), &Limits::source(), None).unwrap();
    let mut names: Vec<String> = tree(&out.path().join("app"))
        .into_iter()
        .filter(|(_, what)| !matches!(what, What::Dir))
        .map(|(path, _)| path.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    Dir,
    File(Vec<u8>, bool),
    Link(PathBuf),
}

fn tree(root: &Path) -> BTreeMap<PathBuf, What> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(root.join(&dir)).unwrap() {
            let entry = entry.unwrap();
            let (path, metadata) = (dir.join(entry.file_name()), entry.metadata().unwrap());
            let what = if metadata.is_dir() {
                waiting.push(path.clone());
                What::Dir
            } else if metadata.is_symlink() {
                What::Link(fs::read_link(entry.path()).unwrap())
            } else {
                What::File(fs::read(entry.path()).unwrap(), metadata.permissions().mode() & 0o111 != 0)
            };
            all.insert(path, what);
        }
    }
    all
}

#[test]
fn the_same_content_is_the_same_archive_whatever_order_time_and_mode() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = [("b/x", "1"), ("a", "2"), ("b.txt", "3"), ("b/a/z", "4"), ("Z", "5")];
    for (path, content) in files {
        write(one.path(), path, content);
    }
    for (path, content) in files.iter().rev() {
        write(two.path(), path, content);
        fs::set_permissions(two.path().join(path), Permissions::from_mode(0o600)).unwrap();
    }
    fs::set_permissions(one.path().join("b"), Permissions::from_mode(0o700)).unwrap();
    let old = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(99));
    fs::File::options().write(true).open(two.path().join("a")).unwrap().set_times(old).unwrap();
    assert_eq!(packed(one.path()), packed(two.path()));
    let (bytes, summary) = packed(one.path());
    assert_eq!(summary, digest(one.path(), &PackOptions::default(), &mut |_| {}).unwrap());
    let strong = PackOptions { level: 19, ..PackOptions::default() };
    let mut smaller = Vec::new();
    assert_eq!(pack(one.path(), &strong, &mut smaller, &mut |_| {}).unwrap().digest, summary.digest);
    for bytes in [&bytes, &smaller] {
        let verified = verify(bytes.as_slice(), &Limits::source(), Some(&summary.digest)).unwrap();
        assert_eq!((verified.files, verified.bytes), (summary.files, summary.bytes));
    }
    fs::set_permissions(two.path().join("a"), Permissions::from_mode(0o711)).unwrap();
    assert_ne!(packed(two.path()).1.digest, summary.digest, "that it can be run is content");
}

#[test]
fn ignore_files_are_honoured_and_ours_has_the_last_word() {
    let dir = tempfile::tempdir().unwrap();
    for path in
        ["keep", "a.log", "logs/deep/b.log", "secret", "dist/app.js", "sub/x.tmp", "sub/y.tmp", "c.log/inner"]
    {
        write(dir.path(), path, "x");
    }
    write(dir.path(), ".gitignore", "*.log\n/dist/\nsub/*.tmp\n");
    write(dir.path(), "sub/.gitignore", "!y.tmp\n");
    write(dir.path(), ".towpathignore", "secret\n!dist/\n!a.log\n");
    write(dir.path(), ".git/config", "x");
    write(dir.path(), "module/.git", "gitdir: elsewhere");
    assert_eq!(
        names(dir.path()),
        [".gitignore", ".towpathignore", "a.log", "dist/app.js", "keep", "sub/.gitignore", "sub/y.tmp"]
    );
}

#[test]
fn what_builds_make_again_is_left_out_unless_it_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    for path in [
        "package.json",
        "node_modules/x/i.js",
        "api/Cargo.toml",
        "api/target/debug/x",
        "lib/node_modules/kept.js",
        "target/kept.txt",
        "env/pyvenv.cfg",
        "env/bin/python",
        "p/__pycache__/x.pyc",
        ".towpath/env",
        ".DS_Store",
        "java/pom.xml",
        "java/target/x.jar",
    ] {
        write(dir.path(), path, "x");
    }
    let rest =
        ["api/Cargo.toml", "java/pom.xml", "lib/node_modules/kept.js", "package.json", "target/kept.txt"];
    assert_eq!(names(dir.path()), rest);
    write(dir.path(), ".towpathignore", "!java/target\n!node_modules\n");
    assert!(names(dir.path()).contains(&"java/target/x.jar".to_owned()));
    assert!(names(dir.path()).contains(&"node_modules/x/i.js".to_owned()));
}

#[test]
fn a_broken_ignore_file_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), ".gitignore", "a[z-a]\nskipped\n");
    write(dir.path(), "skipped", "x");
    let (_, summary) = packed(dir.path());
    assert_eq!((summary.files, summary.warnings.len()), (1, 1), "{:?}", summary.warnings);
}

#[test]
fn links_that_lead_out_and_special_files_are_left_out_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "d/file", "x");
    symlink("d/file", dir.path().join("in")).unwrap();
    symlink("../d", dir.path().join("d/up")).unwrap();
    symlink("/etc/passwd", dir.path().join("absolute")).unwrap();
    symlink("../outside", dir.path().join("out")).unwrap();
    symlink("nothing", dir.path().join("dangling")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let (_, summary) = packed(dir.path());
    let left_out: Vec<_> = summary.warnings.iter().map(|w| w.path.to_str().unwrap()).collect();
    assert_eq!(left_out, ["absolute", "out", "socket"]);
    assert_eq!(names(dir.path()), ["d/file", "d/up", "dangling", "in"]);
}

#[test]
fn too_much_is_an_error_that_says_what_is_large() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "data/models/big.bin", &"x".repeat(900_000));
    write(dir.path(), "data/small", "x");
    write(dir.path(), "video.mp4", &"x".repeat(200_000));
    write(dir.path(), "app.py", "x");
    let options = PackOptions { max_bytes: 1_000_000, ..PackOptions::default() };
    let error = digest(dir.path(), &options, &mut |_| {}).unwrap_err();
    let PackError::TooLarge { bytes, limit, largest } = &error else { panic!("{error}") };
    assert_eq!((*bytes, *limit), (1_100_002, 1_000_000));
    let paths: Vec<_> = largest.iter().map(|(path, _)| path.to_str().unwrap()).collect();
    assert_eq!(paths, ["data/models", "video.mp4", "app.py"]);
    let text = error.to_string();
    for part in ["1.0 MiB", "976.6 KiB", "data/models (878.9 KiB)", ".towpathignore"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let few = PackOptions { max_entries: 3, ..PackOptions::default() };
    assert!(digest(dir.path(), &few, &mut |_| {}).unwrap_err().to_string().contains("more than 3 files"));
}

#[test]
fn a_file_may_grow_or_go_while_it_is_packed() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "x");
    write(dir.path(), "b", &"x".repeat(100));
    let path = dir.path().join("b");
    let grow = |progress: towpath_archive::Progress| {
        if progress.files == 1 {
            fs::write(&path, "x".repeat(200)).unwrap();
        }
    };
    let mut bytes = Vec::new();
    let summary = pack(dir.path(), &PackOptions::default(), &mut bytes, &mut { grow }).unwrap();
    assert_eq!(summary.bytes, 201);
    let go = |progress: towpath_archive::Progress| {
        if progress.files == 1 {
            fs::remove_file(&path).unwrap();
        }
    };
    let summary = pack(dir.path(), &PackOptions::default(), std::io::sink(), &mut { go }).unwrap();
    assert_eq!(summary.files, 1);
}

#[test]
fn progress_ends_at_the_total() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", "12345");
    write(dir.path(), "d/b", "123");
    let mut seen = Vec::new();
    digest(dir.path(), &PackOptions::default(), &mut |p| {
        seen.push((p.files, p.bytes, p.total_files, p.total_bytes))
    })
    .unwrap();
    assert_eq!(seen, [(1, 5, 2, 8), (1, 5, 2, 8), (2, 8, 2, 8)]);
}

#[test]
fn an_artifact_is_everything_and_known_by_its_stored_bytes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), ".gitignore", "*");
    write(dir.path(), "node_modules/a.js", "x");
    write(dir.path(), "package.json", "x");
    let mut bytes = Vec::new();
    let summary = pack_artifact(dir.path(), &ArtifactOptions::default(), &mut bytes).unwrap();
    assert_eq!((summary.files, summary.stored_bytes), (3, bytes.len() as u64));
    verify_artifact(bytes.as_slice(), &Limits::artifact(), Some(&summary.digest)).unwrap();
    let out = tempfile::tempdir().unwrap();
    unpack_artifact(bytes.as_slice(), &out.path().join("app"), &Limits::artifact(), Some(&summary.digest))
        .unwrap();
    assert_eq!(tree(&out.path().join("app")), tree(dir.path()));
    let nobody = ArtifactOptions { owner: Some(4_000_000_000) };
    let nothing = pack_artifact(dir.path(), &nobody, std::io::sink()).unwrap();
    assert_eq!((nothing.files, nothing.warnings.len()), (0, 3));
}

#[test]
fn an_archive_can_be_checked_while_it_arrives() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a", &"text ".repeat(100_000));
    let (bytes, summary) = packed(dir.path());
    let mut verifier = Verifier::new(Limits::source(), Some(summary.digest)).unwrap();
    for piece in bytes.chunks(7) {
        assert!(verifier.write(piece));
    }
    assert_eq!(verifier.finish().unwrap().digest, summary.digest);
    let mut verifier = Verifier::new(Limits::source(), None).unwrap();
    let mut accepted = true;
    for _ in 0..1000 {
        accepted &= verifier.write(b"this is no archive");
    }
    assert!(!accepted, "a bad one is refused before its end");
    assert!(verifier.finish().is_err());
    assert!(Verifier::new(Limits::source(), None).unwrap().finish().is_err(), "nothing is no archive");
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    let any =
        proptest::collection::vec(any::<u8>().prop_filter("not in names", |b| *b != 0 && *b != b'/'), 1..40);
    prop_oneof!["[a-zA-Z0-9 ._-]{1,120}".prop_map(String::into_bytes), any]
        .prop_filter("special names", |name| {
            ![&b"."[..], b"..", b".git", b".hg", b".svn"].contains(&name.as_slice())
        })
}

fn paths() -> impl Strategy<Value = BTreeMap<Vec<Vec<u8>>, (Vec<u8>, bool, u8)>> {
    let content = (proptest::collection::vec(any::<u8>(), 0..2000), any::<bool>(), 0..4_u8);
    proptest::collection::btree_map(proptest::collection::vec(name(), 1..5), content, 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_packed_comes_out_again(files in paths()) {
        let dir = tempfile::tempdir().unwrap();
        for (parts, (content, executable, kind)) in &files {
            let path: PathBuf = std::iter::once(dir.path().to_path_buf())
                .chain(parts.iter().map(|part| PathBuf::from(OsStr::from_bytes(part))))
                .collect();
            if fs::create_dir_all(path.parent().unwrap()).is_err() || path.symlink_metadata().is_ok() {
                continue;
            }
            match kind {
                0 => fs::create_dir(&path).unwrap(),
                1 => symlink(OsStr::from_bytes(&[b"to-", parts[0].as_slice()].concat()), &path).unwrap(),
                _ => {
                    fs::write(&path, content).unwrap();
                    let mode = if *executable { 0o755 } else { 0o644 };
                    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
                }
            }
        }
        let mut bytes = Vec::new();
        let summary = pack_artifact(dir.path(), &ArtifactOptions::default(), &mut bytes).unwrap();
        let out = tempfile::tempdir().unwrap();
        let app = out.path().join("app");
        unpack_artifact(bytes.as_slice(), &app, &Limits::artifact(), Some(&summary.digest)).unwrap();
        prop_assert_eq!(tree(dir.path()), tree(&app));
        // The other way round: what comes out packs to the same again.
        let mut again = Vec::new();
        let second = pack_artifact(&app, &ArtifactOptions::default(), &mut again).unwrap();
        prop_assert_eq!(second, summary);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn random_bytes_and_damaged_archives_do_no_harm(noise in proptest::collection::vec(any::<u8>(), 0..3000), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let outer = tempfile::tempdir().unwrap();
        let target = outer.path().join("app");
        prop_assert!(unpack(noise.as_slice(), &target, &Limits::source(), None).is_err());
        // Uncompressed damage gets past the compression.
        let mut tar = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(noise.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, "d/file", noise.as_slice()).unwrap();
        let mut bytes = tar.into_inner().unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let _ = unpack(zstd::encode_all(bytes.as_slice(), 1).unwrap().as_slice(), &target, &Limits::source(), None);
        let left: Vec<_> = fs::read_dir(outer.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        prop_assert!(left.is_empty() || left == ["app"], "{:?}", left);
    }
}

#[test]
fn what_is_swapped_for_a_link_while_it_is_packed_leads_nowhere() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let dir = tempfile::tempdir().unwrap();
    let (app, outside) = (dir.path().join("app"), dir.path().join("outside"));
    for n in 0..30 {
        write(&app, &format!("sub/file-{n}"), "own");
        write(&outside, &format!("file-{n}"), "secret");
    }
    symlink(&outside, app.join("zlink")).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (one, other) = (app.join("sub"), app.join("zlink"));
            while !stop.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let _ = rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &other, flags);
            }
        });
        for _ in 0..40 {
            let mut bytes = Vec::new();
            // It may fail for what it meets; it may not read what is outside.
            if pack_artifact(&app, &ArtifactOptions::default(), &mut bytes).is_err() {
                continue;
            }
            let out = tempfile::tempdir().unwrap();
            let to = out.path().join("app");
            unpack_artifact(bytes.as_slice(), &to, &Limits::artifact(), None).unwrap();
            for path in tree(&to).keys() {
                let content = fs::read_to_string(to.join(path)).unwrap_or_default();
                assert!(!content.contains("secret"), "{path:?}");
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
}
