//! Free ports that stay free: outside of the ranges that the kernel gives to outgoing connections and a cell to its
//! instances, so that a server can be stopped and started again on the same one, and claimed by a file lock, so that no
//! other test process takes it.

use std::fs::File;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::Mutex;

/// Cells give out 20000 and above, the kernel 32768 and above.
const RANGE: Range<u16> = 12_000..20_000;
/// The locks of this process, held until it ends.
static CLAIMED: Mutex<Vec<nix::fcntl::Flock<File>>> = Mutex::new(Vec::new());

/// A port on 127.0.0.1 that nobody listens on and no other caller gets while this process lives.
pub fn free_port() -> u16 {
    let user = nix::unistd::geteuid();
    let directory = std::env::temp_dir().join(format!("towpath-test-ports-{user}"));
    std::fs::create_dir_all(&directory).expect("a directory for port locks");
    for _ in 0..1000 {
        let port = fastrand::u16(RANGE);
        let Ok(file) = File::options().create(true).append(true).open(directory.join(port.to_string()))
        else {
            continue;
        };
        let Ok(lock) = nix::fcntl::Flock::lock(file, nix::fcntl::FlockArg::LockExclusiveNonblock) else {
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            CLAIMED.lock().unwrap().push(lock);
            return port;
        }
    }
    panic!("no free port in {RANGE:?}");
}
