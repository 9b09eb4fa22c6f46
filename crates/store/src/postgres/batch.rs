//! Pure: many transactions decided together, one after another, over what was loaded for all of them.

use super::rows::bigint;
use crate::decide::{self, Stand, View};
use crate::document::{self, Remembered};
use crate::{Commit, Fence, StoreError, Transaction};
use std::collections::{BTreeMap, HashMap};
use towpath_types::resource::Key;
use towpath_types::{Incarnation, ManagerId, Record, Revision};

/// What the database said about the things that a batch touches.
#[derive(Default)]
pub(super) struct Loaded {
    pub(super) revision: Revision,
    pub(super) compacted: u64,
    pub(super) now_ms: u64,
    pub(super) records: HashMap<Key, Record>,
    pub(super) ids: Vec<String>,
    /// Managers that are not evicted.
    pub(super) managers: HashMap<ManagerId, Incarnation>,
    pub(super) first_results: HashMap<String, Remembered>,
}

/// What has to be written, and what the writers are told once it is committed.
pub(super) struct Plan {
    pub(super) revision: Revision,
    pub(super) results: Vec<Result<Commit, StoreError>>,
    /// Each changed key with its content after the batch.
    pub(super) states: BTreeMap<Key, Option<Record>>,
    /// The feed: revision, place in it, key.
    pub(super) feed: Vec<(Revision, usize, Key)>,
    /// Idempotency keys with their results.
    pub(super) remembered: Vec<(String, Revision, String)>,
}

/// Columns of keys, as arrays.
#[derive(Default)]
pub(super) struct KeyArrays {
    pub(super) kinds: Vec<&'static str>,
    pub(super) orgs: Vec<String>,
    pub(super) spaces: Vec<String>,
    pub(super) names: Vec<String>,
}

impl<'a> FromIterator<&'a Key> for KeyArrays {
    fn from_iter<I: IntoIterator<Item = &'a Key>>(keys: I) -> Self {
        let mut arrays = Self::default();
        for key in keys {
            let [_, org, space, name] = document::columns(key);
            arrays.kinds.push(key.kind.as_str());
            arrays.orgs.push(org.to_owned());
            arrays.spaces.push(space.to_owned());
            arrays.names.push(name.to_owned());
        }
        arrays
    }
}

/// Columns of records, as arrays.
#[derive(Default)]
pub(super) struct RecordArrays {
    pub(super) ids: Vec<String>,
    pub(super) generations: Vec<i64>,
    pub(super) revisions: Vec<i64>,
    pub(super) created: Vec<i64>,
    pub(super) updated: Vec<i64>,
    pub(super) specs: Vec<String>,
    pub(super) statuses: Vec<String>,
}

impl<'a> FromIterator<&'a Record> for RecordArrays {
    fn from_iter<I: IntoIterator<Item = &'a Record>>(records: I) -> Self {
        let mut arrays = Self::default();
        for record in records {
            arrays.ids.push(record.id.clone());
            arrays.generations.push(bigint(record.generation.0));
            arrays.revisions.push(bigint(record.revision.0));
            arrays.created.push(bigint(record.created_ms));
            arrays.updated.push(bigint(record.updated_ms));
            arrays.specs.push(record.spec.to_string());
            arrays.statuses.push(record.status.to_string());
        }
        arrays
    }
}

/// Decides all transactions in their order; each succeeds or fails alone.
pub(super) fn plan(transactions: &[&Transaction], loaded: Loaded) -> Plan {
    let mut view = View::default();
    let mut records = loaded.records;
    for key in transactions.iter().flat_map(|transaction| decide::keys(transaction)) {
        if !view.knows(key) {
            view.load(key.clone(), records.remove(key));
        }
    }
    for id in loaded.ids {
        view.load_id(id);
    }
    let mut deciding = Deciding {
        view,
        now_ms: loaded.now_ms,
        managers: loaded.managers,
        first_results: loaded.first_results,
        plan: Plan {
            revision: loaded.revision,
            results: Vec::with_capacity(transactions.len()),
            states: BTreeMap::new(),
            feed: Vec::new(),
            remembered: Vec::new(),
        },
    };
    for transaction in transactions {
        let result = deciding.decide(transaction);
        deciding.plan.results.push(result);
    }
    deciding.plan
}

struct Deciding {
    view: View,
    now_ms: u64,
    managers: HashMap<ManagerId, Incarnation>,
    first_results: HashMap<String, Remembered>,
    plan: Plan,
}

impl Deciding {
    fn decide(&mut self, transaction: &Transaction) -> Result<Commit, StoreError> {
        if let Some(named) = &transaction.idempotency
            && let Some(first) = self.first_results.get(&named.key)
        {
            return first.answer(named);
        }
        if let Some(Fence { manager, incarnation }) = transaction.fence
            && self.managers.get(&manager) != Some(&incarnation)
        {
            return Err(StoreError::Fenced(manager));
        }
        let stand = Stand { revision: self.plan.revision, now_ms: self.now_ms };
        let decision = decide::decide(transaction, &self.view, stand)?;
        self.view.apply(&decision);
        for (ord, (key, record)) in decision.changes.into_iter().enumerate() {
            self.plan.feed.push((decision.commit.revision, ord, key.clone()));
            self.plan.states.insert(key, record);
        }
        self.plan.revision = decision.commit.revision;
        if let Some(named) = &transaction.idempotency {
            let remembered = Remembered::new(&decision.commit, named);
            self.plan.remembered.push((named.key.clone(), decision.commit.revision, remembered.text()));
            self.first_results.insert(named.key.clone(), remembered);
        }
        Ok(decision.commit)
    }
}
