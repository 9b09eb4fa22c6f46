//! Blobs at the managers' API: sources down, artifacts down and up. Any manager will do: one that fails is passed over, and whoever serves
//! is asked first the next time.

use crate::managers::Managers;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use sha2::{Digest as _, Sha256};
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncWriteExt, BufWriter};
use tokio_util::io::ReaderStream;
use towpath_types::Digest;

/// Rounds over all managers for one transfer; more while none can be reached.
const TRIES: u32 = 5;
/// Longest silence of the peer.
const SILENCE: Duration = Duration::from_secs(30);

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The manager does not have it.
    #[error("the manager does not have {0}")]
    Missing(Digest),
    /// Those who answer do not have it, and others do not answer.
    #[error("no manager that can be reached has {0} ({1})")]
    Unclear(Digest, String),
    /// None of several managers could be reached.
    #[error("no manager can be reached: {0}")]
    NoneReachable(String),
    /// The manager refused it; trying again does not help.
    #[error("the manager refused {what} with status {status}")]
    Refused {
        /// Method and path.
        what: String,
        /// HTTP status.
        status: StatusCode,
    },
    /// What came is not what was asked for.
    #[error("the content of {wanted} has the digest {got}")]
    WrongDigest {
        /// Asked for.
        wanted: Digest,
        /// Received.
        got: Digest,
    },
    /// The manager could not be reached, or the connection broke, or it answered with a server error.
    #[error("the manager at {api} cannot be reached: {why}")]
    Unreachable {
        /// Its URL.
        api: String,
        /// What happened last.
        why: String,
    },
    /// A local file could not be read or written.
    #[error("a local file could not be used")]
    Io(#[from] std::io::Error),
}

impl BlobError {
    /// Whether it is worth another attempt after so many, the first of them so long ago.
    fn passes(&self, tries: u32, elapsed: Duration, patience: Duration) -> bool {
        match self {
            BlobError::Unreachable { .. } | BlobError::NoneReachable(_) => {
                tries < TRIES || elapsed < patience
            }
            BlobError::WrongDigest { .. } | BlobError::Unclear(..) => tries < TRIES,
            BlobError::Missing(_) | BlobError::Refused { .. } | BlobError::Io(_) => false,
        }
    }
}

/// What a round over all managers came to, when none of them served.
fn sum_up(errors: Vec<BlobError>) -> BlobError {
    let away: Vec<String> = errors
        .iter()
        .filter_map(|error| match error {
            BlobError::Unreachable { api, why } => Some(format!("{api}: {why}")),
            _ => None,
        })
        .collect();
    let missing = errors.iter().find_map(|error| match error {
        BlobError::Missing(digest) => Some(*digest),
        _ => None,
    });
    let rank = |error: &BlobError| match error {
        BlobError::WrongDigest { .. } => 0,
        BlobError::Unreachable { .. } => 1,
        BlobError::Refused { .. } => 2,
        _ => 3,
    };
    match (errors.into_iter().min_by_key(rank), missing) {
        (Some(BlobError::Unreachable { .. }), Some(digest)) => BlobError::Unclear(digest, away.join("; ")),
        (Some(BlobError::Unreachable { .. }), None) if away.len() > 1 => {
            BlobError::NoneReachable(away.join("; "))
        }
        (Some(error), _) => error,
        (None, _) => BlobError::NoneReachable("none is known".to_owned()),
    }
}

/// How attempts are repeated.
#[derive(Debug, Clone, Copy)]
struct Retry {
    /// Pause before the second attempt; it doubles.
    first: Duration,
    /// Up to this one.
    longest: Duration,
    /// When no manager can be reached they are tried for so long: a restart fails no instance and no build.
    patience: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            longest: Duration::from_secs(2),
            patience: Duration::from_secs(30),
        }
    }
}

/// A client of the blob endpoint. Cheap to clone.
#[derive(Debug, Clone)]
pub struct BlobClient {
    managers: Managers,
    token: String,
    retry: Retry,
}

type Body = BoxBody<Bytes, std::io::Error>;

impl BlobClient {
    /// A client of the API at this `http://host:port`.
    pub fn new(api: &str, token: &str) -> Self {
        Self::of(Managers::new(&[api.to_owned()]), token)
    }

    /// A client of these managers.
    pub(crate) fn of(managers: Managers, token: &str) -> Self {
        Self { managers, token: token.to_owned(), retry: Retry::default() }
    }

    /// Fetches a source as stored (a zstd stream) into `to` and says its size. The digest is that of the tar inside and is the
    /// caller's to check.
    pub async fn get_source(&self, digest: Digest, to: &Path) -> Result<u64, BlobError> {
        self.retried(|api| self.get(api, format!("sources/{digest}"), digest, false, to).boxed()).await
    }

    /// Fetches an artifact into `to`, checks its digest, and says its size.
    pub async fn get_artifact(&self, digest: Digest, to: &Path) -> Result<u64, BlobError> {
        self.retried(|api| self.get(api, format!("artifacts/{digest}"), digest, true, to).boxed()).await
    }

