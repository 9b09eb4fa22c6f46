//! Words to systemd, or whoever else listens at `NOTIFY_SOCKET`.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// This process has started.
pub(super) fn ready() {
    say(&format!("READY=1\nMAINPID={}\n", std::process::id()));
}

/// Another process is the service now.
pub(super) fn succeeded_by(pid: u32) {
    say(&format!("MAINPID={pid}\n"));
}

fn say(text: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let said = (|| {
        let address = match name.as_encoded_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
            _ => SocketAddr::from_pathname(&name)?,
        };
        UnixDatagram::unbound()?.send_to_addr(text.as_bytes(), &address)
    })();
    if let Err(error) = said {
        tracing::warn!(%error, "the supervisor could not be told");
    }
}
