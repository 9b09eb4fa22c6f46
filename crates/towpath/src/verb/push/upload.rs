//! Packs a directory and streams it to the API, unless the same content is there already.

use super::done;
use crate::api::Body;
use crate::cli::client::Context;
use crate::exit::{Exit, Failure, Outcome};
use crate::screen::live::Live;
use crate::screen::time;
use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use std::io::Write;
use std::path::{Path, PathBuf};
use tokio::sync::mpsc;
use towpath_archive::{PackError, PackOptions, PackSummary, Progress};
use towpath_types::Digest;

/// Attempts when files change while they are packed.
const ATTEMPTS: u32 = 3;

/// Makes sure that the API has the directory's content, and gives its digest.
pub(super) async fn upload(
    context: &Context,
    live: &mut Live,
    dir: &Path,
    max_bytes: u64,
) -> Outcome<Digest> {
    let options = PackOptions { max_bytes, ..PackOptions::default() };
    for attempt in 1..=ATTEMPTS {
        live.busy("Reading the files");
        let summary = digest(dir.to_owned(), options.clone()).await?;
        if attempt == 1 {
            for warning in &summary.warnings {
                context.screen.warn(format!("{}: {}", warning.path.display(), warning.why));
            }
        }
        if summary.files == 0 {
            return Err(Failure::hinted(
                Exit::Usage,
                format!("{} has no files to push", dir.display()),
                "is it the right directory? do .gitignore and .towpathignore leave anything?",
            ));
        }
        let files = if summary.files == 1 { "1 file".to_owned() } else { format!("{} files", summary.files) };
        let size = format!("{files}, {}", time::bytes(summary.bytes));
        if context.api.exists(&format!("/v1/sources/{}", summary.digest)).await? {
            done(
                live,
                &format!("Source {} ({size}) is there already; nothing to upload", summary.digest.short()),
            );
            return Ok(summary.digest);
        }
        live.bytes(&format!("Uploading {size}"), summary.bytes);
        let sent = send(context, live, dir.to_owned(), options.clone(), &summary).await?;
        if sent == summary.digest {
            live.clear();
            done(live, &format!("Uploaded {size} as source {}", sent.short()));
            return Ok(sent);
        }
    }
    let what = format!("{}: files change while they are packed", dir.display());
    Err(Failure::hinted(Exit::Failed, what, "stop what writes there, or name it in .towpathignore"))
}

async fn digest(dir: PathBuf, options: PackOptions) -> Outcome<PackSummary> {
    let packed =
        tokio::task::spawn_blocking(move || towpath_archive::digest(&dir, &options, &mut |_: Progress| {}))
            .await;
    packed
        .map_err(|_| Failure::new(Exit::Failed, "reading the files broke off"))?
        .map_err(|error| pack_failed(&error))
}

fn pack_failed(error: &PackError) -> Failure {
    Failure::new(Exit::Usage, error)
}

/// Packs into the request's body; the packer waits while the connection is full.
async fn send(
    context: &Context,
    live: &Live,
    dir: PathBuf,
    options: PackOptions,
    summary: &PackSummary,
) -> Outcome<Digest> {
    let (sender, receiver) = mpsc::channel::<Result<Bytes, std::io::Error>>(8);
    let position = live.position();
    let expected = summary.digest;
    let packer = tokio::task::spawn_blocking(move || {
        let mut pipe = Pipe { sender: sender.clone(), buffer: Vec::with_capacity(PIECE) };
        let packed = towpath_archive::pack(&dir, &options, &mut pipe, &mut |p: Progress| position(p.bytes));
        match &packed {
            // A body that breaks off is never taken for a whole one.
            Ok(packed) if packed.digest != expected => {
                let _ = sender.blocking_send(Err(std::io::Error::other("files changed")));
            }
            Ok(_) => {
                let _ = pipe.flush();
            }
            Err(_) => {
                let _ = sender.blocking_send(Err(std::io::Error::other("packing failed")));
            }
        }
        packed
    });
    let stream = futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (piece.map(Frame::data), receiver))
    });
    let body: Body = StreamBody::new(stream).boxed_unsync();
    let answer = context.api.upload(&format!("/v1/sources/{expected}"), body).await;
    let packed = packer.await.map_err(|_| Failure::new(Exit::Failed, "packing broke off"))?;
    match (packed, answer) {
        (Ok(packed), _) if packed.digest != expected => Ok(packed.digest),
        (Ok(packed), Ok(_)) => Ok(packed.digest),
        // When the API ends the upload early, the packer fails too, with a broken pipe: the API's word says more.
        (_, Err(failure)) if failure.exit != Exit::Unreachable => Err(failure),
        (Err(error), _) if !matches!(answer_broke(&error), Some(())) => Err(pack_failed(&error)),
        (_, Err(failure)) => Err(failure),
        (Err(error), Ok(_)) => Err(pack_failed(&error)),
    }
}

/// Whether packing failed only because nobody took the bytes any more.
fn answer_broke(error: &PackError) -> Option<()> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>()
            && io.kind() == std::io::ErrorKind::BrokenPipe
        {
            return Some(());
        }
        source = error.source();
    }
    None
}

/// Bytes that travel together.
const PIECE: usize = 64 * 1024;

/// A blocking writer into the body.
struct Pipe {
    sender: mpsc::Sender<Result<Bytes, std::io::Error>>,
    buffer: Vec<u8>,
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE));
        self.sender
            .blocking_send(Ok(Bytes::from(piece)))
            .map_err(|_| std::io::Error::new(std::io::ErrorKind::BrokenPipe, "the connection has ended"))
    }
}
