//! Items as they come: one that this build cannot read spoils nothing but itself.

use super::fetch::Stand;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use towpath_route::route_key;
use towpath_types::Revision;
use towpath_wire::gateway::{GatewayDelta, Item, ItemKey, SnapshotPage};
use towpath_wire::{DecodeError, WireMessage, decode};

/// Longest piece of a stranger's text that is shown.
const SHOWN: usize = 80;

/// An item that cannot be read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Unreadable {
    /// Which it is, as far as that can be told.
    pub(crate) key: Option<ItemKey>,
    /// What to call it when it has no key.
    pub(crate) name: String,
    /// What the parser said.
    pub(crate) why: String,
}

/// Items, and what could not be read among them.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) good: Vec<Item>,
    pub(crate) unreadable: Vec<Unreadable>,
}

impl Items {
    /// Reads each for itself.
    pub(crate) fn read(raw: Vec<Box<RawValue>>) -> Self {
        let mut items = Self { good: Vec::with_capacity(raw.len()), unreadable: Vec::new() };
        for one in raw {
            match serde_json::from_str(one.get()) {
                Ok(item) => items.good.push(item),
                Err(error) => items.unreadable.push(Unreadable::of(&one, &error)),
            }
        }
        items
    }

    /// Adds those of another page.
    pub(crate) fn extend(&mut self, more: Self) {
        self.good.extend(more.good);
        self.unreadable.extend(more.unreadable);
    }
}

impl From<Vec<Item>> for Items {
    fn from(good: Vec<Item>) -> Self {
        Self { good, unreadable: Vec::new() }
    }
}

impl Unreadable {
    fn of(raw: &RawValue, error: &serde_json::Error) -> Self {
        let value: serde_json::Value = serde_json::from_str(raw.get()).unwrap_or_default();
        let kind = value.get("kind").and_then(serde_json::Value::as_str).unwrap_or_default();
        let text = |field| value.get(field).and_then(serde_json::Value::as_str);
        let key = match kind {
            "route" => text("host").map(|host| ItemKey::Route(route_key(host, text("path").unwrap_or("/")))),
            "app" => value.get("app").and_then(|app| Deserialize::deserialize(app).ok()).map(ItemKey::App),
            "space" => {
                value.get("space").and_then(|space| Deserialize::deserialize(space).ok()).map(ItemKey::Space)
            }
            "resource" => text("resource")
                .zip(text("id"))
                .map(|(kind, id)| ItemKey::Resource { kind: kind.to_owned(), id: id.to_owned() }),
            _ => None,
        };
        let shown: String = kind.chars().take(SHOWN).collect();
        Self { key, name: format!("item of kind {shown:?}"), why: error.to_string() }
    }
}

/// A delta, and what could not be read in it.
#[derive(Debug)]
pub(crate) struct Delta {
    pub(crate) readable: GatewayDelta,
    pub(crate) unreadable: Vec<Unreadable>,
}

impl From<GatewayDelta> for Delta {
    fn from(readable: GatewayDelta) -> Self {
        Self { readable, unreadable: Vec::new() }
    }
}

/// A page of a snapshot.
pub(crate) struct Page {
    pub(crate) stand: Stand,
    pub(crate) items: Items,
    pub(crate) next: Option<String>,
}

/// [`SnapshotPage`] with its items still closed.
#[derive(Serialize, Deserialize)]
struct RawPage {
    #[serde(default)]
    epoch: u64,
    revision: Revision,
    items: Vec<Box<RawValue>>,
    next: Option<String>,
}

impl WireMessage for RawPage {
    const NAME: &'static str = SnapshotPage::NAME;
    const VERSION: u16 = SnapshotPage::VERSION;
}

/// [`GatewayDelta`] with its items still closed.
#[derive(Serialize, Deserialize)]
struct RawDelta {
    epoch: u64,
    from: Revision,
    to: Revision,
    put: Vec<Box<RawValue>>,
    delete: Vec<Box<RawValue>>,
}

impl WireMessage for RawDelta {
    const NAME: &'static str = GatewayDelta::NAME;
    const VERSION: u16 = GatewayDelta::VERSION;
}

/// The page in a payload.
pub(crate) fn read_page(payload: &[u8]) -> Result<Page, DecodeError> {
    let page: RawPage = decode(payload)?;
    let stand = Stand { epoch: page.epoch, revision: page.revision };
    Ok(Page { stand, items: Items::read(page.items), next: page.next })
}

/// The delta in a payload. The end of something whose kind is not known here needs nothing: it never was here.
pub(crate) fn read_delta(payload: &[u8]) -> Result<Delta, DecodeError> {
    let RawDelta { epoch, from, to, put, delete } = decode(payload)?;
    let Items { good: put, unreadable } = Items::read(put);
    let delete = delete.iter().filter_map(|key| serde_json::from_str(key.get()).ok()).collect();
    Ok(Delta { readable: GatewayDelta { epoch, from, to, put, delete }, unreadable })
}
