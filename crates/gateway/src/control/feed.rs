//! Deltas on their way into the state. One that does not fit yet (something before it is missing) is held back for a
//! moment: several managers tell, and what one says may overtake what another has said before. Only what is still missing
//! then costs a snapshot, at a random moment, since others miss the same.
//!
//! What is held is put together as it comes, so that it grows with the table and not with the number of changes: an app
//! that changes all the time while a snapshot is on its way makes nobody start over.

use super::incoming::{Delta, Unreadable};
use super::state::{DeltaOutcome, State, key_of};
use std::collections::BTreeMap;
use towpath_types::Revision;
use towpath_wire::gateway::{GatewayDelta, Item, ItemKey};

/// How long what is missing may be on its way.
const GRACE_MS: u64 = 500;
/// A random part of the wait: gateways that miss the same message do not all ask at one moment.
const SPREAD_MS: u64 = 1000;
/// Most pieces that are held; a piece is a run of deltas without a gap.
const PIECES: usize = 1000;

/// The deltas that wait, and for what.
#[derive(Debug)]
pub(super) struct Feed {
    held: Vec<Piece>,
    loading: bool,
    /// When a snapshot is asked for, unless what is missing has come.
    due_ms: Option<u64>,
}

/// A run of deltas in one.
#[derive(Debug)]
struct Piece {
    epoch: u64,
    from: Revision,
    to: Revision,
    items: BTreeMap<ItemKey, Option<Item>>,
    unreadable: Vec<Unreadable>,
}

impl Default for Feed {
    /// Before the first snapshot, which is due at once.
    fn default() -> Self {
        Self { held: Vec::new(), loading: false, due_ms: Some(0) }
    }
}

impl Feed {
    /// Takes a delta; `true` = the state has changed.
    pub(super) fn take(&mut self, delta: Delta, state: &mut State, now_ms: u64, random: u64) -> bool {
        if self.loading {
            self.hold(delta);
            return false;
        }
        if state.judge(&delta.readable) == DeltaOutcome::Gap {
            state.note_gap(&delta.readable);
            self.hold(delta);
            self.miss(now_ms, random);
            return false;
        }
        let changed = state.apply_delta(delta) == DeltaOutcome::Applied;
        let more = self.apply_held(state);
        changed || more
    }

    /// Something may be missing: a snapshot is due soon.
    pub(super) fn miss(&mut self, now_ms: u64, random: u64) {
        self.due_ms.get_or_insert(now_ms + GRACE_MS + random % SPREAD_MS);
    }

    /// Whether a snapshot has to be asked for now.
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        !self.loading && self.due_ms.is_some_and(|due_ms| now_ms >= due_ms)
    }

    /// A snapshot is asked for; `false` = one is on its way already.
    pub(super) fn begin_loading(&mut self) -> bool {
        self.due_ms = None;
        !std::mem::replace(&mut self.loading, true)
    }

    /// A snapshot is in the state: what came meanwhile goes on top of it.
    pub(super) fn loaded(&mut self, state: &mut State, now_ms: u64, random: u64) {
        self.loading = false;
        self.due_ms = None;
        self.apply_held(state);
        if !self.held.is_empty() {
            self.miss(now_ms, random);
        }
    }

    fn apply_held(&mut self, state: &mut State) -> bool {
        let mut changed = false;
        while let Some(at) =
            self.held.iter().position(|piece| state.judge(&piece.bare()) != DeltaOutcome::Gap)
        {
            changed |= state.apply_delta(self.held.remove(at)) == DeltaOutcome::Applied;
        }
        if self.held.is_empty() {
            self.due_ms = None;
        }
        changed
    }

    fn hold(&mut self, delta: Delta) {
        let next = Piece::from(delta);
        match self.held.last_mut() {
            Some(last) if last.is_followed_by(&next) => last.add(next),
            _ => self.held.push(next),
        }
        if self.held.len() > PIECES {
            self.held.remove(0);
        }
    }
}

impl Piece {
    fn is_followed_by(&self, next: &Self) -> bool {
        self.epoch == next.epoch && (self.from..=self.to).contains(&next.from) && next.to >= self.to
    }

