//! Pure: what a transaction does to the records that it names. Both adapters load those records, ask here, and write
//! what comes out; so the rules of compare-and-set, generations and "nothing changed" exist once.

use crate::{Commit, Expect, StoreError, Transaction, Write};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use towpath_types::resource::Key;
use towpath_types::{Generation, Record, Revision};

/// Records as the transactions of a batch see them, one after another. `None` = known not to be there.
#[derive(Debug, Default)]
pub(crate) struct View {
    records: HashMap<Key, Option<Record>>,
    /// Ids in use, as far as they matter for creations in this batch.
    ids: HashSet<String>,
}

/// What a transaction changes.
#[derive(Debug)]
pub(crate) struct Decision {
    /// The answer to the writer.
    pub(crate) commit: Commit,
    /// Each changed key once, in the order of its first change, with its content afterwards.
    pub(crate) changes: Vec<(Key, Option<Record>)>,
}

/// Where in the order of writes, and when, a transaction stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stand {
    /// The store's revision before it.
    pub(crate) revision: Revision,
    /// The store's clock.
    pub(crate) now_ms: u64,
}

impl View {
    /// Tells the view what is stored under a key.
    pub(crate) fn load(&mut self, key: Key, record: Option<Record>) {
        if let Some(record) = &record {
            self.ids.insert(record.id.clone());
        }
        self.records.insert(key, record);
    }

    /// Whether the view was told about a key.
    pub(crate) fn knows(&self, key: &Key) -> bool {
        self.records.contains_key(key)
    }

    /// Tells the view that some resource has this id.
    pub(crate) fn load_id(&mut self, id: String) {
        self.ids.insert(id);
    }

    /// Makes the changes visible to the transactions that follow.
    pub(crate) fn apply(&mut self, decision: &Decision) {
        for (key, record) in &decision.changes {
            self.load(key.clone(), record.clone());
        }
    }
}

/// The keys that a transaction reads and writes.
pub(crate) fn keys(transaction: &Transaction) -> impl Iterator<Item = &Key> {
    transaction.writes.iter().map(|write| match write {
        Write::Put { key, .. } | Write::Delete { key, .. } => key,
    })
}

/// The ids that a transaction would create resources with.
pub(crate) fn new_ids(transaction: &Transaction) -> impl Iterator<Item = &str> {
    transaction.writes.iter().filter_map(|write| match write {
        Write::Put { id, .. } => Some(id.as_str()),
        Write::Delete { .. } => None,
    })
}

/// Refuses what no database can hold.
pub(crate) fn check(transaction: &Transaction) -> Result<(), StoreError> {
    let bad = |what: &str| Err(StoreError::Invalid(format!("{what} is empty, too long or has a NUL in it")));
    let bad_text = |text: &str, max: usize| text.is_empty() || text.len() > max || text.contains('\0');
    for key in keys(transaction) {
        if bad_text(&key.name, 1024) {
            return bad(&format!("the name {:?}", key.name.chars().take(80).collect::<String>()));
        }
    }
    if new_ids(transaction).any(|id| bad_text(id, 128)) {
        return bad("an id");
    }
    if transaction.idempotency.as_ref().is_some_and(|named| bad_text(&named.key, 512)) {
        return bad("the idempotency key");
    }
    Ok(())
}

/// Decides a whole transaction; nothing is written unless all of it can be.
pub(crate) fn decide(transaction: &Transaction, view: &View, stand: Stand) -> Result<Decision, StoreError> {
    let mut draft = Draft { view, stand, next: Revision(stand.revision.0 + 1), touched: Vec::new() };
    let mut records = Vec::with_capacity(transaction.writes.len());
    for write in &transaction.writes {
        records.push(match write {
            Write::Put { key, id, expect, spec, status } => {
                draft.expect(key, *expect)?;
                Some(draft.put(key, id, spec.as_ref(), status.as_ref())?)
            }
            Write::Delete { key, expect } => {
                draft.expect(key, *expect)?;
                draft.delete(key);
                None
            }
        });
    }
    let revision = if draft.touched.is_empty() { stand.revision } else { draft.next };
    Ok(Decision { commit: Commit { revision, records }, changes: draft.touched })
}

/// A transaction half decided.
struct Draft<'a> {
    view: &'a View,
    stand: Stand,
    next: Revision,
    touched: Vec<(Key, Option<Record>)>,
}

impl Draft<'_> {
    fn present(&self, key: &Key) -> Option<&Record> {
        match self.touched.iter().find(|(touched, _)| touched == key) {
            Some((_, record)) => record.as_ref(),
            None => self.view.records.get(key).and_then(Option::as_ref),
        }
    }

    fn expect(&self, key: &Key, expect: Expect) -> Result<(), StoreError> {
        let actual = self.present(key).map(|record| record.revision);
        let holds = match expect {
            Expect::Any => true,
            Expect::Absent => actual.is_none(),
            Expect::Present => actual.is_some(),
            Expect::At(revision) => actual == Some(revision),
        };
        if holds { Ok(()) } else { Err(StoreError::Conflict { key: key.clone(), actual }) }
    }

    fn put(
        &mut self,
        key: &Key,
        id: &str,
        spec: Option<&Value>,
        status: Option<&Value>,
    ) -> Result<Record, StoreError> {
        let empty = || Value::Object(serde_json::Map::new());
        let record = match self.present(key) {
            Some(stored) => {
                let new_spec = spec.filter(|spec| **spec != stored.spec);
                let new_status = status.filter(|status| **status != stored.status);
                if new_spec.is_none() && new_status.is_none() {
                    return Ok(stored.clone());
                }
                Record {
                    id: stored.id.clone(),
                    key: key.clone(),
                    generation: Generation(stored.generation.0 + u64::from(new_spec.is_some())),
                    revision: self.next,
                    created_ms: stored.created_ms,
                    updated_ms: self.stand.now_ms,
                    spec: new_spec.unwrap_or(&stored.spec).clone(),
                    status: new_status.unwrap_or(&stored.status).clone(),
                }
            }
            None => {
                let drafted =
                    |(_, record): &(Key, Option<Record>)| record.as_ref().is_some_and(|r| r.id == id);
                if self.view.ids.contains(id) || self.touched.iter().any(drafted) {
                    return Err(StoreError::Invalid(format!("the id {id:?} is in use")));
                }
                Record {
                    id: id.to_owned(),
                    key: key.clone(),
                    generation: Generation(1),
                    revision: self.next,
                    created_ms: self.stand.now_ms,
                    updated_ms: self.stand.now_ms,
                    spec: spec.cloned().unwrap_or_else(empty),
                    status: status.cloned().unwrap_or_else(empty),
                }
            }
        };
        self.touch(key, Some(record.clone()));
        Ok(record)
    }

    fn delete(&mut self, key: &Key) {
        if self.present(key).is_some() {
            self.touch(key, None);
        }
    }

    fn touch(&mut self, key: &Key, record: Option<Record>) {
        match self.touched.iter_mut().find(|(touched, _)| touched == key) {
            Some((_, slot)) => *slot = record,
            None => self.touched.push((key.clone(), record)),
        }
    }
}
