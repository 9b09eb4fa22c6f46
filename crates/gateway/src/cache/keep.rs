//! Keeping a body while it streams to the client: a filter that changes nothing. One that is dropped before the end of the body
//! has kept nothing.

use super::entry::Times;
use super::store::{FillTurn, Room};
use super::writer::{Commit, Job};
use super::{Body, Entry, Head};
use crate::plugins::filter::{BodyFilter, Pieces};
use bytes::Bytes;
use http::HeaderName;
use std::sync::Arc;

/// A response whose head is there.
pub(crate) struct Draft {
    pub(crate) turn: FillTurn,
    pub(crate) vary: Vec<HeaderName>,
    pub(crate) head: Head,
    pub(crate) times: Times,
    /// Bytes of the body, where the head says that.
    pub(crate) length: Option<u64>,
    /// Longest body that is kept.
    pub(crate) most: u64,
}

impl Draft {
    /// The filter that keeps the body; `None` = there is no room for it.
    pub(crate) fn keep(self) -> Option<Box<dyn BodyFilter>> {
        if self.length.is_some_and(|length| length > self.most) {
            return None;
        }
        if self.turn.store.writer().is_some() {
            let name = self.turn.store.writer()?.begin()?;
            return Some(Box::new(KeepOnDisk { file: Some(Writing { name, draft: Some(self), bytes: 0 }) }));
        }
        let room = self.turn.store.room();
        Some(Box::new(KeepInMemory { held: Some((self, Vec::new(), room)) }))
    }

    fn is_whole(&self, bytes: u64) -> bool {
        self.length.is_none_or(|length| length == bytes)
    }
}

struct KeepInMemory {
    held: Option<(Draft, Vec<u8>, Room)>,
}

impl BodyFilter for KeepInMemory {
    fn push(&mut self, piece: Bytes, out: &mut Pieces) {
        if let Some((draft, held, room)) = &mut self.held {
            if (held.len() + piece.len()) as u64 <= draft.most && room.grow(piece.len() as u64) {
                held.extend_from_slice(&piece);
            } else {
                self.held = None;
            }
        }
        out.push_back(piece);
    }

    fn end(&mut self, _: &mut Pieces) {
        let Some((draft, held, _)) = self.held.take() else { return };
        let length = held.len() as u64;
        if !draft.is_whole(length) {
            return;
        }
        let (size, head) = (draft.head.size() + length, Arc::new(draft.head));
        let body = Body::Memory(head, Bytes::from(held.into_boxed_slice()));
        let turn = draft.turn;
        let entry = Entry { body, length, size, times: draft.times };
        turn.store.put(turn.key, turn.variant, &draft.vary, entry);
    }

    fn keeps_length(&self) -> bool {
        true
    }
}

struct KeepOnDisk {
    file: Option<Writing>,
}

/// A file that is being written; dropped, it is given up.
struct Writing {
    name: Arc<str>,
    draft: Option<Draft>,
    bytes: u64,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft
            && let Some(writer) = draft.turn.store.writer()
        {
            writer.send(Job::Abort(self.name.clone()));
        }
    }
}

impl BodyFilter for KeepOnDisk {
    fn push(&mut self, piece: Bytes, out: &mut Pieces) {
        if let Some(writing) = &mut self.file
            && let Some(draft) = &writing.draft
            && let Some(writer) = draft.turn.store.writer()
        {
            writing.bytes += piece.len() as u64;
            if writing.bytes <= draft.most && writer.has_room(piece.len()) {
                writer.send(Job::Piece(writing.name.clone(), crate::buffer::to_keep(piece.clone())));
            } else {
                self.file = None;
            }
        }
        out.push_back(piece);
    }

    fn end(&mut self, _: &mut Pieces) {
        let Some(mut writing) = self.file.take() else { return };
        let Some(draft) = writing.draft.take_if(|draft| draft.is_whole(writing.bytes)) else { return };
        let store = draft.turn.store.clone();
        let commit = Commit {
            name: writing.name.clone(),
            vary: draft.vary,
            head: draft.head,
            length: writing.bytes,
            times: draft.times,
            turn: draft.turn,
        };
        if let Some(writer) = store.writer() {
            writer.send(Job::Commit(Box::new(commit)));
        }
    }

    fn keeps_length(&self) -> bool {
        true
    }
}