    fn add(&mut self, next: Self) {
        self.to = next.to;
        let again = |known: &Unreadable| known.key.as_ref().is_some_and(|key| next.items.contains_key(key));
        self.unreadable.retain(|known| !again(known));
        self.unreadable.retain(|known| !next.unreadable.contains(known));
        self.items.extend(next.items);
        self.unreadable.extend(next.unreadable);
    }

    /// Its place in the order of things.
    fn bare(&self) -> GatewayDelta {
        let (put, delete) = (Vec::new(), Vec::new());
        GatewayDelta { epoch: self.epoch, from: self.from, to: self.to, put, delete }
    }
}

impl From<Delta> for Piece {
    fn from(Delta { readable, unreadable }: Delta) -> Self {
        let deleted = readable.delete.into_iter().map(|key| (key, None));
        let put = readable.put.into_iter().map(|item| (key_of(&item), Some(item)));
        let (epoch, from, to) = (readable.epoch, readable.from, readable.to);
        Self { epoch, from, to, items: deleted.chain(put).collect(), unreadable }
    }
}

impl From<Piece> for Delta {
    fn from(piece: Piece) -> Self {
        let mut readable = piece.bare();
        for (key, item) in piece.items {
            match item {
                Some(item) => readable.put.push(item),
                None => readable.delete.push(key),
            }
        }
        Self { readable, unreadable: piece.unreadable }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{delta, items};
    use super::*;
    use towpath_types::Place;

    /// Loaded at revision 5.
    fn loaded() -> (Feed, State) {
        let (mut feed, mut state) = (Feed::default(), State::new(Place::default()));
        assert!(feed.is_due(0) && feed.begin_loading());
        state.apply_snapshot(Revision(5), items(&["shop"]));
        feed.loaded(&mut state, 0, 0);
        (feed, state)
    }

    fn end_of_wait(feed: &Feed) -> Option<u64> {
        (0..10_000).find(|&now_ms| feed.is_due(now_ms))
    }

    #[test]
    fn what_was_only_overtaken_costs_no_snapshot() {
        let (mut feed, mut state) = loaded();
        assert!(!feed.take(delta(1, 8, 8, vec![]).into(), &mut state, 100, 7));
        assert!(!feed.take(delta(1, 6, 8, items(&["blog"])).into(), &mut state, 200, 9));
        assert_eq!(end_of_wait(&feed), Some(100 + GRACE_MS + 7));
        assert!(feed.take(delta(1, 5, 6, vec![]).into(), &mut state, 300, 0));
        assert_eq!((state.revision(), end_of_wait(&feed)), (Revision(8), None));
        state.commit(1);
        assert!(state.table().find(b"blog.localhost", b"/").is_some());
    }

    #[test]
    fn what_does_not_come_costs_one_and_later_another() {
        let (mut feed, mut state) = loaded();
        feed.take(delta(1, 8, 9, vec![]).into(), &mut state, 100, 0);
        assert!(feed.begin_loading() && !feed.begin_loading());
        assert_eq!(end_of_wait(&feed), None, "it is on its way");
        state.apply_snapshot(Revision(7), items(&["shop"]));
        feed.loaded(&mut state, 200, 0);
        assert_eq!(end_of_wait(&feed), Some(200 + GRACE_MS), "of a manager that was behind");
        assert!(feed.begin_loading());
        state.apply_snapshot(Revision(8), items(&["shop"]));
        feed.loaded(&mut state, 900, 0);
        assert_eq!((state.revision(), end_of_wait(&feed)), (Revision(9), None));
    }

    /// The store is set back to 3, and goes on to 5 with other content: what is told of that looks like what is known.
    #[test]
    fn what_a_store_that_was_set_back_tells_cancels_no_snapshot() {
        let (mut feed, mut state) = loaded();
        feed.take(delta(1, 5, 5, vec![]).into(), &mut state, 0, 0);
        for told in [delta(2, 3, 3, vec![]), delta(2, 4, 5, vec![]), delta(2, 5, 6, items(&["blog"]))] {
            assert!(!feed.take(told.into(), &mut state, 100, 0));
        }
        assert_eq!((state.stand().epoch, state.revision()), (1, Revision(5)), "nothing of it fits");
        assert_eq!(end_of_wait(&feed), Some(100 + GRACE_MS));
        assert!(feed.begin_loading());
        // Of a manager that has not noticed yet.
        state.obey(1);
        state.apply_snapshot(Revision(5), items(&["shop"]));
        feed.loaded(&mut state, 700, 0);
        assert_eq!(end_of_wait(&feed), Some(700 + GRACE_MS));
        assert!(feed.begin_loading());
        state.obey(2);
        state.apply_snapshot(Revision(5), items(&["news"]));
        feed.loaded(&mut state, 1300, 0);
        assert_eq!((state.stand().epoch, state.revision(), end_of_wait(&feed)), (2, Revision(6), None));
        state.commit(1);
        let serves = |host: &str| state.table().find(host.as_bytes(), b"/").is_some();
        assert!(serves("news.localhost") && serves("blog.localhost"));
        assert!(!serves("shop.localhost"), "what was deleted is gone");
    }

    #[test]
    fn a_delta_across_the_revision_of_an_epoch_before_does_not_fit() {
        let (mut feed, mut state) = loaded();
        feed.take(delta(1, 5, 5, vec![]).into(), &mut state, 0, 0);
        for told in [delta(2, 4, 5, vec![]), delta(2, 4, 7, items(&["blog"]))] {
            assert!(!feed.take(told.into(), &mut state, 100, 0));
        }
        assert_eq!(state.revision(), Revision(5));
        assert_eq!(end_of_wait(&feed), Some(100 + GRACE_MS));
        // A higher epoch alone, as whenever a manager starts, costs nothing.
        let (mut feed, mut state) = loaded();
        feed.take(delta(1, 5, 5, vec![]).into(), &mut state, 0, 0);
        assert!(feed.take(delta(2, 5, 6, items(&["blog"])).into(), &mut state, 100, 0));
        assert_eq!((state.stand().epoch, end_of_wait(&feed)), (2, None));
    }

    #[test]
    fn one_app_that_changes_all_the_time_makes_nobody_start_over() {
        let (mut feed, mut state) = loaded();
        feed.miss(0, 0);
        feed.begin_loading();
        for revision in 6..30_000 {
            let app = if revision % 2 == 0 { "blog" } else { "shop" };
            let mut change = delta(1, revision - 1, revision, items(&[app]));
            if revision == 29_999 {
                change.delete = vec![ItemKey::Route("blog.localhost/".into())];
            }
            assert!(!feed.take(change.into(), &mut state, 0, 0));
        }
        assert_eq!(feed.held.len(), 1, "all of it is one piece");
        state.apply_snapshot(Revision(9), items(&["shop"]));
        feed.loaded(&mut state, 0, 0);
        assert_eq!((state.revision(), end_of_wait(&feed)), (Revision(29_999), None));
        state.commit(1);
        assert!(state.table().find(b"shop.localhost", b"/").is_some());
        assert!(state.table().find(b"blog.localhost", b"/").is_none(), "the last word counts");
    }

    #[test]
    fn an_older_delta_does_not_go_on_top_of_newer_ones() {
        let (mut feed, mut state) = loaded();
        feed.miss(0, 0);
        feed.begin_loading();
        let mut gone = delta(1, 7, 8, vec![]);
        gone.delete = vec![ItemKey::Route("blog.localhost/".into())];
        feed.take(gone.into(), &mut state, 0, 0);
        feed.take(delta(1, 6, 7, items(&["blog"])).into(), &mut state, 0, 0);
        state.apply_snapshot(Revision(6), items(&["shop"]));
        feed.loaded(&mut state, 0, 0);
        state.commit(1);
        assert_eq!(state.revision(), Revision(8));
        assert!(state.table().find(b"blog.localhost", b"/").is_none());
    }

    #[test]
    fn gateways_that_miss_the_same_do_not_ask_at_one_moment() {
        let mut due: Vec<u64> = (0..300)
            .filter_map(|seed| {
                let (mut feed, mut state) = loaded();
                let random = fastrand::Rng::with_seed(seed).u64(..);
                feed.take(delta(1, 8, 8, vec![]).into(), &mut state, 0, random);
                end_of_wait(&feed)
            })
            .collect();
        due.sort_unstable();
        assert_eq!(due.len(), 300);
        let most =
            due.iter().map(|&at| due.iter().filter(|&&one| (at..at + 50).contains(&one)).count()).max();
        assert!(most < Some(45), "{most:?} of 300 within 50 ms");
    }
}