    /// Stores the artifact that is in the file `from`.
    pub async fn put_artifact(&self, digest: Digest, from: &Path) -> Result<(), BlobError> {
        self.retried(|api| self.put(api, format!("artifacts/{digest}"), from).boxed()).await
    }

    async fn retried<'a, T>(
        &'a self,
        attempt: impl Fn(String) -> BoxFuture<'a, Result<T, BlobError>>,
    ) -> Result<T, BlobError> {
        let (began, mut pause, mut tries) = (Instant::now(), self.retry.first, 0);
        loop {
            let error = match self.round(&attempt).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            tries += 1;
            if !error.passes(tries, began.elapsed(), self.retry.patience) {
                return Err(error);
            }
            tracing::warn!(%error, tries, "blob transfer failed; trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(self.retry.longest);
        }
    }

    /// Asks one manager after the other, until one serves.
    async fn round<'a, T>(
        &'a self,
        attempt: &impl Fn(String) -> BoxFuture<'a, Result<T, BlobError>>,
    ) -> Result<T, BlobError> {
        let mut errors = Vec::new();
        for api in self.managers.in_order() {
            match attempt(api.clone()).await {
                Ok(done) => {
                    self.managers.note_good(&api);
                    return Ok(done);
                }
                // Ours, whoever is asked.
                Err(error @ BlobError::Io(_)) => return Err(error),
                Err(error) => {
                    if matches!(error, BlobError::Unreachable { .. }) {
                        self.managers.note_failed(&api);
                    }
                    tracing::debug!(api, %error, "a manager did not serve a blob");
                    errors.push(error);
                }
            }
        }
        Err(sum_up(errors))
    }

    async fn get(
        &self,
        api: String,
        path: String,
        digest: Digest,
        check: bool,
        to: &Path,
    ) -> Result<u64, BlobError> {
        let nothing = BodyExt::boxed(Empty::new().map_err(|e| match e {}));
        let response = self.send(&api, Method::GET, &path, nothing, None).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(BlobError::Missing(digest)),
            status => return Err(status_error(&api, Method::GET, &path, status)),
        }
        // Beside the target, so that the rename stays inside one file system; a broken transfer leaves nothing.
        let dir = to.parent().unwrap_or(Path::new("."));
        let partial = tempfile::NamedTempFile::new_in(dir)?;
        let mut file = BufWriter::new(tokio::fs::File::from_std(partial.reopen()?));
        let mut body = response.into_body();
        let (mut size, mut hash) = (0, Sha256::new());
        while let Some(frame) = tokio::time::timeout(SILENCE, body.frame())
            .await
            .map_err(|_| unreachable(&api, "it fell silent"))?
        {
            let frame = frame.map_err(|error| unreachable(&api, error))?;
            if let Some(data) = frame.data_ref() {
                size += data.len() as u64;
                hash.update(data);
                file.write_all(data).await?;
            }
        }
        file.flush().await?;
        let got = Digest::from_bytes(hash.finalize().into());
        if check && got != digest {
            return Err(BlobError::WrongDigest { wanted: digest, got });
        }
        partial.persist(to).map_err(|error| BlobError::Io(error.error))?;
        Ok(size)
    }

    async fn put(&self, api: String, path: String, from: &Path) -> Result<(), BlobError> {
        let file = tokio::fs::File::open(from).await?;
        let size = file.metadata().await?.len();
        let body =
            BodyExt::boxed(StreamBody::new(ReaderStream::with_capacity(file, 64 << 10).map_ok(Frame::data)));
        let response = self.send(&api, Method::PUT, &path, body, Some(size)).await?;
        match response.status() {
            status if status.is_success() || status == StatusCode::CONFLICT => Ok(()),
            status => Err(status_error(&api, Method::PUT, &path, status)),
        }
    }

    async fn send(
        &self,
        api: &str,
        method: Method,
        path: &str,
        body: Body,
        length: Option<u64>,
    ) -> Result<http::Response<Incoming>, BlobError> {
        let uri: Uri = format!("{api}/internal/v1/{path}")
            .parse()
            .map_err(|error| unreachable(api, format!("not a URL: {error}")))?;
        let host = uri.authority().map(|a| a.to_string()).unwrap_or_default();
        let address = match uri.port() {
            Some(_) => host.clone(),
            None => format!("{host}:80"),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(uri.path())
            .header(header::HOST, host)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if let Some(length) = length {
            request = request
                .header(header::CONTENT_LENGTH, length)
                .header(header::CONTENT_TYPE, "application/octet-stream");
        }
        let request = request.body(body).map_err(|error| unreachable(api, error))?;
        let connect = tokio::net::TcpStream::connect(address);
        let stream = tokio::time::timeout(Duration::from_secs(5), connect)
            .await
            .map_err(|_| unreachable(api, "connecting took too long"))?
            .map_err(|error| unreachable(api, error))?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(api, error))?;
        tokio::spawn(connection);
        // An upload may take as long as it takes; the manager's answer after it may not.
        let longest = if length.is_some() { Duration::from_secs(3600) } else { SILENCE };
        tokio::time::timeout(longest, sender.send_request(request))
            .await
            .map_err(|_| unreachable(api, "it did not answer"))?
            .map_err(|error| unreachable(api, error))
    }
}

