//! Random work, compared with a model that is too simple to be wrong.

use crate::rig::{Rig, fence, key_in, row};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use towpath_store::{Change, Commit, Expect, Fence, Page, Query, Store, StoreError, Transaction, Write};
use towpath_types::resource::Key;
use towpath_types::{Generation, Kind, Record, Revision};

/// Histories, and steps in each.
const HISTORIES: usize = 25;
const STEPS: usize = 60;

#[derive(Debug, Clone)]
enum Step {
    Commit { writes: Vec<Draft>, fence: Option<Fence>, idempotency: Option<String> },
    Get(Key),
    List(Query),
    Changes { back: u64, limit: usize },
}

/// A write whose `Expect::At` is relative: most random revisions would never be right.
#[derive(Debug, Clone)]
struct Draft {
    key: Key,
    expect: DraftExpect,
    content: Option<(Option<i64>, Option<i64>)>,
}

#[derive(Debug, Clone, Copy)]
enum DraftExpect {
    Absent,
    Present,
    Any,
    Right,
    Wrong,
}

fn keys() -> impl Strategy<Value = Key> {
    let kinds = prop_oneof![Just(Kind::App), Just(Kind::Lane), Just(Kind::Route)];
    let places = prop_oneof![Just((None, None)), Just((Some("a"), None)), Just((Some("a"), Some("x")))];
    (kinds, places, "[ab]{1,2}").prop_map(|(kind, (org, space), name)| key_in(kind, org, space, &name))
}

fn drafts() -> impl Strategy<Value = Draft> {
    let expect = prop_oneof![
        2 => Just(DraftExpect::Absent),
        1 => Just(DraftExpect::Present),
        4 => Just(DraftExpect::Any),
        4 => Just(DraftExpect::Right),
        1 => Just(DraftExpect::Wrong),
    ];
    let content = prop::option::weighted(0.7, (prop::option::of(0..3_i64), prop::option::of(0..3_i64)));
    (keys(), expect, content).prop_map(|(key, expect, content)| Draft { key, expect, content })
}

fn steps() -> impl Strategy<Value = Step> {
    let fences = prop_oneof![5 => Just(None), 2 => Just(Some(fence(1, 1))), 1 => Just(Some(fence(2, 1)))];
    let commits = (prop::collection::vec(drafts(), 0..5), fences, prop::option::weighted(0.2, "k[0-9]"))
        .prop_map(|(writes, fence, idempotency)| Step::Commit { writes, fence, idempotency });
    let kinds = prop::option::of(prop_oneof![Just(Kind::App), Just(Kind::Route)]);
    let lists = (kinds, any::<bool>(), prop::option::of("[ab]?"), prop::option::of(keys()), 0..5_usize)
        .prop_map(|(kind, org, name_prefix, after, limit)| {
            let org = if org { key_in(Kind::App, Some("a"), None, "").org } else { None };
            Step::List(Query { kind, org, space: None, name_prefix, after, limit })
        });
    prop_oneof![
        6 => commits,
        1 => keys().prop_map(Step::Get),
        2 => lists,
        2 => (0..20_u64, 0..6_usize).prop_map(|(back, limit)| Step::Changes { back, limit }),
    ]
}

#[derive(Default)]
struct Model {
    records: BTreeMap<Key, Record>,
    revision: u64,
    feed: Vec<(u64, Key)>,
    results: HashMap<String, Commit>,
}

/// What went wrong, without texts.
#[derive(Debug, PartialEq)]
enum Wrong {
    Conflict(Key, Option<Revision>),
    Fenced,
    Other,
}

impl From<StoreError> for Wrong {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict { key, actual } => Self::Conflict(key, actual),
            StoreError::Fenced(_) => Self::Fenced,
            _ => Self::Other,
        }
    }
}

impl Model {
    fn transaction(&self, writes: &[Draft], ids: &mut u64) -> Vec<Write> {
        let at = |key: &Key| self.records.get(key).map_or(Revision(77), |record| record.revision);
        let write = |draft: &Draft| {
            let key = draft.key.clone();
            let expect = match draft.expect {
                DraftExpect::Absent => Expect::Absent,
                DraftExpect::Present => Expect::Present,
                DraftExpect::Any => Expect::Any,
                DraftExpect::Right => Expect::At(at(&key)),
                DraftExpect::Wrong => Expect::At(Revision(at(&key).0 + 1)),
            };
            *ids += 1;
            match draft.content {
                None => Write::Delete { key, expect },
                Some((spec, status)) => Write::Put {
                    key,
                    id: format!("id-{ids}"),
                    expect,
                    spec: spec.map(Value::from),
                    status: status.map(Value::from),
                },
            }
        };
        writes.iter().map(write).collect()
    }

