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

    fn token(&self) -> Option<String> {
        let file = self.core.settings.cell_token_file.as_ref()?;
        let text = std::fs::read_to_string(file);
        text.inspect_err(
            |error| tracing::warn!(%error, "the cells' token cannot be read; peers are not asked"),
        )
        .ok()
    }

    async fn fetch_one(&self, blobs: &Blobs, (kind, digest): Key) -> bool {
        let Some(token) = self.token() else { return false };
        let path = path_of(kind, &digest);
        let mut asked: FuturesUnordered<_> = self
            .addresses()
            .into_iter()
            .map(|(manager, address)| {
                let ask = http::Ask {
                    method: Method::GET,
                    path: path.clone(),
                    token: token.trim().to_owned(),
                    peer: Some(self.core.manager),
                };
                async move {
                    let answer = tokio::time::timeout(ANSWER, http::send(&address, ask)).await;
                    match answer {
                        Ok(Ok(response)) if response.status() == StatusCode::OK => {
                            Some((manager, response.into_body()))
                        }
                        Ok(Ok(_)) => None,
                        Ok(Err(error)) => {
                            tracing::debug!(%manager, %error, "a peer could not be asked for a blob");
                            None
                        }
                        Err(_) => None,
                    }
                }
            })
            .collect();
        while let Some(found) = asked.next().await {
            let Some((manager, body)) = found else { continue };
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
        false
    }

    /// Has a second manager fetch what this one was just given. Best effort, and not waited for without end.
    pub(crate) async fn copy(&self, kind: BlobKind, digest: Digest) {
        let Some(token) = self.token() else { return };
        let others = self.addresses();
        let hex = digest.hex();
        // The same one whoever asks, so that a blob does not spread further than it has to.
        let chosen = (0..32).map(|n| self.core.ownership.owner(&format!("{hex}/{n}")));
        let Some((manager, address)) =
            chosen.filter_map(|manager| others.iter().find(|(other, _)| *other == manager)).next()
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
