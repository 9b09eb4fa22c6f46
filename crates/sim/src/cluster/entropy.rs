//! Randomness that comes from the seed alone.
//!
//! Hash maps, tokio's `select!` and ids all draw, by some way, from the C library's `getrandom`. This file takes that
//! function's place in programs that simulate: a thread that simulates is answered from its seed, every other thread by
//! the kernel. So the code under study needs no seam for randomness, and a seed replays exactly. The one rule that
//! remains: a process simulates one cluster only, since tokio counts its runtimes.

use std::cell::RefCell;
use std::ffi::{c_uint, c_void};

thread_local! {
    static SEEDED: RefCell<Option<fastrand::Rng>> = const { RefCell::new(None) };
}

/// From now on this thread's randomness follows from the seed.
pub(super) fn seed(seed: u64) {
    SEEDED.with(|rng| *rng.borrow_mut() = Some(fastrand::Rng::with_seed(seed)));
    fastrand::seed(seed.rotate_left(17) ^ 0x9e37_79b9_7f4a_7c15);
}

/// `getrandom(2)` as the C library declares it.
///
/// # Safety
/// `buffer` has to be valid for writes of `length` bytes, as for the function whose place it takes.
#[expect(unsafe_code, reason = "it takes the place of a C function, which callers reach through a C symbol")]
// SAFETY: name and signature are those of the C library's function, and it does what that promises.
#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn getrandom(buffer: *mut c_void, length: usize, flags: c_uint) -> isize {
    let filled = SEEDED.try_with(|rng| {
        let Ok(mut rng) = rng.try_borrow_mut() else { return false };
        let Some(rng) = rng.as_mut() else { return false };
        // SAFETY: the caller promises `length` writable bytes at `buffer`, and nobody else reads or writes them meanwhile.
        rng.fill(unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), length) });
        true
    });
    if filled == Ok(true) {
        return isize::try_from(length).unwrap_or(isize::MAX);
    }
    // SAFETY: the same arguments as the caller's, for the system call that the C library would make.
    let written = unsafe { libc::syscall(libc::SYS_getrandom, buffer, length, flags) };
    isize::try_from(written).unwrap_or(-1)
}
