//! Archives made by hand to do harm: each is refused, by unpacking and by verifying alike, and leaves nothing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::fs;
use std::path::Path;
use towpath_archive::{Limits, UnpackError, unpack, unpack_artifact, verify};
use towpath_types::{Digest, ErrorCode};

/// One tar block for an entry; everything is as the test says, however wrong.
fn head(path: &[u8], kind: u8, size: u64, link: &[u8]) -> Vec<u8> {
    let mut block = vec![0_u8; 512];
    block[..path.len().min(100)].copy_from_slice(&path[..path.len().min(100)]);
    block[100..108].copy_from_slice(b"0004755\0");
    block[108..116].copy_from_slice(b"0000000\0");
    block[116..124].copy_from_slice(b"0000000\0");
    block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
    block[136..148].copy_from_slice(b"00000000000\0");
    block[156] = kind;
    block[157..157 + link.len()].copy_from_slice(link);
    block[257..265].copy_from_slice(b"ustar  \0");
    seal(&mut block);
    block
}

fn seal(block: &mut [u8]) {
    block[148..156].copy_from_slice(b"        ");
    let sum: u32 = block.iter().map(|b| u32::from(*b)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
}

fn entry(path: &str, kind: u8, content: &[u8], link: &str) -> Vec<u8> {
    let mut bytes = head(path.as_bytes(), kind, content.len() as u64, link.as_bytes());
    bytes.extend_from_slice(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn file(path: &str, content: &[u8]) -> Vec<u8> {
    entry(path, b'0', content, "")
}

fn pax(records: &[(&str, &str)]) -> Vec<u8> {
    let mut data = Vec::new();
    for (key, value) in records {
        let body = key.len() + value.len() + 3;
        let length = (body..).find(|n| body + n.to_string().len() == *n).unwrap();
        data.extend_from_slice(format!("{length} {key}={value}\n").as_bytes());
    }
    entry("pax", b'x', &data, "")
}

fn packed(parts: &[Vec<u8>]) -> Vec<u8> {
    let mut tar = parts.concat();
    tar.resize(tar.len() + 1024, 0);
    zstd::encode_all(tar.as_slice(), 1).unwrap()
}

/// Unpacks and verifies; both must say the same. Nothing may be left of what was refused.
fn try_with(archive: &[u8], limits: &Limits) -> Result<u64, UnpackError> {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("app");
    let result = unpack(archive, &dir, limits, None);
    let verified = verify(archive, limits, None);
    match (&result, &verified) {
        (Ok(one), Ok(two)) => assert_eq!(one, two),
        (Err(one), Err(two)) => assert_eq!(one.to_string(), two.to_string()),
        other => panic!("unpacking and verifying disagree: {other:?}"),
    }
    if result.is_err() {
        assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 0, "something was left");
    }
    result.map(|summary| summary.entries)
}

fn refusal(parts: &[Vec<u8>]) -> String {
    let error = try_with(&packed(parts), &Limits::source()).unwrap_err();
    assert!(matches!(error.code(), ErrorCode::BadArchive | ErrorCode::UploadTooLarge), "{error:?}");
    error.to_string()
}

#[test]
fn paths_that_lead_out_are_refused() {
    for path in ["../x", "a/../../x", "a/..", "..", "/etc/passwd", "./../x", "//x"] {
        let text = refusal(&[file(path, b"x")]);
        assert!(text.contains("'..'") || text.contains("absolute"), "{path}: {text}");
    }
    for kind in [b'5', b'2'] {
        refusal(&[entry("../d", kind, b"", "x")]);
    }
    refusal(&[pax(&[("path", "../x")]), file("fine", b"x")]);
    refusal(&[pax(&[("path", "a\0b")]), file("fine", b"x")]);
    refusal(&[entry("././@LongLink", b'L', b"../../x\0", ""), file("fine", b"x")]);
    let mut prefixed = head(b"x", b'0', 0, b"");
    prefixed[257..265].copy_from_slice(b"ustar\x0000");
    prefixed[345..347].copy_from_slice(b"..");
    seal(&mut prefixed);
    refusal(&[prefixed]);
}

#[test]
fn links_that_lead_out_are_refused() {
    for target in ["/etc", "../x", "a/../../x", "a/..", ""] {
        assert!(refusal(&[entry("l", b'2', b"", target)]).contains("symbolic link"), "{target}");
    }
    // Harmless by its text alone, not with the other link's help.
    let text = refusal(&[
        entry("p/q/", b'5', b"", ""),
        entry("p/q/s", b'2', b"", "../../r"),
        entry("p/q/t", b'2', b"", "s/../../x"),
    ]);
    assert!(text.contains("could lead"), "{text}");
    refusal(&[pax(&[("linkpath", "/etc")]), entry("l", b'2', b"", "fine")]);
    refusal(&[entry("././@LongLink", b'K', b"/etc\0", ""), entry("l", b'2', b"", "fine")]);
}

#[test]
fn nothing_is_written_through_a_link() {
    for last in [file("l/x", b"x"), entry("l/x", b'5', b"", ""), file("l", b"x"), entry("l", b'5', b"", "")] {
        refusal(&[entry("d/", b'5', b"", ""), entry("l", b'2', b"", "d"), last]);
    }
    refusal(&[file("f", b"x"), file("f/x", b"x")]);
}

#[test]
fn hard_links_reach_only_files_of_the_archive() {
    for target in ["/etc/passwd", "../x", "none", "d", "l"] {
        refusal(&[entry("d/", b'5', b"", ""), entry("l", b'2', b"", "d"), entry("h", b'1', b"", target)]);
    }
    refusal(&[file("f", b"x"), entry("h", b'1', b"content", "f")]);
    assert_eq!(
        try_with(&packed(&[file("f", b"x"), entry("h", b'1', b"", "f")]), &Limits::source()).unwrap(),
        2
    );
}

#[test]
fn special_files_are_refused() {
    for (kind, word) in
        [(b'3', "device"), (b'4', "device"), (b'6', "pipe"), (b'7', "contiguous"), (b'S', "sparse")]
    {
        assert!(refusal(&[entry("x", kind, b"", "")]).contains(word));
        assert!(refusal(&[entry("x", kind, b"content", "")]).contains(word));
    }
    for kind in [b'V', b'M', b'D', b'Z', 200] {
        refusal(&[entry("x", kind, b"", "")]);
    }
    for key in ["GNU.sparse.major", "GNU.sparse.size", "GNU.sparse.map"] {
        assert!(refusal(&[pax(&[(key, "1")]), file("x", b"x")]).contains("sparse"));
    }
}

#[test]
fn setuid_bits_and_writability_are_dropped() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("app");
    unpack(packed(&[file("x", b"x"), entry("d/", b'5', b"", "")]).as_slice(), &dir, &Limits::source(), None)
        .unwrap();
    let mode = |path: &str| {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(dir.join(path)).unwrap().permissions())
    };
    assert_eq!(mode("x") & 0o7777, 0o755);
    assert_eq!(mode("d") & 0o7777, 0o755);
    assert_eq!(mode(".") & 0o7777, 0o755);
}

