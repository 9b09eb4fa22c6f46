//! The routing table as gateways get it, derived from the cache and kept beside it.

use super::cache::{CachedGroup, LazyApp};
use super::keys::{GroupRef, app_key, resource_name, space_key};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use towpath_types::resource::Key;
use towpath_types::spec::{LaneKind, LaneSpec, RouteSpec, SpaceSpec};
use towpath_types::{AppRef, Kind, LaneName, Record, SpaceRef};
use towpath_wire::gateway::{Item, ItemKey};

/// Items in the order of their keys.
#[derive(Debug, Default)]
pub(super) struct RoutingView {
    items: BTreeMap<ItemKey, Arc<Item>>,
    /// Routes by their app, then by their names.
    routes: HashMap<AppRef, BTreeMap<String, Arc<Item>>>,
}

impl RoutingView {
    /// The items that a change of this resource may change.
    pub(super) fn touched_by(key: &Key) -> Option<ItemKey> {
        let space = || Some(SpaceRef { org: key.org.clone()?, space: key.space.clone()? });
        match key.kind {
            Kind::Route => Some(ItemKey::Route(key.name.clone())),
            Kind::App => Some(ItemKey::App(AppRef::new(&space()?, key.name.parse().ok()?))),
            Kind::Group => Some(ItemKey::App(GroupRef::of_key(key)?.app)),
            Kind::Space => {
                Some(ItemKey::Space(SpaceRef { org: key.org.clone()?, space: key.name.parse().ok()? }))
            }
            Kind::Lane => Some(ItemKey::Space(space()?)),
            Kind::Resource => {
                let (kind, id) = key.name.split_once('/')?;
                Some(ItemKey::Resource { kind: kind.to_owned(), id: id.to_owned() })
            }
            Kind::Org
            | Kind::Release
            | Kind::Token
            | Kind::Cell
            | Kind::Operation
            | Kind::User
            | Kind::Member
            | Kind::Session
            | Kind::Keyring
            | Kind::Audit => None,
        }
    }

    /// Sets or removes an item; says what is new, `None` when nothing is.
    pub(super) fn set(&mut self, key: &ItemKey, item: Option<Item>) -> Option<Option<Arc<Item>>> {
        match item {
            Some(item) if self.items.get(key).is_some_and(|present| **present == item) => None,
            Some(item) => {
                let item = Arc::new(item);
                let before = self.items.insert(key.clone(), item.clone());
                self.file_route(key, before.as_deref(), Some(&item));
                Some(Some(item))
            }
            None => self.items.remove(key).map(|before| {
                self.file_route(key, Some(&before), None);
                None
            }),
        }
    }

    fn file_route(&mut self, key: &ItemKey, before: Option<&Item>, now: Option<&Arc<Item>>) {
        let ItemKey::Route(name) = key else { return };
        if let Some(Item::Route(route)) = before
            && let Some(of_app) = self.routes.get_mut(&route.app)
        {
            of_app.remove(name);
            if of_app.is_empty() {
                self.routes.remove(&route.app);
            }
        }
        if let Some(item) = now
            && let Item::Route(route) = &**item
        {
            self.routes.entry(route.app.clone()).or_default().insert(name.clone(), item.clone());
        }
    }

    /// The routes of an app.
    pub(super) fn routes_of(&self, app: &AppRef) -> Vec<Arc<Item>> {
        self.routes.get(app).into_iter().flatten().map(|(_, item)| item.clone()).collect()
    }

    /// Items behind `after`, at most `limit`.
    pub(super) fn page(&self, after: Option<&ItemKey>, limit: usize) -> Vec<(ItemKey, Arc<Item>)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let range = (after.map_or(Unbounded, Excluded), Unbounded);
        self.items.range::<ItemKey, _>(range).take(limit).map(|(k, i)| (k.clone(), i.clone())).collect()
    }
}

/// The item that the records give; `None` = there is none.
pub(super) fn build_item(
    key: &ItemKey,
    records: &BTreeMap<Key, Arc<Record>>,
    apps: &BTreeMap<AppRef, LazyApp>,
    groups: &BTreeMap<GroupRef, CachedGroup>,
) -> Option<Item> {
    match key {
        ItemKey::Route(name) => {
            let key = Key { kind: Kind::Route, org: None, space: None, name: name.clone() };
            records.get(&key)?.spec::<RouteSpec>().ok().map(Item::Route)
        }
        ItemKey::Resource { kind, id } => {
            let record = records.get(&resource_name(format!("{kind}/{id}")))?;
            Some(Item::Resource { resource: kind.clone(), id: id.clone(), value: record.spec.clone() })
        }
        ItemKey::App(app) => {
            let spec = apps.get(app).filter(|_| records.contains_key(&app_key(app)))?.read()?;
            let start = GroupRef { app: app.clone(), lane: LaneName::lowest(), region: String::new() };
            let of_app: Vec<_> = groups.range(start..).take_while(|(name, _)| name.app == *app).collect();
            let mut lanes: Vec<LaneName> = of_app.iter().map(|(name, _)| name.lane.clone()).collect();
            lanes.dedup();
            let rests = |group: &CachedGroup| group.spec.stopped || group.spec.count == 0;
            let stopped = !of_app.is_empty() && of_app.iter().all(|(_, group)| rests(group));
            let mut base = of_app.iter().filter(|(name, _)| name.lane.is_base()).peekable();
            let base_stopped = base.peek().is_some() && base.all(|(_, group)| rests(group));
            let upstream = spec.spec.upstream.clone();
            Some(Item::App { app: app.clone(), upstream, stopped, base_stopped, lanes })
        }
        ItemKey::Space(space) => {
            let record = records.get(&space_key(space))?;
            let spec: SpaceSpec = record.spec().ok()?;
            let start = super::keys::lane_key(space, &LaneName::lowest());
            let lanes: Vec<(LaneName, LaneKind)> = records
                .range(start..)
                .take_while(|(key, _)| {
                    key.kind == Kind::Lane
                        && key.org.as_ref() == Some(&space.org)
                        && key.space.as_ref() == Some(&space.space)
                })
                .filter_map(|(key, record)| {
                    Some((key.name.parse().ok()?, record.spec::<LaneSpec>().ok()?.kind))
                })
                .collect();
            let local =
                |(name, kind): &(LaneName, LaneKind)| (*kind == LaneKind::Local).then(|| name.clone());
            Some(Item::Space {
                space: space.clone(),
                local: lanes.iter().filter_map(local).collect(),
                names: lanes.into_iter().map(|(name, _)| name).collect(),
                lanes: spec.lanes,
            })
        }
    }
}
