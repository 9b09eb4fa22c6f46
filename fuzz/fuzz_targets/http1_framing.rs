//! Bytes of an HTTP/1 client: judged whole or in pieces, the same bytes pass and the same kind of stop follows (the reason may
//! differ, where more than one thing is wrong).
#![no_main]

use libfuzzer_sys::fuzz_target;
use towpath_gateway::framing::{FramingLimits, Guard, Stop};

/// What is wrong, without why.
#[derive(Debug, PartialEq)]
enum Kind {
    Head,
    Body,
    Upgrade,
}

fn kind(stop: Stop) -> Kind {
    match stop {
        Stop::BadHead(_) => Kind::Head,
        Stop::BadBody(_) => Kind::Body,
        Stop::Upgrade => Kind::Upgrade,
    }
}

/// Bytes passed, and how it ended, when shown in pieces of `step` bytes.
fn judge(bytes: &[u8], step: usize) -> (usize, Option<Kind>) {
    let mut guard = Guard::new(FramingLimits { head_bytes: 512, headers: 8 });
    let (mut passed, mut shown) = (0, 0);
    loop {
        shown = (shown + step).min(bytes.len());
        let verdict = guard.judge(&bytes[passed..shown]);
        assert!(verdict.pass <= shown - passed);
        passed += verdict.pass;
        if verdict.stop.is_some() || shown == bytes.len() {
            return (passed, verdict.stop.map(kind));
        }
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (step, bytes) = (usize::from(input.0).max(1), input.1);
    assert_eq!(judge(bytes, bytes.len().max(1)), judge(bytes, step));
});
