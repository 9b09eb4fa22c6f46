//! Uploads and downloads of blobs.

use super::ApiState;
use super::problem::{Outcome, Problem, ProblemBody};
use super::query::{InSpace, NoQuery, Params, Segments, name};
use super::trail::Trail;
use crate::blobs::{BlobKind, UploadError};
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use std::error::Error as _;
use std::time::Duration;
use tokio_util::io::ReaderStream;
use towpath_types::{Digest, ErrorCode};

/// After an early answer the rest of the body is read for so long, so that the client gets to read the answer instead
/// of a broken connection.
const LINGER: Duration = Duration::from_secs(10);

/// What is stored of an uploaded source.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct SourceView {
    digest: Digest,
    /// Size as stored.
    bytes: u64,
    /// Size when unpacked; 0 if it was there before.
    unpacked_bytes: u64,
    /// Files and directories in it; 0 if it was there before.
    entries: u64,
}

/// What is stored of an artifact.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(crate) struct ArtifactView {
    digest: Digest,
    bytes: u64,
}

/// Tells whether a source is there: 200 or 404.
#[utoipa::path(head, path = "/v1/sources/{digest}", tag = "sources", params(("digest" = String, Path)),
    responses((status = 200), (status = 404)))]
pub(crate) async fn head_source(
    State(state): State<ApiState>,
    Segments(digest): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    head(&state, BlobKind::Source, &name("digest", &digest)?).await
}

/// Uploads a source: a zstd stream of a canonical tar, known by the SHA-256 of the uncompressed tar.
#[utoipa::path(put, path = "/v1/sources/{digest}", tag = "sources", params(("digest" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses((status = 200, body = SourceView), (status = 201, body = SourceView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_source(
    State(state): State<ApiState>,
    Segments(digest): Segments<String>,
    Params(query): Params<InSpace>,
    trail: Trail,
    request: Request,
) -> Outcome<Response> {
    let digest: Digest = name("digest", &digest)?;
    if let Some(bytes) = state.blobs.find(BlobKind::Source, &digest).await {
        drain(request.into_body()).await;
        let view = SourceView { digest, bytes, unpacked_bytes: 0, entries: 0 };
        return Ok((StatusCode::OK, Json(view)).into_response());
    }
    let limit = state.blobs.limits().source.0;
    let stored = receive(&state, BlobKind::Source, digest, limit, request).await?;
    state.peers.copy(BlobKind::Source, digest).await;
    let entry = trail.of_upload(&query.space(), digest);
    // The upload is there: that its entry could not be stored is no reason to send it once more.
    if let Err(error) = state.core.commit(vec![state.audit_write(&entry)]).await {
        tracing::warn!(%error, %digest, "an upload is missing in the audit log");
    }
    let view = SourceView {
        digest,
        bytes: stored.bytes,
        unpacked_bytes: stored.unpacked_bytes,
        entries: stored.entries,
    };
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

/// Downloads a source as it was uploaded. For cells.
#[utoipa::path(get, path = "/internal/v1/sources/{digest}", tag = "internal", params(("digest" = String, Path)),
    responses((status = 200, content_type = "application/zstd", body = Vec<u8>), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_source(
    State(state): State<ApiState>,
    Segments(digest): Segments<String>,
    _query: NoQuery,
    headers: HeaderMap,
) -> Outcome<Response> {
    send(&state, BlobKind::Source, &name("digest", &digest)?, &headers).await
}

/// Tells whether an artifact is there: 200 or 404. For cells.
#[utoipa::path(head, path = "/internal/v1/artifacts/{digest}", tag = "internal", params(("digest" = String, Path)),
    responses((status = 200), (status = 404)))]
pub(crate) async fn head_artifact(
    State(state): State<ApiState>,
    Segments(digest): Segments<String>,
    _query: NoQuery,
) -> Outcome<Response> {
    head(&state, BlobKind::Artifact, &name("digest", &digest)?).await
}

/// Downloads a staged app. For cells.
#[utoipa::path(get, path = "/internal/v1/artifacts/{digest}", tag = "internal", params(("digest" = String, Path)),
    responses((status = 200, content_type = "application/zstd", body = Vec<u8>), (status = "default", body = ProblemBody)))]
pub(crate) async fn get_artifact(
    State(state): State<ApiState>,
    Segments(digest): Segments<String>,
    _query: NoQuery,
    headers: HeaderMap,
) -> Outcome<Response> {
    send(&state, BlobKind::Artifact, &name("digest", &digest)?, &headers).await
}

/// Uploads a staged app, known by the SHA-256 of the sent bytes. For cells.
#[utoipa::path(put, path = "/internal/v1/artifacts/{digest}", tag = "internal", params(("digest" = String, Path)),
    request_body(content = Vec<u8>, content_type = "application/zstd"),
    responses((status = 200, body = ArtifactView), (status = 201, body = ArtifactView), (status = "default", body = ProblemBody)))]
