//! The few kernel calls that no safe library offers: pidfds, closing inherited descriptors, killing by user.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A descriptor that becomes readable when the process ends and never means another process.
#[expect(unsafe_code, reason = "pidfd_open has no safe wrapper in the libraries used here")]
pub(crate) fn open_pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor (close-on-exec) and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Lets the runtime watch a pidfd.
#[expect(unsafe_code, reason = "the runtime asks for a promise about the descriptor")]
pub(crate) fn watch_pidfd(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` always gives the same descriptor and keeps it open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}

/// Sends a signal to the very process that the pidfd stands for.
#[expect(unsafe_code, reason = "pidfd_send_signal has no safe wrapper in the libraries used here")]
pub(crate) fn signal_pidfd(pidfd: &OwnedFd, signal: i32) -> io::Result<()> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: the descriptor is open for the whole call; a null siginfo is permitted.
    let done =
        unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0_u32) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes every descriptor from 3 on. Only for a process that has just begun and opened none itself.
#[expect(unsafe_code, reason = "close_range has no safe wrapper in the libraries used here")]
pub(crate) fn close_inherited() {
    // SAFETY: the caller has opened nothing yet, so no live object of this process owns one of them. A failure (a kernel
    // without the call) leaves them open, which the close-on-exec flag of each makes harmless for the app.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, 0_u32) };
}

/// Sends SIGKILL at once to every process of the user, and to none other. Only for a single-threaded root process.
#[expect(unsafe_code, reason = "kill(-1) must be called as the user, so in a forked child")]
pub(crate) fn kill_user(uid: u32) {
    // SAFETY: this process has one thread, so the child may run any code; it only makes system calls and leaves with _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain system calls on integers. When the user cannot be changed nothing is killed. SIGKILL reaches every
        // process that this user may signal, the caller excepted, in one sweep under the kernel's lock.
        unsafe {
            if libc::setresuid(uid, uid, uid) == 0 && uid != 0 {
                libc::kill(-1, libc::SIGKILL);
            }
            libc::_exit(0);
        }
    }
    if child > 0 {
        let _ = nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None);
    }
}

/// Raises the niceness of this process by so much.
#[expect(unsafe_code, reason = "setpriority has no safe wrapper in the libraries used here")]
pub(crate) fn be_nice(by: i32) {
    // SAFETY: takes integers only; a failure changes nothing.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, by) };
}
