//! What this cell should run, with the version of that wish.

use serde::{Deserialize, Serialize};
use towpath_types::Revision;
use towpath_wire::cell::{InstanceSpec, SyncPage};

/// A complete answer of a manager.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub(crate) struct Desired {
    /// Epoch of the manager's ownership.
    pub(crate) epoch: u64,
    /// Revision at which it was read.
    pub(crate) revision: Revision,
    /// Instances.
    pub(crate) instances: Vec<InstanceSpec>,
}

impl Desired {
    /// Whether `other` may replace this: a newer owner always, the same owner unless it looks back.
    pub(crate) fn yields_to(&self, other: &Desired) -> bool {
        other.epoch > self.epoch || (other.epoch == self.epoch && other.revision >= self.revision)
    }
}

/// Puts the pages of one answer together.
#[derive(Debug, Default)]
pub(crate) struct Gatherer {
    whole: Option<Desired>,
}

/// What a page means.
#[derive(Debug, PartialEq)]
pub(crate) enum Gathered {
    /// Ask for the page at this cursor.
    More(String),
    /// It is complete.
    Whole(Desired),
    /// It was read at another time than the pages before: begin anew.
    Mixed,
}

impl Gatherer {
    /// Takes the next page.
    pub(crate) fn take(&mut self, page: SyncPage) -> Gathered {
        let mut whole = match self.whole.take() {
            Some(before) if before.epoch != page.epoch || before.revision != page.revision => {
                return Gathered::Mixed;
            }
            Some(before) => before,
            None => Desired { epoch: page.epoch, revision: page.revision, instances: Vec::new() },
        };
        whole.instances.extend(page.instances);
        match page.next {
            Some(cursor) => {
                self.whole = Some(whole);
                Gathered::More(cursor)
            }
            None => Gathered::Whole(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(epoch: u64, revision: u64) -> Desired {
        Desired { epoch, revision: Revision(revision), instances: Vec::new() }
    }

    #[test]
    fn stale_wishes_are_refused() {
        for (epoch, revision, accepted) in
            [(2, 5, true), (2, 6, true), (3, 1, true), (2, 4, false), (1, 9, false)]
        {
            assert_eq!(desired(2, 5).yields_to(&desired(epoch, revision)), accepted, "{epoch}.{revision}");
        }
    }

    #[test]
    fn pages_of_different_revisions_do_not_mix() {
        let page = |revision, next: Option<&str>| SyncPage {
            epoch: 1,
            revision: Revision(revision),
            instances: Vec::new(),
            next: next.map(str::to_owned),
            parcel: None,
            withheld: Default::default(),
        };
        let mut gatherer = Gatherer::default();
        assert_eq!(gatherer.take(page(1, Some("a"))), Gathered::More("a".into()));
        assert_eq!(gatherer.take(page(2, None)), Gathered::Mixed);
        assert_eq!(gatherer.take(page(2, Some("a"))), Gathered::More("a".into()));
        assert_eq!(gatherer.take(page(2, None)), Gathered::Whole(desired(1, 2)));
    }
}