#[test]
fn entries_that_come_twice_are_refused() {
    refusal(&[file("a", b"1"), file("a", b"2")]);
    refusal(&[file("a", b"1"), file("./a", b"2")]);
    refusal(&[file("a/b", b"1"), file("a//b", b"2")]);
    refusal(&[file("a", b"1"), entry("a", b'2', b"", "b")]);
    refusal(&[file("a", b"1"), entry("a", b'5', b"", "")]);
    let twice = packed(&[entry("./", b'5', b"", ""), entry("a/", b'5', b"", ""), entry("a", b'5', b"", "")]);
    assert_eq!(try_with(&twice, &Limits::source()).unwrap(), 1, "a directory may be named again");
}

#[test]
fn names_are_bounded() {
    let limits = Limits::source();
    let long = "x".repeat(300);
    assert!(refusal(&[pax(&[("path", &long)]), file("a", b"")]).contains("too long"));
    let deep = "d/".repeat(limits.depth + 1) + "f";
    assert!(refusal(&[pax(&[("path", &deep)]), file("a", b"")]).contains("too deep"));
    let path = "dddddddddd/".repeat(limits.path / 11 + 1);
    assert!(refusal(&[pax(&[("path", &path)]), file("a", b"")]).contains("too long"));
    // Names of a length that nobody could hold in memory.
    for kind in [b'L', b'K', b'x', b'g'] {
        let text = refusal(&[head(b"name", kind, 7 << 30, b"")]);
        assert!(text.contains("bytes in a name"), "{text}");
    }
    refusal(&[
        entry("././@LongLink", b'L', b"a\0", ""),
        entry("././@LongLink", b'L', b"b\0", ""),
        file("x", b""),
    ]);
    refusal(&[pax(&[("path", "a"), ("path", "b")]), file("x", b"")]);
    refusal(&[entry("././@LongLink", b'L', b"a\0", "")]);
    refusal(&[entry("pax", b'x', b"99 path=short\n", ""), file("x", b"")]);
    refusal(&[entry("pax", b'x', b"no pax at all", ""), file("x", b"")]);
    refusal(&[entry("pax", b'g', b"11 path=../\n", ""), file("x", b"")]);
    refusal(&[file("", b"x")]);
    refusal(&[file("a/", b"x")]);
    refusal(&[file(".", b"x")]);
}

