//! Accepting the connections of stream listeners.

use super::session::Session;
use super::tcp;
use crate::client::accept::Counted;
use crate::clock;
use crate::metrics::StreamKind;
use crate::tls::TlsListener;
use crate::worker::Worker;
use crate::worker_thread::Drain;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use towpath_telemetry::Seldom;

/// Pause after a failure to accept that is not about one client.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// What a listener does with the bytes of its clients.
#[derive(Debug, Clone)]
pub(crate) enum Mode {
    /// Passes them on, unseen.
    Plain,
    /// Looks for the server name in them, and passes them on.
    Passthrough,
    /// Speaks TLS with them, and passes on what is in it.
    Tls(Arc<TlsListener>),
}

/// Accepts until the listener is closed or the worker drains.
pub(crate) async fn run(
    worker: Rc<Worker>,
    listener: TcpListener,
    mode: Mode,
    mut drain: watch::Receiver<Drain>,
) {
    let mut warned = Seldom::default();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = drain.wait_for(Option::is_some) => break,
        };
        match accepted {
            Ok((stream, peer)) => accept(&worker, stream, peer, &mode),
            Err(error) if is_about_one_client(&error) => {}
            Err(error) => {
                if let Some(left_out) = warned.now(clock::now_ms()) {
                    tracing::warn!(%error, left_out, "connections cannot be accepted; trying again");
                }
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
    // Clients in the queue believe that they are connected; closing the socket would reset them.
    let Ok(listener) = listener.into_std() else { return };
    while let Ok((stream, peer)) = listener.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            accept(&worker, stream, peer, &mode);
        }
    }
}

fn is_about_one_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused
    )
}

fn accept(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, mode: &Mode) {
    worker.metrics.accepted.add(1);
    let (Some(count), Ok(local)) = (Counted::new(worker), stream.local_addr()) else {
        worker.metrics.turned_away.add(1);
        return;
    };
    let _ = stream.set_nodelay(true);
    let deadline = worker.deadlines.add();
    let session = |kind| Session::new(worker, kind, local, peer);
    match mode {
        Mode::Plain => {
            let session = session(StreamKind::Tcp);
            tokio::task::spawn_local(async move {
                let _count = count;
                tcp::serve(session, deadline, stream, Vec::new()).await;
            });
        }
        Mode::Tls(tls) => {
            let (session, tls) = (session(StreamKind::Tls), tls.clone());
            tokio::task::spawn_local(async move {
                let _count = count;
                tcp::serve_tls(session, deadline, stream, tls).await;
            });
        }
        Mode::Passthrough => {
            let session = session(StreamKind::Tls);
            tokio::task::spawn_local(async move {
                let _count = count;
                tcp::serve_passing(session, deadline, stream).await;
            });
        }
    }
}
