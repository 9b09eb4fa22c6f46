//! Free ports that stay free: outside of the range that the kernel gives to outgoing connections, so that a server can
//! be stopped and started again on the same one, and claimed by a file lock, so that no other test process takes it.

use std::fs::File;
use std::net::TcpListener;
use std::sync::Mutex;

/// The locks of this process, held until it ends.
static CLAIMED: Mutex<Vec<nix::fcntl::Flock<File>>> = Mutex::new(Vec::new());

/// A port on 127.0.0.1 that nobody listens on and no other caller gets while this process lives.
pub fn free_port() -> u16 {
    let user = nix::unistd::geteuid();
    let directory = std::env::temp_dir().join(format!("towpath-test-ports-{user}"));
    std::fs::create_dir_all(&directory).expect("a directory for port locks");
    for _ in 0..1000 {
        let port = fastrand::u16(15_000..32_000);
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
    panic!("no free port between 15000 and 32000");
}
