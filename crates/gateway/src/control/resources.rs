//! Resources that managers send: from items, in which secrets are sealed, to documents to changes of the table.

use super::keys::{Closed, Keys};
use super::state::State;
use crate::resources::Resources;
use std::collections::BTreeMap;
use towpath_resources::{Document, Id, Key, Kind, read};

/// Resources as they come, by kind and id: a document, or nothing for one that is gone.
pub(super) type Arrived = BTreeMap<(String, String), Option<serde_json::Value>>;

/// Compiles what has come since the last time, all at once, since documents refer to each other. Of one that cannot be read the
/// version from before serves on.
pub(super) fn apply(state: &mut State, resources: &mut Resources, keys: &mut Keys) {
    let arrived = state.take_arrived();
    if arrived.is_empty() {
        return;
    }
    let (mut puts, mut deletes) = (Vec::new(), Vec::new());
    for ((kind, id), value) in arrived {
        keys.forget(&kind, &id);
        match document(&kind, &id, value.as_ref(), keys) {
            Ok((_, Some(document))) => puts.push(document),
            Ok((key, None)) => deletes.push(key),
            Err(Closed::Wrong(why)) => state.refuse_resource(&format!("{kind}/{id}"), why),
            Err(Closed::Waits(key)) => {
                let why = keys.wait_for(&kind, &id, &key);
                state.note_waiting(&format!("{kind}/{id}"), why);
            }
        }
    }
    let outcome = resources.change(puts, &deletes);
    state.take_resources(outcome);
}

fn document(
    kind: &str,
    id: &str,
    value: Option<&serde_json::Value>,
    keys: &Keys,
) -> Result<(Key, Option<Document>), Closed> {
    let kind: Kind = kind.parse().map_err(|fault: towpath_resources::Fault| Closed::Wrong(fault.message))?;
    let id = Id::new(kind, id).map_err(|fault| Closed::Wrong(fault.message))?;
    let key = Key::new(kind, id);
    let Some(value) = value else { return Ok((key, None)) };
    let faults = |faults: Vec<towpath_resources::Fault>| {
        Closed::Wrong(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
    };
    let document = read(kind, &key.id, keys.open(&key, value)?.as_ref()).map_err(faults)?;
    Ok((key, Some(document)))
}
