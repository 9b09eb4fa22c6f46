//! The side of the process that takes over.

use super::channel::Channel;
use super::status::{Duty, Predecessor, Word};
use super::{Message, SocketPath, VERSION};
use crate::listeners::Inherited;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::UnixStream;

/// How long the process that serves may take for all that it has to say.
const WORD: Duration = Duration::from_secs(30);

/// What a running gateway has handed to this process, for [`crate::Gateway::start`]: then it lets go.
#[derive(Clone)]
pub struct TakeOver {
    taken: Arc<Mutex<Option<Taken>>>,
    kept: Arc<Mutex<Vec<(String, OwnedFd)>>>,
}

impl fmt::Debug for TakeOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TakeOver")
    }
}

/// Why nothing was taken over.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// No gateway runs with this data directory.
    #[error("no gateway runs there")]
    Nobody,
    /// It says no.
    #[error("the running gateway refuses: {0}")]
    Refused(String),
    /// It says nothing, or nothing that is understood.
    #[error("the running gateway does not hand over")]
    Failed(#[source] io::Error),
}

/// The sockets, and the way back to who has them still.
pub(crate) struct Taken {
    stream: std::os::unix::net::UnixStream,
    pub(crate) sockets: Vec<Inherited>,
}

impl TakeOver {
    /// Asks the gateway that runs with this data directory for its sockets. It goes on serving until this process does. Blocks.
    pub fn ask(data_dir: &Path) -> Result<Self, TakeOverError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(TakeOverError::Failed)?;
        runtime.block_on(async {
            let late = || TakeOverError::Failed(io::ErrorKind::TimedOut.into());
            tokio::time::timeout(WORD, take(data_dir)).await.unwrap_or_else(|_| Err(late()))
        })
    }

    /// What the starter of the running gateway has kept under this name, once.
    pub fn kept(&self, name: &str) -> Option<OwnedFd> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(known, _)| known == name)?;
        Some(kept.swap_remove(at).1)
    }

    pub(crate) fn take(&self) -> Option<Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

async fn take(data_dir: &Path) -> Result<TakeOver, TakeOverError> {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    let socket = SocketPath::new(data_dir).map_err(|_| TakeOverError::Nobody)?;
    let stream = UnixStream::connect(&socket.path).await.map_err(|error| match error.kind() {
        NotFound | ConnectionRefused => TakeOverError::Nobody,
        _ => TakeOverError::Failed(error),
    })?;
    let mut channel = Channel::new(stream);
    let hello =
        Message::Hello { version: VERSION, pid: std::process::id(), build: env!("CARGO_PKG_VERSION").into() };
    channel.send(&hello, None).await.map_err(TakeOverError::Failed)?;
    let (mut sockets, mut kept) = (Vec::new(), Vec::new());
    loop {
        let ended = || TakeOverError::Failed(io::ErrorKind::UnexpectedEof.into());
        let confused = || TakeOverError::Failed(io::ErrorKind::InvalidData.into());
        match channel.receive().await.map_err(TakeOverError::Failed)?.ok_or_else(ended)? {
            (Message::Kept { name }, Some(descriptor)) => kept.push((name, descriptor)),
            (Message::Socket { transport, address }, Some(socket)) => {
                sockets.push(Inherited { transport, address, socket });
            }
            (Message::All { count }, _) if count == sockets.len() => break,
            (Message::Refused { why }, _) => return Err(TakeOverError::Refused(why)),
            _ => return Err(confused()),
        }
    }
    let stream = channel.into_std().map_err(TakeOverError::Failed)?;
    let taken = Arc::new(Mutex::new(Some(Taken { stream, sockets })));
    Ok(TakeOver { taken, kept: Arc::new(Mutex::new(kept)) })
}

/// The way to the process that serves still.
pub(crate) struct Way(Channel);

impl Taken {
    /// The way back; the sockets are taken before.
    pub(crate) fn way(self) -> io::Result<Way> {
        Ok(Way(Channel::new(UnixStream::from_std(self.stream)?)))
    }
}

impl Way {
    /// Says that all is ready, and waits for the word to go.
    pub(crate) async fn is_ready(&mut self) -> io::Result<()> {
        self.0.send(&Message::Ready, None).await?;
        match self.0.receive().await? {
            Some((Message::Go, _)) => Ok(()),
            Some(_) => Err(io::ErrorKind::InvalidData.into()),
            None => Err(io::Error::other("it has given up waiting")),
        }
    }

    /// Says that this process accepts, and from now on listens for what the other one has to say, until its end.
    pub(crate) async fn serves(self, word: Word) {
        let Self(mut channel) = self;
        let said = channel.send(&Message::Serving, None).await;
        // Whatever becomes of the other one: clients are here now.
        word.duty.send_replace(Duty::Active);
        if said.is_ok() {
            while let Ok(Some((Message::Status(status), _))) = channel.receive().await {
                word.predecessor.send_replace(Predecessor::Says(status));
            }
        }
        word.predecessor.send_replace(Predecessor::None);
    }
}
