//! Resources that managers send: from items to documents to changes of the table.

use super::state::State;
use crate::resources::Resources;
use std::collections::BTreeMap;
use towpath_resources::{Document, Id, Key, Kind, read};

/// Resources as they come, by kind and id: a document, or nothing for one that is gone.
pub(super) type Arrived = BTreeMap<(String, String), Option<serde_json::Value>>;

/// Compiles what has come since the last time, all at once, since documents refer to each other. Of one that cannot be read the
/// version from before serves on.
pub(super) fn apply(state: &mut State, resources: &mut Resources) {
    let arrived = state.take_arrived();
    if arrived.is_empty() {
        return;
    }
    let (mut puts, mut deletes) = (Vec::new(), Vec::new());
    for ((kind, id), value) in arrived {
        match document(&kind, &id, value.as_ref()) {
            Ok((_, Some(document))) => puts.push(document),
            Ok((key, None)) => deletes.push(key),
            Err(why) => state.refuse_resource(&format!("{kind}/{id}"), why),
        }
    }
    let outcome = resources.change(puts, &deletes);
    state.take_resources(outcome);
}

fn document(
    kind: &str,
    id: &str,
    value: Option<&serde_json::Value>,
) -> Result<(Key, Option<Document>), String> {
    let kind: Kind = kind.parse().map_err(|fault: towpath_resources::Fault| fault.message)?;
    let id = Id::new(kind, id).map_err(|fault| fault.message)?;
    let document = value
        .map(|value| read(kind, &id, value))
        .transpose()
        .map_err(|faults| faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    Ok((Key::new(kind, id), document))
}
