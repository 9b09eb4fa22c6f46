//! Uploads: whatever the bytes, checking and unpacking agree, stay inside their directory, and end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_archive::{Limits, unpack, verify};

fuzz_target!(|tar: &[u8]| {
    let limits = Limits { bytes: 1 << 20, entries: 100, ..Limits::source() };
    // The compression is not the point here; raw bytes are tried as they are too.
    let _ = verify(tar, &limits, None);
    let Ok(stored) = zstd::encode_all(tar, 1) else { return };
    let checked = verify(&stored[..], &limits, None);
    let parent = tempfile::tempdir().expect("a temporary directory");
    let inner = parent.path().join("inner");
    let unpacked = unpack(&stored[..], &inner, &limits, None);
    if checked.is_err() {
        assert!(unpacked.is_err(), "what the check refuses is not unpacked");
        assert!(!inner.exists(), "nothing is left behind");
    }
    let outside = std::fs::read_dir(parent.path()).expect("readable").count();
    assert!(outside <= 1, "something was written beside the directory");
});
