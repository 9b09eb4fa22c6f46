//! Rules broken on purpose, so that tests see the simulator notice it. Nothing of this is done unless it is asked for.

use std::str::FromStr;
use towpath_store::{Commit, Expect, MemoryStore, Store, StoreError, Transaction, Write};
use towpath_types::spec::GroupStatus;
use towpath_types::{Kind, Record};

/// A rule to break.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sabotage {
    /// The store takes writes of managers that were evicted.
    Fences,
    /// The store takes writes whatever was written since they were decided.
    Conditions,
    /// The store forgets which requests it has done.
    Repeats,
    /// Some writes are acknowledged and lost.
    Losses,
    /// Managers promise an instance to two cells.
    Placement,
    /// Managers answer, and cells obey, whatever the epoch is.
    Epochs,
    /// Managers do not look at epochs; cells do. This one is made good by the cells.
    ManagersEpochs,
    /// Cells leave instances running that nobody wants any more.
    Leftovers,
}

impl FromStr for Sabotage {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [
            ("fences", Self::Fences),
            ("conditions", Self::Conditions),
            ("repeats", Self::Repeats),
            ("losses", Self::Losses),
            ("placement", Self::Placement),
            ("epochs", Self::Epochs),
            ("managers-epochs", Self::ManagersEpochs),
            ("leftovers", Self::Leftovers),
        ];
        let names = all.map(|(name, _)| name).join(", ");
        let found = all.into_iter().find(|(name, _)| *name == text);
        found.map(|(_, sabotage)| sabotage).ok_or_else(|| format!("what can be sabotaged is: {names}"))
    }
}

/// Commits as a store would that has this fault. `chance` decides where a fault happens only now and then.
pub(super) async fn commit(
    store: &MemoryStore,
    sabotage: Option<Sabotage>,
    mut transaction: Transaction,
    chance: impl Fn() -> bool,
) -> Result<Commit, StoreError> {
    match sabotage {
        Some(Sabotage::Fences) => transaction.fence = None,
        Some(Sabotage::Repeats) => transaction.idempotency = None,
        Some(Sabotage::Conditions) => {
            for write in &mut transaction.writes {
                let (Write::Put { expect, .. } | Write::Delete { expect, .. }) = write;
                *expect = Expect::Any;
            }
        }
        Some(Sabotage::Placement) => transaction.writes.iter_mut().for_each(place_twice),
        Some(Sabotage::Losses) if transaction.idempotency.is_some() && chance() => {
            return lose(store, transaction).await;
        }
        _ => {}
    }
    store.commit(transaction).await
}

/// Commits, and puts back what was there before.
async fn lose(store: &MemoryStore, transaction: Transaction) -> Result<Commit, StoreError> {
    let mut undo = Vec::new();
    for write in &transaction.writes {
        let (Write::Put { key, .. } | Write::Delete { key, .. }) = write;
        if let Some(Record { key, id, spec, .. }) = store.get(key).await? {
            undo.push(Write::Put { key, id, expect: Expect::Any, spec: Some(spec), status: None });
        }
    }
    let commit = store.commit(transaction).await?;
    store.commit(Transaction { writes: undo, fence: None, idempotency: None }).await?;
    Ok(commit)
}

/// Gives the first instance in a group's status to a second cell as well.
fn place_twice(write: &mut Write) {
    let Write::Put { key, status: Some(value), .. } = write else { return };
    let Ok(mut status) = serde_json::from_value::<GroupStatus>(value.clone()) else { return };
    let Some(first) = status.assignments.first().filter(|_| key.kind == Kind::Group).cloned() else { return };
    let elsewhere = status.assignments.iter().find(|other| other.cell != first.cell).map(|other| other.cell);
    if let Some(cell) = elsewhere {
        // Named first, so that it is this cell which is told about it.
        status.assignments.push(towpath_types::spec::Assignment { cell, ..first });
        *value = serde_json::json!(status);
    }
}
