//! Taking connections: so many at most, none that dawdles with its head, and none whose framing can be read in two ways.

use super::guarded::{Guarded, RefusedHead};
use axum::Router;
use axum::extract::ConnectInfo;
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tower::Service;
use towpath_types::NetBlock;
use towpath_types::net_block::client_behind;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
/// Pause after a failed accept: the process is out of file descriptors, and some will come back.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Whom the API lets in, and how.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    /// Connections at once.
    pub(crate) connections: usize,
    /// Longest time for a request's head.
    pub(crate) head: Duration,
    /// Proxies that are believed.
    pub(crate) trusted: Arc<[NetBlock]>,
}

impl Admission {
    /// Whom a request comes from.
    fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        let values = headers.get_all(FORWARDED_FOR).iter().rev().map(HeaderValue::as_bytes);
        let trusts = |address| self.trusted.iter().any(|block| block.contains(address));
        let client = client_behind(peer.ip(), values, trusts);
        // The port is the proxy's; nobody looks at it.
        SocketAddr::new(client, peer.port())
    }
}

/// Serves until `ending` is true; then until the requests under way are done.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    admission: Admission,
    mut ending: watch::Receiver<bool>,
) {
    let slots = Arc::new(Semaphore::new(admission.connections));
    let mut tasks = JoinSet::new();
    loop {
        // Without a free slot nothing is accepted: clients wait in the kernel's queue.
        let slot = tokio::select! {
            Ok(slot) = slots.clone().acquire_owned() => slot,
            () = ended(&mut ending) => break,
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = ended(&mut ending) => break,
            Some(_) = tasks.join_next() => continue,
        };
        match accepted {
            Ok((stream, peer)) => drop(tasks.spawn(connection(
                stream,
                peer,
                router.clone(),
                slot,
                (admission.clone(), ending.clone()),
            ))),
            Err(error) => {
                tracing::warn!(%error, "a connection to the API could not be accepted");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
    drop(listener);
    while tasks.join_next().await.is_some() {}
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    _slot: OwnedSemaphorePermit,
    (admission, mut ending): (Admission, watch::Receiver<bool>),
) {
    // Small answers are not to wait for the acknowledgement of those before them.
    let _ = stream.set_nodelay(true);
    let refused = RefusedHead::default();
    let head = admission.head;
    let (io, requests) = (Guarded::new(stream, refused.clone()), AtomicU64::new(0));
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        let number = requests.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(refusal) = refused.find(number) {
            request.extensions_mut().insert(refusal);
        }
        let client = admission.client(peer, request.headers());
        request.extensions_mut().insert(ConnectInfo(client));
        router.clone().call(request)
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head)
            .max_buf_size(64 * 1024)
            .serve_connection(io, service)
    );
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = ended(&mut ending) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, %peer, "a connection to the API broke off");
    }
}

/// Resolves when the API ends.
async fn ended(ending: &mut watch::Receiver<bool>) {
    drop(ending.wait_for(|ending| *ending).await);
}
