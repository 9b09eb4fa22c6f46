//! Blobs that another manager has: fetched from it when they are asked for, copied to a second one when they come in.
//!
//! Managers show each other the cells' token of the one that asks, which all of them accept.

mod http;

use crate::blobs::{BlobKind, Blobs, Elsewhere, Upload};
use crate::core::Core;
use crate::core::members::MemberState;
use ::http::{Method, StatusCode};
use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use towpath_types::{Digest, ManagerId};

/// Marks a request of a manager that looks for a blob: whoever gets it looks nowhere else.
pub(crate) const PEER: ::http::HeaderName = ::http::HeaderName::from_static("towpath-peer");
/// Longest wait for a peer's word whether it has a blob.
const ANSWER: Duration = Duration::from_secs(2);
/// Pause after which the next peer is asked, when one has not said yet whether it has a blob.
const STAGGER: Duration = Duration::from_millis(300);
/// Longest silence of a peer that sends one.
const SILENCE: Duration = Duration::from_secs(20);
/// Longest wait for a second copy.
const COPY: Duration = Duration::from_secs(10);

type Key = (BlobKind, Digest);

/// The other managers, as places of blobs.
pub(crate) struct Peers {
    core: Arc<Core>,
    /// One fetch of each blob at a time.
    fetching: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>,
}

impl Peers {
    /// Those of this manager.
    pub(crate) fn new(core: Arc<Core>) -> Arc<Self> {
        Arc::new(Self { core, fetching: Mutex::default() })
    }

    /// Addresses of all others that may answer.
    fn addresses(&self) -> Vec<(ManagerId, String)> {
        let others = self.core.members.all();
        let answers = |state| state != MemberState::Evicted;
        let others = others.values().filter(|m| m.row.manager != self.core.manager && answers(m.state));
        others.map(|member| (member.row.manager, member.row.address.clone())).collect()
    }

    async fn token(&self) -> Option<String> {
        let file = self.core.settings.cell_token_file.clone()?;
        let read = self.core.settings.file_work(move || std::fs::read_to_string(file)).await;
        let text = read.unwrap_or_else(|_| Err(std::io::Error::other("reading broke off")));
        text.inspect_err(
            |error| tracing::warn!(%error, "the cells' token cannot be read; peers are not asked"),
        )
        .ok()
    }

    /// Asks one after another, those first that are likely to have it; the next one when the one before has not, or is slow to
    /// say so.
    async fn fetch_one(&self, blobs: &Blobs, (kind, digest): Key) -> bool {
        let Some(token) = self.token().await else { return false };
        let path = path_of(kind, &digest);
        let mut next = self.likely(&digest).into_iter();
        let mut asked = FuturesUnordered::new();
        loop {
            if let Some((manager, address)) = next.next() {
                let ask = http::Ask {
                    method: Method::GET,
                    path: path.clone(),
                    token: token.trim().to_owned(),
                    peer: Some(self.core.manager),
                };
                asked.push(ask_one(manager, address, ask));
            } else if asked.is_empty() {
                return false;
            }
            let pause = if next.len() == 0 { ANSWER * 2 } else { STAGGER };
            let Ok(Some(Some((manager, body)))) = tokio::time::timeout(pause, asked.next()).await else {
                continue;
            };
            let upload = match blobs.begin_upload(kind, digest) {
                Ok(upload) => upload,
                Err(error) => {
                    tracing::debug!(%error, "a blob cannot be fetched now");
                    continue;
                }
            };
            if pull(upload, body).await {
                tracing::info!(%digest, from = %manager, "a blob was fetched from another manager");
                return true;
            }
            tracing::warn!(%digest, from = %manager, "fetching a blob broke off");
        }
    }

    /// The other managers, that with the second copy first.
    fn likely(&self, digest: &Digest) -> Vec<(ManagerId, String)> {
        let mut others = self.addresses();
        let mut first = Vec::new();
        for manager in self.places(digest) {
            if let Some(at) = others.iter().position(|(other, _)| *other == manager) {
                first.push(others.remove(at));
            }
        }
        first.extend(others);
        first
    }

    /// The same managers whoever asks, so that a blob does not spread further than it has to.
    fn places(&self, digest: &Digest) -> impl Iterator<Item = ManagerId> {
        let hex = digest.hex();
        (0..32).map(move |n| self.core.ownership.owner(&format!("{hex}/{n}")))
    }

    /// Has a second manager fetch what this one was just given. Best effort, and not waited for without end.
    pub(crate) async fn copy(&self, kind: BlobKind, digest: Digest) {
        let Some(token) = self.token().await else { return };
        let others = self.addresses();
        let Some((manager, address)) = self
            .places(&digest)
            .filter_map(|manager| others.iter().find(|(other, _)| *other == manager))
            .next()
        else {
            return;
        };
        let ask = http::Ask {
            method: Method::HEAD,
            path: path_of(kind, &digest),
            token: token.trim().to_owned(),
            peer: None,
        };
        match tokio::time::timeout(COPY, http::send(address, ask)).await {
            Ok(Ok(response)) if response.status() == StatusCode::OK => {}
            Ok(Ok(response)) => {
                tracing::warn!(%digest, %manager, status = %response.status(), "a blob has no second copy yet");
            }
            Ok(Err(error)) => tracing::warn!(%digest, %manager, %error, "a blob has no second copy yet"),
            Err(_) => tracing::warn!(%digest, %manager, "a blob has no second copy yet; the other is slow"),
        }
    }
}

#[async_trait]
impl Elsewhere for Peers {
    async fn fetch(&self, blobs: &Blobs, kind: BlobKind, digest: Digest) -> bool {
        if self.core.members.all().len() < 2 {
            return false;
        }
        let turn = {
            let mut fetching = self.fetching.lock().unwrap_or_else(PoisonError::into_inner);
            fetching.retain(|_, turn| Arc::strong_count(turn) > 1);
            fetching.entry((kind, digest)).or_default().clone()
        };
        let _turn = turn.lock().await;
        // Whoever was before may have brought it.
        blobs.find_here(kind, &digest).await.is_some() || self.fetch_one(blobs, (kind, digest)).await
    }
}

/// What a manager sends of a blob; `None` = it has none, or does not answer.
async fn ask_one(manager: ManagerId, address: String, ask: http::Ask) -> Option<(ManagerId, Incoming)> {
    match tokio::time::timeout(ANSWER, http::send(&address, ask)).await {
        Ok(Ok(response)) if response.status() == StatusCode::OK => Some((manager, response.into_body())),
        Ok(Ok(_)) | Err(_) => None,
        Ok(Err(error)) => {
            tracing::debug!(%manager, %error, "a peer could not be asked for a blob");
            None
        }
    }
}

fn path_of(kind: BlobKind, digest: &Digest) -> String {
    match kind {
        BlobKind::Source => format!("/internal/v1/sources/{digest}"),
        BlobKind::Artifact => format!("/internal/v1/artifacts/{digest}"),
    }
}

/// Checks and stores what a peer sends, as if it were uploaded.
async fn pull(mut upload: Upload, mut body: Incoming) -> bool {
    loop {
        match tokio::time::timeout(SILENCE, body.frame()).await {
            Ok(Some(Ok(frame))) => {
                if let Ok(data) = frame.into_data()
                    && !upload.write(data).await
                {
                    break;
                }
            }
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return false,
        }
    }
    upload.finish().await.inspect_err(|error| tracing::warn!(%error, "what a peer sent was refused")).is_ok()
}
