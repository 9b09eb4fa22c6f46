//! What this cell should run, with the version of that wish.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use towpath_types::{InstanceId, Revision};
use towpath_wire::cell::{InstanceSpec, Stamps, SyncPage};

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

/// What was obeyed last, to be asked for no more than what has changed since. Not kept over a restart: the first answer tells
/// all.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Stamps of the specs.
    pub(crate) stamps: Stamps,
    /// The specs.
    pub(crate) specs: BTreeMap<InstanceId, InstanceSpec>,
}

impl Known {
    /// After this set was obeyed.
    pub(crate) fn of(desired: &Desired, stamps: Stamps) -> Self {
        let stamped = desired.instances.iter().filter(|spec| stamps.contains_key(&spec.instance));
        let specs = stamped.map(|spec| (spec.instance, spec.clone())).collect();
        Self { stamps, specs }
    }
}

/// Puts the pages of one answer together.
#[derive(Debug, Default)]
pub(crate) struct Gatherer {
    whole: Option<Desired>,
    stamps: Stamps,
}

/// What a page means.
#[derive(Debug, PartialEq)]
pub(crate) enum Gathered {
    /// Ask for the page at this cursor.
    More(String),
    /// It is complete, with the stamps of its specs.
    Whole(Desired, Stamps),
    /// It keeps what is not known here: all has to be told.
    Unknown,
    /// It was read at another time than the pages before: begin anew.
    Mixed,
}

impl Gatherer {
    /// Takes the next page of an answer to one who knows this.
    pub(crate) fn take(&mut self, page: SyncPage, known: &Known) -> Gathered {
        let mut whole = match self.whole.take() {
            Some(before) if before.epoch != page.epoch || before.revision != page.revision => {
                return Gathered::Mixed;
            }
            Some(before) => before,
            None => Desired { epoch: page.epoch, revision: page.revision, instances: Vec::new() },
        };
        whole.instances.extend(page.instances);
        self.stamps.extend(page.stamps);
        for instance in page.kept {
            let (Some(spec), Some(stamp)) = (known.specs.get(&instance), known.stamps.get(&instance)) else {
                return Gathered::Unknown;
            };
            whole.instances.push(spec.clone());
            self.stamps.insert(instance, *stamp);
        }
        match page.next {
            Some(cursor) => {
                self.whole = Some(whole);
                Gathered::More(cursor)
            }
            None => {
                whole.instances.sort_by_key(|spec| spec.instance);
                Gathered::Whole(whole, std::mem::take(&mut self.stamps))
            }
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
            kept: Vec::new(),
            stamps: Stamps::new(),
        };
        let (mut gatherer, known) = (Gatherer::default(), Known::default());
        assert_eq!(gatherer.take(page(1, Some("a")), &known), Gathered::More("a".into()));
        assert_eq!(gatherer.take(page(2, None), &known), Gathered::Mixed);
        assert_eq!(gatherer.take(page(2, Some("a")), &known), Gathered::More("a".into()));
        assert_eq!(gatherer.take(page(2, None), &known), Gathered::Whole(desired(1, 2), Stamps::new()));
    }

    #[test]
    fn what_is_kept_is_taken_from_what_is_known_and_nothing_else() {
        use crate::plan::tests::spec;
        let page =
            |instances: Vec<InstanceSpec>, kept: Vec<InstanceId>, stamps: &[(InstanceId, u64)]| SyncPage {
                epoch: 1,
                revision: Revision(5),
                instances,
                next: None,
                parcel: None,
                withheld: Default::default(),
                kept,
                stamps: stamps.iter().copied().collect(),
            };
        let (a, b, c) = (spec(1), spec(2), spec(3));
        let all = page(vec![a.clone(), b.clone(), c.clone()], vec![], &[(a.instance, 1), (b.instance, 2)]);
        let Gathered::Whole(whole, stamps) = Gatherer::default().take(all, &Known::default()) else {
            panic!()
        };
        let known = Known::of(&whole, stamps);
        // One is kept, one has gone, and one without a stamp is told again.
        let next = page(vec![c.clone()], vec![a.instance], &[]);
        let Gathered::Whole(whole, stamps) = Gatherer::default().take(next, &known) else { panic!() };
        assert_eq!((whole.instances, stamps), (vec![a.clone(), c.clone()], [(a.instance, 1)].into()));
        let odd = page(vec![], vec![c.instance], &[]);
        assert_eq!(Gatherer::default().take(odd, &known), Gathered::Unknown);
    }
}
