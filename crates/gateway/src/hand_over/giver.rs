//! The side of the process that serves: it waits for one that wants to take over.

use super::channel::Channel;
use super::status::{Duty, Word};
use super::{Message, SocketPath, VERSION};
use crate::listeners::Listeners;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};

/// How long the other side may take for a word that needs no work.
const WORD: Duration = Duration::from_secs(5);
/// How long it may take to start.
const START: Duration = Duration::from_secs(120);
/// Pause after a failure to accept.
const ACCEPT_AGAIN: Duration = Duration::from_millis(200);

/// What is handed over, and who is to know.
pub(crate) struct Giver {
    pub(crate) listeners: Listeners,
    /// What the starter of the gateway wants kept, by name.
    pub(crate) kept: Vec<(String, Arc<OwnedFd>)>,
    pub(crate) word: Word,
    /// Process that has taken over.
    pub(crate) successor: watch::Sender<Option<u32>>,
    /// Has the snapshot written, so that the successor starts with what is known now.
    pub(crate) flush: Option<mpsc::Sender<oneshot::Sender<()>>>,
}

/// Why a hand-over came to nothing.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("it ended")]
    Ended,
    #[error("it took too long")]
    Late,
    #[error("it is not of this user")]
    Stranger,
    #[error("it does not say what it should")]
    Confused,
    #[error("the connection broke")]
    Io(#[from] io::Error),
}

/// Makes the socket. One that is there already is of a process that is no more, or has handed over.
pub(crate) fn listen(data_dir: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let socket = SocketPath::new(data_dir)?;
    match std::fs::remove_file(&socket.path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = std::os::unix::net::UnixListener::bind(&socket.path)?;
    std::fs::set_permissions(&socket.path, std::fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Giver {
    /// Waits for one that takes over, and then tells it what it has to know. One at a time.
    pub(crate) async fn run(self, listener: std::os::unix::net::UnixListener) {
        let listener = match UnixListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::warn!(%error, "this gateway cannot be handed over"),
        };
        let channel = loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a process that wants to take over could not be heard");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                }
            };
            let own = nix::unistd::Uid::effective().as_raw();
            let is_own = stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0);
            let result = if is_own { self.give(Channel::new(stream)).await } else { Err(Failed::Stranger) };
            match result {
                Ok((channel, pid)) => {
                    drop(listener);
                    tracing::info!(pid, "another process has taken over");
                    self.word.duty.send_replace(Duty::HandedOver);
                    self.successor.send_replace(Some(pid));
                    break channel;
                }
                Err(error) => {
                    tracing::warn!(%error, "another process did not take over; this one goes on");
                }
            }
        };
        self.tell(channel).await;
    }

    async fn give(&self, mut channel: Channel) -> Result<(Channel, u32), Failed> {
        let pid = match within(WORD, hear(&mut channel)).await? {
            Message::Hello { version: VERSION, pid, build } => {
                tracing::info!(pid, version = %build, "another process is about to take over");
                pid
            }
            Message::Hello { version, .. } => {
                let why = format!("it speaks version {VERSION} of the hand-over, not {version}");
                channel.send(&Message::Refused { why }, None).await?;
                return Err(Failed::Confused);
            }
            _ => return Err(Failed::Confused),
        };
        self.flush().await;
        for (name, descriptor) in &self.kept {
            channel.send(&Message::Kept { name: name.clone() }, Some(descriptor.as_fd())).await?;
        }
        let sockets = self.listeners.copies()?;
        for one in &sockets {
            let message = Message::Socket { transport: one.transport, address: one.address };
            channel.send(&message, Some(one.socket.as_fd())).await?;
        }
        channel.send(&Message::All { count: sockets.len() }, None).await?;
        drop(sockets);
        if within(START, hear(&mut channel)).await? != Message::Ready {
            return Err(Failed::Confused);
        }
        channel.send(&Message::Go, None).await?;
        // From here on it is for the other side to fail. While it does not say that it serves, this one does.
        match hear(&mut channel).await? {
            Message::Serving => Ok((channel, pid)),
            _ => Err(Failed::Confused),
        }
    }

    async fn flush(&self) {
        let Some(flush) = &self.flush else { return };
        let (done, is_done) = oneshot::channel();
        if flush.send(done).await.is_ok() {
            let _ = tokio::time::timeout(WORD, is_done).await;
        }
    }

    /// Tells the successor what there is to know, until the end of either.
    async fn tell(&self, channel: Channel) {
        let mut told = self.word.told.subscribe();
        loop {
            let status = told.borrow_and_update().clone();
            if let Some(status) = status
                && let Err(error) = channel.send(&Message::Status(status), None).await
            {
                tracing::warn!(%error, "the process that has taken over is not there any more");
                return;
            }
            if told.changed().await.is_err() {
                return;
            }
        }
    }
}

async fn hear(channel: &mut Channel) -> Result<Message, Failed> {
    channel.receive().await?.map(|(message, _)| message).ok_or(Failed::Ended)
}

async fn within<T>(time: Duration, future: impl Future<Output = Result<T, Failed>>) -> Result<T, Failed> {
    tokio::time::timeout(time, future).await.unwrap_or(Err(Failed::Late))
}
