//! Serves files of one directory: what a static site's instance runs.
//!
//! It is the same binary, re-executed with [`STATIC_COMMAND`]. GET and HEAD, index pages, `name.html` for `/name`, `404.html`,
//! `200.html` (for single-page apps: whatever is not a file), ranges, ETags from content (so that they agree between instances),
//! `.br` and `.gz` beside a file. Hidden files are not served, but for `.well-known`.
//!
//! Must not: serve anything outside the directory, whatever the path or a link says; list directories.

mod content_type;
mod range;
mod reply;
mod resolve;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use reply::Site;
use std::convert::Infallible;
use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// First argument with which the binary serves files.
pub const STATIC_COMMAND: &str = "__static";

/// Time for a request's head to arrive; also the longest idle time of a connection.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// Time for running answers after the signal to end.
const LAST_ANSWERS: Duration = Duration::from_secs(20);

/// Serves the directory that is the first of `args`, at `HOST` (default 0.0.0.0) and `PORT`, until SIGTERM or SIGINT.
#[expect(clippy::print_stderr, reason = "a program of its own, whose errors go into the app's log")]
pub fn static_main(args: Vec<OsString>) -> ExitCode {
    let served = settings(&args, |name| std::env::var(name).ok()).and_then(|(root, address)| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("no runtime could be made: {error}"))?;
        runtime.block_on(serve(root, address))
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn settings(
    args: &[OsString],
    env: impl Fn(&str) -> Option<String>,
) -> Result<(PathBuf, SocketAddr), String> {
    let root = PathBuf::from(args.first().cloned().unwrap_or_else(|| ".".into()));
    let root =
        root.canonicalize().map_err(|error| format!("{} cannot be served: {error}", root.display()))?;
    let port = env("PORT").ok_or("PORT is not set")?;
    let port: u16 = port.parse().map_err(|_| format!("PORT is {port:?}, which is no port number"))?;
    let host = env("HOST").unwrap_or_else(|| "0.0.0.0".to_owned());
    let host: IpAddr = host.parse().map_err(|_| format!("HOST is {host:?}, which is no IP address"))?;
    Ok((root, SocketAddr::new(host, port)))
}

#[expect(clippy::print_stderr, reason = "a program of its own, whose output goes into the app's log")]
async fn serve(root: PathBuf, address: SocketAddr) -> Result<(), String> {
    let listener =
        TcpListener::bind(address).await.map_err(|error| format!("cannot listen at {address}: {error}"))?;
    let unable = |error| format!("signals cannot be received: {error}");
    let mut terminate = signal(SignalKind::terminate()).map_err(unable)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(unable)?;
    eprintln!("serving {} at {address}", root.display());
    let site = Arc::new(Site::new(root));
    let (ending, connections) = (CancellationToken::new(), TaskTracker::new());
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                connections.spawn(connection(stream, Arc::clone(&site), ending.clone()));
            }
            // Out of file handles, or the peer is gone again.
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    drop(listener);
    ending.cancel();
    connections.close();
    let _ = tokio::time::timeout(LAST_ANSWERS, connections.wait()).await;
    Ok(())
}

async fn connection(stream: tokio::net::TcpStream, site: Arc<Site>, ending: CancellationToken) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request| {
        let site = Arc::clone(&site);
        async move { Ok::<_, Infallible>(site.reply(&request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        _ = connection.as_mut() => return,
        () = ending.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

#[cfg(test)]
mod tests;
