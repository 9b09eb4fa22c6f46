//! Loads a full snapshot of the hard state from the managers, page by page, until it works.

use super::incoming::{Items, read_page};
use super::keys::Asker;
use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use towpath_bus::{Bus, BusError};
use towpath_secrets::Keyring;
use towpath_types::{GatewayId, Revision};
use towpath_wire::gateway::SnapshotRequest;
use towpath_wire::{encode, subject};

/// A complete snapshot: where it stands, all items, and the keys that open what is secret in them, if they were asked for.
pub(crate) type Loaded = (Stand, Items, Option<Keyring>);

/// How far a table is: the epoch of those who told it (0 = they did not say), and the revision that all of it has reached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) epoch: u64,
    pub(crate) revision: Revision,
}

/// Longest wait for a page.
const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

/// How tries follow each other: from the first pause to the longest, and half of it more at most, by chance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    first_ms: u64,
    longest_ms: u64,
}

/// Of a gateway that knows no route yet: when it was there before the first manager, it serves soon after that is.
pub(crate) const HURRIED: Pace = Pace { first_ms: 150, longest_ms: 400 };
/// Of one that serves what it knows meanwhile, and so do all the others that ask.
pub(crate) const CALM: Pace = Pace { first_ms: 500, longest_ms: 5_000 };

impl Pace {
    /// The pause after so many tries.
    fn pause(self, tries: u32, random: u64) -> Duration {
        let ms = self.first_ms.saturating_mul(1 << tries.min(16)).min(self.longest_ms);
        Duration::from_millis(ms + random % (ms / 2))
    }
}

/// Loads what is not older than what is known, and sends the result.
pub(super) async fn run(
    bus: Arc<dyn Bus>,
    (gateway, asker): (GatewayId, Option<Asker>),
    known: Stand,
    pace: Pace,
    result: mpsc::Sender<Loaded>,
) {
    for tries in 0.. {
        match load(bus.as_ref(), gateway, known).await {
            Ok((stand, items)) => {
                let keys = match &asker {
                    Some(asker) => asker.ask(bus.as_ref()).await.ok(),
                    None => None,
                };
                let _ = result.send((stand, items, keys)).await;
                return;
            }
            Err(error) => {
                tracing::debug!(%error, "no snapshot yet");
                tokio::time::sleep(pace.pause(tries, fastrand::u64(..))).await;
            }
        }
    }
}

async fn load(bus: &dyn Bus, gateway: GatewayId, known: Stand) -> Result<(Stand, Items), BusError> {
    let (mut stand, mut items, mut cursor): (Option<Stand>, _, _) = (None, Items::default(), None);
    loop {
        let (epoch, at_least) = stand.map_or((known.epoch, known.revision), |so_far| {
            (known.epoch.max(so_far.epoch), known.revision.max(so_far.revision))
        });
        let request = encode(&SnapshotRequest { gateway, cursor, epoch, at_least });
        let answer = bus.request(subject::GATEWAY_SNAPSHOT, Bytes::from(request), PAGE_TIMEOUT).await?;
        let page = read_page(&answer).map_err(|error| BusError::Invalid(error.to_string()))?;
        let so_far = join(stand, page.stand).ok_or_else(|| older("pages of two epochs"))?;
        // Managers of an earlier version do not say: then it is believed.
        if so_far.epoch > 0 && so_far.epoch < known.epoch {
            return Err(older("a table of an older epoch"));
        }
        stand = Some(so_far);
        items.extend(page.items);
        match page.next {
            Some(next) => cursor = Some(next),
            None if so_far.epoch > 0 && so_far.epoch == known.epoch && so_far.revision < known.revision => {
                return Err(older("a table of an older revision"));
            }
            None => return Ok((so_far, items)),
        }
    }
}

/// Where pages stand together; `None` = they do not belong together.
fn join(so_far: Option<Stand>, page: Stand) -> Option<Stand> {
    let Some(so_far) = so_far else { return Some(page) };
    let mix = so_far.epoch != page.epoch && so_far.epoch > 0 && page.epoch > 0;
    let both = Stand { epoch: so_far.epoch.max(page.epoch), revision: so_far.revision.min(page.revision) };
    (!mix).then_some(both)
}

fn older(what: &str) -> BusError {
    BusError::Invalid(format!("{what} was told"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use towpath_bus::MemoryBus;
    use towpath_wire::decode;
    use towpath_wire::gateway::SnapshotPage;

    /// What comes of pages of these epochs and revisions, and which epochs and revisions are asked for.
    async fn told(known: (u64, u64), pages: &[(u64, u64)]) -> (Option<(u64, u64)>, Vec<(u64, u64)>) {
        let bus = MemoryBus::new();
        let mut asked = bus.subscribe_queue(subject::GATEWAY_SNAPSHOT, subject::MANAGERS).await.unwrap();
        let (answering, mut left) = (bus.clone(), pages.iter().copied().collect::<VecDeque<_>>());
        let answers = async move {
            let mut requests = Vec::new();
            while let Some(message) = asked.next().await {
                let request: SnapshotRequest = decode(&message.payload).unwrap();
                requests.push((request.epoch, request.at_least.0));
                let (epoch, revision) = left.pop_front().unwrap();
                let next = (!left.is_empty()).then(|| "more".to_owned());
                let page = SnapshotPage { epoch, revision: Revision(revision), items: Vec::new(), next };
                answering.publish(&message.reply.unwrap(), encode(&page).into()).await.unwrap();
                if left.is_empty() {
                    return requests;
                }
            }
            requests
        };
        let answers = tokio::spawn(answers);
        let known = Stand { epoch: known.0, revision: Revision(known.1) };
        let loaded = load(&bus, GatewayId::mint(1, [1; 10]), known).await.ok();
        let requests =
            if answers.is_finished() || loaded.is_some() { answers.await.unwrap() } else { vec![] };
        (loaded.map(|(stand, _)| (stand.epoch, stand.revision.0)), requests)
    }

    #[tokio::test]
    async fn a_table_is_as_old_as_its_oldest_page_and_later_pages_are_asked_to_be_as_new_as_the_first() {
        let (stand, asked) = told((0, 0), &[(4, 30), (4, 28), (4, 31)]).await;
        assert_eq!(stand, Some((4, 28)), "deltas since the oldest page are to come");
        assert_eq!(asked, [(0, 0), (4, 30), (4, 28)]);
        let (stand, asked) = told((4, 20), &[(4, 30)]).await;
        assert_eq!((stand, asked), (Some((4, 30)), vec![(4, 20)]));
        // Managers of the version before say no epoch.
        assert_eq!(told((4, 20), &[(0, 30), (4, 29)]).await.0, Some((4, 29)));
        assert_eq!(told((0, 0), &[(0, 30), (0, 29)]).await.0, Some((0, 29)));
    }

    #[tokio::test]
    async fn what_is_older_than_what_was_obeyed_is_refused_unless_the_epoch_says_that_the_store_was_set_back()
    {
        assert_eq!(told((5, 20), &[(4, 30)]).await.0, None, "of an evicted manager");
        assert_eq!(told((5, 20), &[(5, 19)]).await.0, None, "the table went back");
        assert_eq!(told((0, 0), &[(4, 30), (5, 30)]).await.0, None, "of two epochs");
        assert_eq!(told((5, 20), &[(6, 10)]).await.0, Some((6, 10)));
    }
}