#[test]
fn headers_that_disagree_about_a_size_are_refused() {
    let text = refusal(&[pax(&[("size", "0")]), file("x", b"smuggled")]);
    assert!(text.contains("disagree"), "{text}");
    refusal(&[pax(&[("size", "many")]), file("x", b"")]);
    refusal(&[entry("d/", b'5', b"content", "")]);
    // A size that does not fit into any number.
    let mut huge = head(b"x", b'0', 0, b"");
    huge[124..136].copy_from_slice(&[0xff; 12]);
    seal(&mut huge);
    refusal(&[huge]);
    let mut almost = head(b"x", b'0', 0, b"");
    almost[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    seal(&mut almost);
    refusal(&[almost]);
}

#[test]
fn names_that_are_no_text_are_fine() {
    let outer = tempfile::tempdir().unwrap();
    let dir = outer.path().join("app");
    let mut name = head(b"\xff\xfe\n\x1b[31m", b'0', 0, b"");
    seal(&mut name);
    unpack(
        packed(&[name, file("README", b""), file("readme", b"")]).as_slice(),
        &dir,
        &Limits::source(),
        None,
    )
    .unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
}

#[test]
fn bombs_are_stopped_by_size_ratio_and_count() {
    let small = Limits { bytes: 1 << 20, entries: 10, ..Limits::source() };
    let error = try_with(&packed(&[file("x", &vec![7; 2 << 20])]), &small).unwrap_err();
    assert!(matches!(error, UnpackError::OverLimit { limit: 1_048_576, .. }), "{error}");
    assert_eq!(error.code(), ErrorCode::UploadTooLarge);
    // 512 MiB of nothing in a few KiB.
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    std::io::copy(&mut head(b"x", b'0', 512 << 20, b"").as_slice(), &mut encoder).unwrap();
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), (512 << 20) + 1024), &mut encoder).unwrap();
    let bomb = encoder.finish().unwrap();
    let error = try_with(&bomb, &Limits::source()).unwrap_err();
    assert!(matches!(error, UnpackError::OverLimit { limit: 200, .. }), "{error}");
    let many: Vec<_> = (0..11).map(|n| file(&format!("f{n}"), b"")).collect();
    assert!(matches!(try_with(&packed(&many), &small), Err(UnpackError::OverLimit { limit: 10, .. })));
    // Directories that are only implied count too.
    let implied = file("1/2/3/4/5/6/7/8/9/10/11", b"");
    assert!(matches!(try_with(&packed(&[implied]), &small), Err(UnpackError::OverLimit { .. })));
    assert!(try_with(&packed(&many[..10]), &small).is_ok());
}

#[test]
fn a_window_that_would_take_much_memory_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.window_log(27).unwrap();
    let noise: Vec<u8> =
        (0..9_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    std::io::copy(&mut file("x", &noise).as_slice(), &mut encoder).unwrap();
    std::io::copy(&mut [0; 1024].as_slice(), &mut encoder).unwrap();
    let archive = encoder.finish().unwrap();
    assert!(matches!(try_with(&archive, &Limits::source()), Err(UnpackError::Read(_))));
}