pub(crate) async fn put_artifact(
    State(state): State<ApiState>,
    Segments(digest): Segments<String>,
    _query: NoQuery,
    request: Request,
) -> Outcome<Response> {
    let digest: Digest = name("digest", &digest)?;
    if let Some(bytes) = state.blobs.find(BlobKind::Artifact, &digest).await {
        drain(request.into_body()).await;
        return Ok((StatusCode::OK, Json(ArtifactView { digest, bytes })).into_response());
    }
    let limit = state.blobs.limits().artifact.0;
    let stored = receive(&state, BlobKind::Artifact, digest, limit, request).await?;
    state.peers.copy(BlobKind::Artifact, digest).await;
    Ok((StatusCode::CREATED, Json(ArtifactView { digest, bytes: stored.bytes })).into_response())
}

/// Streams a body into the blob store.
async fn receive(
    state: &ApiState,
    kind: BlobKind,
    digest: Digest,
    limit: u64,
    request: Request,
) -> Outcome<crate::blobs::Stored> {
    let announced = content_length(request.headers());
    let body = request.into_body();
    if announced.is_some_and(|bytes| bytes > limit) {
        drain(body).await;
        return Err(UploadError::TooLarge { limit }.into());
    }
    let mut upload = match state.blobs.begin_upload(kind, digest) {
        Ok(upload) => upload,
        Err(error) => {
            drain(body).await;
            return Err(error.into());
        }
    };
    let idle = state.blobs.limits().idle;
    let mut chunks = body.into_data_stream();
    loop {
        match tokio::time::timeout(idle, chunks.next()).await {
            Ok(Some(Ok(chunk))) => {
                if !upload.write(chunk).await {
                    break;
                }
            }
            Ok(Some(Err(_))) => {
                return Err(Problem::new(
                    ErrorCode::Malformed,
                    "the upload ended before its announced length",
                ));
            }
            Ok(None) => return upload.finish().await.map_err(Problem::from),
            Err(_) => {
                let seconds = idle.as_secs();
                let detail = format!("nothing of the upload arrived for {seconds} s; it was given up");
                return Err(Problem::new(ErrorCode::ClientTimeout, detail));
            }
        }
    }
    // Refused before its end.
    let refused = upload.finish().await;
    let _ = tokio::time::timeout(LINGER, async { while let Some(Ok(_)) = chunks.next().await {} }).await;
    refused.map_err(Problem::from)
}

async fn drain(body: Body) {
    let mut chunks = body.into_data_stream();
    let _ = tokio::time::timeout(LINGER, async { while let Some(Ok(_)) = chunks.next().await {} }).await;
}

fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

async fn head(state: &ApiState, kind: BlobKind, digest: &Digest) -> Outcome<Response> {
    match state.blobs.find(kind, digest).await {
        Some(_) => Ok(StatusCode::OK.into_response()),
        None => Err(Problem::not_found(format!("blob {digest}"))),
    }
}

async fn send(state: &ApiState, kind: BlobKind, digest: &Digest, headers: &HeaderMap) -> Outcome<Response> {
    // Another manager asks all by itself.
    let found = match headers.contains_key(crate::peers::PEER) {
        true => state.blobs.read_here(kind, digest).await,
        false => state.blobs.read(kind, digest).await,
    };
    let found = found.map_err(|error| {
        tracing::error!(%error, %digest, "a blob could not be read");
        Problem::new(ErrorCode::Internal, "the blob could not be read")
    })?;
    let (file, bytes) = found.ok_or_else(|| Problem::not_found(format!("blob {digest}")))?;
    let mut response = Response::new(Body::from_stream(ReaderStream::with_capacity(file, 128 * 1024)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/zstd"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", digest.hex())) {
        headers.insert(header::ETAG, tag);
    }
    Ok(response)
}

impl From<UploadError> for Problem {
    fn from(error: UploadError) -> Self {
        let code = error.code();
        let detail = match &error {
            UploadError::Archive(inner) => match inner.source() {
                Some(cause) => format!("{inner}: {cause}"),
                None => inner.to_string(),
            },
            UploadError::TooLarge { limit } => {
                format!(
                    "{error} ({}); leave out what need not be there, with .towpathignore",
                    towpath_types::ByteSize(*limit)
                )
            }
            UploadError::Full => "the manager's disk is full; free some room there and push again".to_owned(),
            other => other.to_string(),
        };
        let problem = Problem::new(code, detail);
        match code {
            ErrorCode::Busy => problem.retry_after(Duration::from_secs(2)),
            ErrorCode::Internal => {
                tracing::error!(error = %error, cause = ?error.source(), "an upload could not be stored");
                problem
            }
            _ => problem,
        }
    }
}