    fn commit(&mut self, transaction: &Transaction) -> Result<Commit, Wrong> {
        if let Some(first) = transaction.idempotency.as_ref().and_then(|named| self.results.get(&named.key)) {
            return Ok(first.clone());
        }
        if transaction.fence == Some(fence(2, 1)) {
            return Err(Wrong::Fenced);
        }
        let before = self.records.clone();
        let next = self.revision + 1;
        let mut touched: Vec<Key> = Vec::new();
        let mut records = Vec::new();
        for write in &transaction.writes {
            let (Write::Put { key, expect, .. } | Write::Delete { key, expect }) = write;
            let stored = self.records.get(key).cloned();
            let actual = stored.as_ref().map(|record| record.revision);
            let holds = match expect {
                Expect::Any => true,
                Expect::Absent => actual.is_none(),
                Expect::Present => actual.is_some(),
                Expect::At(revision) => actual == Some(*revision),
            };
            if !holds {
                self.records = before;
                return Err(Wrong::Conflict(key.clone(), actual));
            }
            let after = match write {
                Write::Delete { .. } => None,
                Write::Put { id, spec, status, .. } => Some(put(stored.clone(), key, id, spec, status, next)),
            };
            if after != stored && !touched.contains(key) {
                touched.push(key.clone());
            }
            match &after {
                Some(record) => drop(self.records.insert(key.clone(), record.clone())),
                None => drop(self.records.remove(key)),
            }
            records.push(after);
        }
        if !touched.is_empty() {
            self.revision = next;
            self.feed.extend(touched.into_iter().map(|key| (next, key)));
        }
        let commit = Commit { revision: Revision(self.revision), records };
        if let Some(named) = &transaction.idempotency {
            self.results.insert(named.key.clone(), commit.clone());
        }
        Ok(commit)
    }

    fn list(&self, query: &Query) -> Page {
        let fits = |key: &&Key| {
            query.kind.is_none_or(|kind| kind == key.kind)
                && (query.org.is_none() || query.org == key.org)
                && query.name_prefix.as_ref().is_none_or(|prefix| key.name.starts_with(prefix.as_str()))
                && query.after.as_ref().is_none_or(|after| *key > after)
        };
        let found: Vec<Record> =
            self.records.iter().filter(|(key, _)| fits(key)).map(|(_, record)| record.clone()).collect();
        let limit = if query.limit == 0 { usize::MAX } else { query.limit };
        let more = found.len() > limit;
        Page { revision: Revision(self.revision), records: found.into_iter().take(limit).collect(), more }
    }

    fn changes(&self, after: u64, limit: usize) -> Vec<Change> {
        let later: Vec<_> = self.feed.iter().filter(|(revision, _)| *revision > after).collect();
        let limit = if limit == 0 { usize::MAX } else { limit };
        let last = later.iter().take(limit).next_back().map_or(0, |(revision, _)| *revision);
        let change = |(revision, key): &&(u64, Key)| Change {
            revision: Revision(*revision),
            key: key.clone(),
            record: self.records.get(key).cloned(),
        };
        later.iter().filter(|(revision, _)| *revision <= last).map(change).collect()
    }
}

fn put(
    stored: Option<Record>,
    key: &Key,
    id: &str,
    spec: &Option<Value>,
    status: &Option<Value>,
    revision: u64,
) -> Record {
    let fresh = Record {
        id: id.to_owned(),
        key: key.clone(),
        generation: Generation(1),
        revision: Revision(revision),
        created_ms: 0,
        updated_ms: 0,
        spec: json!({}),
        status: json!({}),
    };
    let is_new = stored.is_none();
    let before = stored.unwrap_or(fresh);
    let mut after = before.clone();
    after.spec = spec.clone().unwrap_or(after.spec);
    after.status = status.clone().unwrap_or(after.status);
    if after != before {
        after.revision = Revision(revision);
    }
    if after.spec != before.spec && !is_new {
        after.generation.0 += 1;
    }
    after
}

/// The model has no clock.
fn timeless(record: Record) -> Record {
    Record { created_ms: 0, updated_ms: 0, ..record }
}

async fn check(store: &dyn Store, history: &[Step]) {
    store.register_manager(&row(fence(1, 1))).await.unwrap();
    let mut model = Model::default();
    let mut ids = 0;
    for (number, step) in history.iter().enumerate() {
        let what = format!("step {number}: {step:?}");
        match step {
            Step::Commit { writes, fence, idempotency } => {
                let writes = model.transaction(writes, &mut ids);
                let idempotency = idempotency.clone().map(Into::into);
                let transaction = Transaction { writes, fence: *fence, idempotency };
                let expected = model.commit(&transaction);
                let result = store.commit(transaction).await.map_err(Wrong::from).map(|mut commit| {
                    commit.records = commit.records.into_iter().map(|record| record.map(timeless)).collect();
                    commit
                });
                assert_eq!(result, expected, "{what}");
            }
            Step::Get(key) => {
                let found = store.get(key).await.unwrap().map(timeless);
                assert_eq!(found, model.records.get(key).cloned(), "{what}");
            }
            Step::List(query) => {
                let mut page = store.list(query).await.unwrap();
                page.records = page.records.into_iter().map(timeless).collect();
                assert_eq!(page, model.list(query), "{what}");
            }
            Step::Changes { back, limit } => {
                let after = model.revision.saturating_sub(*back);
                let mut changes = store.changes(Revision(after), *limit).await.unwrap();
                for change in &mut changes {
                    change.record = change.record.take().map(timeless);
                }
                assert_eq!(changes, model.changes(after, *limit), "{what}");
            }
        }
    }
    let all = store.list(&Query::default()).await.unwrap();
    assert_eq!(all.records.len(), model.records.len());
}

pub(crate) async fn random_work_matches_a_naive_model(rig: &impl Rig) {
    // The same histories each time: a failure can be repeated.
    let mut runner = TestRunner::deterministic();
    let config = Config::default();
    let strategy = prop::collection::vec(steps(), STEPS);
    for _ in 0..HISTORIES.min(usize::try_from(config.cases).unwrap()) {
        let history = strategy.new_tree(&mut runner).unwrap().current();
        check(&*rig.empty().await, &history).await;
    }
}