#[test]
fn truncated_and_corrupt_archives_are_refused_wherever_they_break() {
    let content: Vec<u8> =
        (0..60_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let whole = packed(&[file("a", &content), file("b", b"end")]);
    assert!(try_with(&whole, &Limits::source()).is_ok());
    for keep in (0..whole.len()).step_by(whole.len() / 50).chain([whole.len() - 1]) {
        assert!(try_with(&whole[..keep], &Limits::source()).is_err(), "cut at {keep}");
    }
    for text in [&b""[..], b"PK\x03\x04 a zip file", b"\x1f\x8b\x08 a gzip file", &[0; 4096]] {
        assert!(try_with(text, &Limits::source()).is_err());
    }
    // Whole as a stream, but not as a tar.
    let tar = [file("a", b"x"), vec![0; 1024]].concat();
    for keep in [0, 1, 511, 512, 513, 1023, 1024, 1025, 1536, 2047] {
        let cut = zstd::encode_all(&tar[..keep], 1).unwrap();
        assert!(try_with(&cut, &Limits::source()).is_err(), "cut at {keep}");
    }
    let mut broken = tar.clone();
    broken[0] ^= 1;
    assert!(
        try_with(&zstd::encode_all(broken.as_slice(), 1).unwrap(), &Limits::source()).is_err(),
        "checksum"
    );
}

#[test]
fn what_follows_the_end_is_refused() {
    let good = packed(&[file("a", b"x")]);
    assert!(try_with(&[good.as_slice(), b"more"].concat(), &Limits::source()).is_err());
    let second = packed(&[file("b", b"x")]);
    let text = try_with(&[good.as_slice(), &second].concat(), &Limits::source()).unwrap_err().to_string();
    assert!(text.contains("follows its end"), "{text}");
    let mut tar = [file("a", b"x"), vec![0; 512], file("hidden", b"x"), vec![0; 1024]].concat();
    assert!(try_with(&zstd::encode_all(tar.as_slice(), 1).unwrap(), &Limits::source()).is_err());
    tar.truncate(1024);
    tar.resize(10_240, 0);
    assert!(
        try_with(&zstd::encode_all(tar.as_slice(), 1).unwrap(), &Limits::source()).is_ok(),
        "padding is fine"
    );
}

#[test]
fn another_content_than_announced_is_refused_and_leaves_nothing() {
    let outer = tempfile::tempdir().unwrap();
    let archive = packed(&[file("a", b"x")]);
    let other = Digest::from_bytes([7; 32]);
    for error in [
        unpack(archive.as_slice(), &outer.path().join("app"), &Limits::source(), Some(&other)).unwrap_err(),
        unpack_artifact(archive.as_slice(), &outer.path().join("app"), &Limits::artifact(), Some(&other))
            .unwrap_err(),
    ] {
        assert!(matches!(error, UnpackError::WrongDigest { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 0);
}

#[test]
fn what_is_there_is_not_touched() {
    let outer = tempfile::tempdir().unwrap();
    let (dir, elsewhere) = (outer.path().join("app"), outer.path().join("elsewhere"));
    fs::create_dir_all(&elsewhere).unwrap();
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("mine"), "x").unwrap();
    let archive = packed(&[file("a", b"x")]);
    assert!(matches!(
        unpack(archive.as_slice(), &dir, &Limits::source(), None),
        Err(UnpackError::Write { .. })
    ));
    assert_eq!(fs::read(dir.join("mine")).unwrap(), b"x");
    fs::remove_file(dir.join("mine")).unwrap();
    fs::remove_dir(&dir).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &dir).unwrap();
    assert!(unpack(archive.as_slice(), &dir, &Limits::source(), None).is_err());
    assert_eq!(
        fs::read_dir(&elsewhere).unwrap().count(),
        0,
        "a link in the place of the directory is not followed"
    );
    assert!(unpack(archive.as_slice(), Path::new("/proc/towpath"), &Limits::source(), None).is_err());
}
