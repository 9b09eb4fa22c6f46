//! Follows the revision: by notification, and by looking from time to time, since notifications do not pass through
//! every connection pooler.

use super::config::Target;
use super::link::Link;
use super::rows::revision;
use crate::StoreError;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use towpath_types::Revision;

/// Raises the watched revision.
pub(super) fn raise(watch: &watch::Sender<Revision>, newest: Revision) {
    watch.send_if_modified(|seen| {
        let newer = newest > *seen;
        *seen = newest.max(*seen);
        newer
    });
}

/// Takes it back when a look that began at `before` has found less: the store was set back. (Whoever watches would else find
/// nothing to read, again and again, until the store has come to where it was.)
fn lower(watch: &watch::Sender<Revision>, before: Revision, found: Revision) {
    watch.send_if_modified(|seen| {
        let back = found < before && *seen == before;
        if back {
            *seen = found;
        }
        back
    });
}

/// Runs until aborted.
pub(super) async fn follow(
    target: Target,
    poll: Duration,
    patience: Duration,
    watch: watch::Sender<Revision>,
) {
    let mut delay = Duration::ZERO;
    loop {
        if let Err(error) = follow_session(&target, poll, patience, &watch, &mut delay).await {
            tracing::debug!(%error, "the watch of the revision is interrupted");
        }
        delay = super::backoff(delay);
        tokio::time::sleep(delay).await;
    }
}

async fn follow_session(
    target: &Target,
    poll: Duration,
    patience: Duration,
    watch: &watch::Sender<Revision>,
    delay: &mut Duration,
) -> Result<(), StoreError> {
    let (news, mut incoming) = mpsc::channel(64);
    let link = Link::open(target, Some(news)).await?;
    let failed = |error: tokio_postgres::Error| super::error::from_postgres(&error);
    link.client.batch_execute("LISTEN towpath_revision").await.map_err(failed)?;
    loop {
        let before = *watch.borrow();
        let looked = tokio::time::timeout(patience, revision(&link)).await;
        let silent = |_| super::error::Failure::lost().error;
        let found = looked.map_err(silent)?.map_err(failed)?;
        raise(watch, found);
        lower(watch, before, found);
        *delay = Duration::ZERO;
        let look_again = tokio::time::sleep(poll);
        let mut look_again = std::pin::pin!(look_again);
        loop {
            tokio::select! {
                () = &mut look_again => break,
                news = incoming.recv() => match news {
                    Some(news) => raise(watch, Revision(news.parse().unwrap_or_default())),
                    // The session is over.
                    None => return Ok(()),
                },
            }
        }
    }
}
