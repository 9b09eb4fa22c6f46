//! How keys and JSON look in columns, the same in both databases.

use crate::{Commit, Idempotency, StoreError};
use towpath_types::resource::Key;
use towpath_types::{Kind, OrgName, Revision, SpaceName};

/// The text of an absent org or space: names are never empty, so it cannot collide, and it sorts first.
pub(crate) const NONE: &str = "";

/// The text columns of a key: kind, org, space, name.
pub(crate) fn columns(key: &Key) -> [&str; 4] {
    [
        key.kind.as_str(),
        key.org.as_ref().map_or(NONE, OrgName::as_str),
        key.space.as_ref().map_or(NONE, SpaceName::as_str),
        &key.name,
    ]
}

/// The key of the columns. A kind that this build does not know is `None`: a newer build wrote it.
pub(crate) fn key(kind: &str, org: &str, space: &str, name: String) -> Result<Option<Key>, StoreError> {
    let Ok(kind) = kind.parse::<Kind>() else { return Ok(None) };
    let unreadable =
        |error: towpath_types::NameError| StoreError::Corrupt(format!("key of {name:?}: {error}"));
    let org = if org.is_empty() { None } else { Some(OrgName::new(org).map_err(unreadable)?) };
    let space = if space.is_empty() { None } else { Some(SpaceName::new(space).map_err(unreadable)?) };
    Ok(Some(Key { kind, org, space, name }))
}

/// JSON from a column.
pub(crate) fn json(text: &str, what: &str) -> Result<serde_json::Value, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("{what}: {error}")))
}

/// Where the digest of a request stands in the first record of its result. Records are read with unknown fields, so a
/// build of the version before reads such results as well.
const REQUEST: &str = "request";

/// What is remembered under an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct Remembered {
    commit: Commit,
    request: Option<String>,
}

impl Remembered {
    /// A commit that was made now.
    pub(crate) fn new(commit: &Commit, idempotency: &Idempotency) -> Self {
        let mut commit = commit.clone();
        if let (Some(spec), Some(Some(first))) = (&idempotency.spec, commit.records.first_mut()) {
            first.spec = spec.clone();
        }
        Self { commit, request: idempotency.request.clone() }
    }

    /// As it stands in columns.
    pub(crate) fn read(revision: u64, records: &str) -> Result<Self, StoreError> {
        let corrupt = |error| StoreError::Corrupt(format!("result of an idempotency key: {error}"));
        let values: Vec<serde_json::Value> = serde_json::from_str(records).map_err(corrupt)?;
        let request = values.iter().find_map(|value| value.get(REQUEST)?.as_str().map(str::to_owned));
        let records = values.into_iter().map(|value| serde_json::from_value(value).map_err(corrupt));
        let commit = Commit { revision: Revision(revision), records: records.collect::<Result<_, _>>()? };
        Ok(Self { commit, request })
    }

    /// Its records as they go into a column. (A commit that only deletes has no place for the digest; it needs none.)
    pub(crate) fn text(&self) -> String {
        // Writing plain JSON values to a string does not fail; an empty text would be refused as corrupt when read.
        let mut values = serde_json::to_value(&self.commit.records).unwrap_or_default();
        let first = values.as_array_mut().and_then(|all| all.iter_mut().find_map(|one| one.as_object_mut()));
        if let (Some(first), Some(request)) = (first, &self.request) {
            first.insert(REQUEST.into(), request.clone().into());
        }
        values.to_string()
    }

    /// The first result again, if it is the same request.
    pub(crate) fn answer(&self, asked: &Idempotency) -> Result<Commit, StoreError> {
        match (&self.request, &asked.request) {
            (Some(first), Some(asked)) if first != asked => Err(StoreError::KeyReused),
            _ => Ok(self.commit.clone()),
        }
    }
}

/// The least text that sorts behind everything that begins with `prefix`, in the order of bytes; `None` if there is
/// no such text.
pub(crate) fn behind_prefix(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        let next = (u32::from(last) + 1..=u32::from(char::MAX)).find_map(char::from_u32);
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// The epoch above one that was heard of, if there is one that both databases can hold.
pub(crate) fn epoch_above(heard: u64) -> Result<u64, StoreError> {
    let highest = u64::try_from(i64::MAX).unwrap_or_default();
    match heard.checked_add(1) {
        Some(above) if above < highest => Ok(above),
        _ => Err(StoreError::Invalid(format!("there is no epoch above {heard}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_the_next_text() {
        assert_eq!(behind_prefix("ab").as_deref(), Some("ac"));
        assert_eq!(behind_prefix("a\u{10ffff}").as_deref(), Some("b"));
        assert_eq!(behind_prefix("a\u{d7ff}").as_deref(), Some("a\u{e000}"));
        assert_eq!(behind_prefix("\u{10ffff}"), None);
        assert_eq!(behind_prefix(""), None);
    }
}