fn status_error(api: &str, method: Method, path: &str, status: StatusCode) -> BlobError {
    if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
        unreachable(api, format!("status {status}"))
    } else {
        BlobError::Refused { what: format!("{method} {path}"), status }
    }
}

fn unreachable(api: &str, why: impl std::fmt::Display) -> BlobError {
    BlobError::Unreachable { api: api.to_owned(), why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const CONTENT: &[u8] = b"content";

    /// A manager that is unable for so many requests.
    async fn client(unable: u32, patience: Duration) -> (BlobClient, Arc<AtomicU32>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let is_unable = count.fetch_add(1, Ordering::Relaxed) < unable;
                let answer = service_fn(move |_| async move {
                    let status = if is_unable { 503 } else { 200 };
                    http::Response::builder().status(status).body(Full::new(Bytes::from_static(CONTENT)))
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        let mut client = BlobClient::new(&api, "t");
        let pause = Duration::from_millis(1);
        client.retry = Retry { first: pause, longest: pause, patience };
        (client, asked)
    }

    #[tokio::test]
    async fn a_manager_that_is_away_for_a_while_fails_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("blob");
        let digest = Digest::from_bytes(Sha256::digest(CONTENT).into());
        let (patient, asked) = client(TRIES * 4, Duration::from_secs(60)).await;
        assert_eq!(patient.get_artifact(digest, &to).await.unwrap(), 7);
        assert_eq!(asked.load(Ordering::Relaxed), TRIES * 4 + 1);
        // What is wrong in itself does not get better with time.
        let wrong = patient.get_artifact(Digest::from_bytes([1; 32]), &to).await.unwrap_err();
        assert!(matches!(wrong, BlobError::WrongDigest { .. }));
        assert_eq!(asked.load(Ordering::Relaxed), TRIES * 5 + 1);
        let (impatient, asked) = client(u32::MAX, Duration::ZERO).await;
        let away = impatient.get_artifact(digest, &to).await.unwrap_err();
        assert!(matches!(away, BlobError::Unreachable { .. }));
        assert_eq!(asked.load(Ordering::Relaxed), TRIES);
    }

    /// A manager that answers everything with this status, or, with 200, with the content.
    async fn manager(status: u16) -> (String, Arc<AtomicU32>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let api = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let answer = service_fn(move |request: Request<Incoming>| async move {
                    let _ = request.into_body().collect().await;
                    http::Response::builder().status(status).body(Full::new(Bytes::from_static(CONTENT)))
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), answer));
            }
        });
        (api, asked)
    }

    /// An address at which nobody listens.
    async fn nobody() -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    }

    fn of(named: &[String], patience: Duration) -> BlobClient {
        let mut client = BlobClient::of(Managers::new(named), "t");
        let pause = Duration::from_millis(1);
        client.retry = Retry { first: pause, longest: pause, patience };
        client
    }

    #[tokio::test]
    async fn another_manager_serves_and_is_asked_first_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let (to, from) = (dir.path().join("blob"), dir.path().join("from"));
        std::fs::write(&from, CONTENT).unwrap();
        let digest = Digest::from_bytes(Sha256::digest(CONTENT).into());
        let (without, asked_without) = manager(404).await;
        let (unable, asked_unable) = manager(503).await;
        let (able, asked) = manager(200).await;
        let client = of(&[nobody().await, without, unable, able], Duration::ZERO);
        assert_eq!(client.get_artifact(digest, &to).await.unwrap(), 7);
        for _ in 0..3 {
            client.get_source(digest, &to).await.unwrap();
            client.put_artifact(digest, &from).await.unwrap();
        }
        assert_eq!(asked.load(Ordering::Relaxed), 7);
        assert_eq!((asked_without.load(Ordering::Relaxed), asked_unable.load(Ordering::Relaxed)), (1, 1));
    }

    #[tokio::test]
    async fn what_no_manager_has_is_said_at_once_and_what_one_may_have_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().join("blob");
        let digest = Digest::from_bytes([1; 32]);
        let ((one, asked), (other, _)) = (manager(404).await, manager(404).await);
        let missing = of(&[one.clone(), other.clone()], Duration::ZERO).get_artifact(digest, &to).await;
        assert!(matches!(missing, Err(BlobError::Missing(_))), "{missing:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        let unclear = of(&[one, nobody().await], Duration::ZERO).get_artifact(digest, &to).await;
        assert!(matches!(unclear, Err(BlobError::Unclear(..))), "{unclear:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1 + TRIES);
        let away = of(&[nobody().await, nobody().await], Duration::ZERO).get_artifact(digest, &to).await;
        assert!(away.unwrap_err().to_string().starts_with("no manager can be reached: http://127.0.0.1:"));
    }
}
