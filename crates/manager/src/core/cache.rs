//! The hard state in memory, fed by the store's change feed: complete at a known revision.

use super::keys::GroupRef;
use super::routing_view::RoutingView;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;
use towpath_store::Change;
use towpath_types::resource::Key;
use towpath_types::spec::{AppSpec, GroupSpec, GroupStatus, ReleaseSpec};
use towpath_types::{
    AppRef, CellId, Digest, InstanceId, Kind, LaneName, OrgName, Record, Revision, SpaceName,
};
use towpath_wire::gateway::{Item, ItemKey};

/// A resource with its spec and status typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed<S, T = ()> {
    /// As stored.
    pub record: Arc<Record>,
    /// What is wanted.
    pub spec: S,
    /// What is.
    pub status: T,
}

/// A group as cached.
pub type CachedGroup = Arc<Typed<GroupSpec, GroupStatus>>;
/// An app as cached.
pub type CachedApp = Arc<Typed<AppSpec>>;
/// A release as cached.
pub type CachedRelease = Arc<Typed<ReleaseSpec>>;

/// What one step of the feed changed.
#[derive(Debug, Clone, Default)]
pub struct CacheStep {
    /// Complete up to here before.
    pub from: Revision,
    /// Complete up to here now.
    pub to: Revision,
    /// Changed resources.
    pub keys: Vec<Key>,
    /// Changed items of the routing table; `None` = gone.
    pub items: Vec<(ItemKey, Option<Arc<Item>>)>,
}

/// The cache. All methods are short and take no await.
#[derive(Debug)]
pub struct Cache {
    inner: RwLock<Inner>,
    revision: watch::Sender<Revision>,
}

#[derive(Debug, Default)]
struct Inner {
    records: BTreeMap<Key, Arc<Record>>,
    apps: BTreeMap<AppRef, CachedApp>,
    groups: BTreeMap<GroupRef, CachedGroup>,
    releases: HashMap<Key, CachedRelease>,
    by_cell: HashMap<CellId, CellSet>,
    by_instance: HashMap<InstanceId, GroupRef>,
    routing: RoutingView,
    /// Groups whose record cannot be read, for example since a newer version wrote it.
    unreadable: BTreeSet<GroupRef>,
    /// Revision at which the cache was loaded whole.
    floor: Revision,
}

/// What one cell has.
#[derive(Debug, Default)]
struct CellSet {
    instances: BTreeMap<InstanceId, GroupRef>,
    /// Last revision that changed it.
    changed: Revision,
    /// Memory promised to its instances, bytes.
    memory: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self { inner: RwLock::default(), revision: watch::Sender::new(Revision(0)) }
    }
}

impl Cache {
    fn read<R>(&self, f: impl FnOnce(&Inner) -> R) -> R {
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Complete up to this revision (single records may be newer). 0 = not loaded yet.
    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Follows [`Cache::revision`].
    pub fn watch(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// A record.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.read(|inner| inner.records.get(key).cloned())
    }

    /// Records of a kind, in the order of their keys, optionally of one org or space.
    pub fn list(&self, kind: Kind, org: Option<&OrgName>, space: Option<&SpaceName>) -> Vec<Arc<Record>> {
        let start = Key { kind, org: None, space: None, name: String::new() };
        self.read(|inner| {
            inner
                .records
                .range(start..)
                .take_while(|(key, _)| key.kind == kind)
                .filter(|(key, _)| org.is_none_or(|org| key.org.as_ref() == Some(org)))
                .filter(|(key, _)| space.is_none_or(|space| key.space.as_ref() == Some(space)))
                .map(|(_, record)| record.clone())
                .collect()
        })
    }

    /// An app.
    pub fn app(&self, app: &AppRef) -> Option<CachedApp> {
        self.read(|inner| inner.apps.get(app).cloned())
    }

    /// A group.
    pub fn group(&self, group: &GroupRef) -> Option<CachedGroup> {
        self.read(|inner| inner.groups.get(group).cloned())
    }

    /// All groups.
    pub fn groups(&self) -> Vec<(GroupRef, CachedGroup)> {
        self.read(|inner| inner.groups.iter().map(|(name, group)| (name.clone(), group.clone())).collect())
    }

    /// Names of all groups.
    pub fn group_names(&self) -> Vec<GroupRef> {
        self.read(|inner| inner.groups.keys().cloned().collect())
    }

    /// The groups of an app, in the order of their lanes.
    pub fn groups_of(&self, app: &AppRef) -> Vec<(GroupRef, CachedGroup)> {
        let start = GroupRef { app: app.clone(), lane: LaneName::lowest(), region: String::new() };
        self.read(|inner| {
            inner
                .groups
                .range(start..)
                .take_while(|(name, _)| name.app == *app)
                .map(|(name, group)| (name.clone(), group.clone()))
                .collect()
        })
    }

    /// A release of an app.
    pub fn release(&self, app: &AppRef, release: Digest) -> Option<CachedRelease> {
        let key = super::keys::release_key(app, release);
        self.read(|inner| inner.releases.get(&key).cloned())
    }

    /// Whether every group could be read. If not, no cell can be told what it should run: it would stop what is not in it.
    pub fn all_groups_readable(&self) -> bool {
        self.read(|inner| inner.unreadable.is_empty())
    }

    /// The group that an instance belongs to.
    pub fn group_of(&self, instance: InstanceId) -> Option<GroupRef> {
        self.read(|inner| inner.by_instance.get(&instance).cloned())
    }

    /// Cells with instances, and the memory promised to these, bytes.
    pub fn promised_memory(&self) -> HashMap<CellId, u64> {
        self.read(|inner| inner.by_cell.iter().map(|(cell, set)| (*cell, set.memory)).collect())
    }

    /// Groups with an instance on the cell.
    pub fn groups_on(&self, cell: CellId) -> BTreeSet<GroupRef> {
        self.read(|inner| {
            inner.by_cell.get(&cell).map(|set| set.instances.values().cloned().collect()).unwrap_or_default()
        })
    }

    /// The revision that last changed what a cell should run; `None` = nothing ever did.
    pub fn cell_changed(&self, cell: CellId) -> Option<Revision> {
        self.read(|inner| inner.by_cell.get(&cell).map(|set| set.changed))
    }

    /// Instances of a cell behind `after`, in order, at most `limit`, and the revision that last changed the set.
    pub fn cell_instances(
        &self,
        cell: CellId,
        after: Option<InstanceId>,
        limit: usize,
    ) -> (Revision, Vec<(InstanceId, CachedGroup, GroupRef)>) {
        use std::ops::Bound::{Excluded, Unbounded};
        self.read(|inner| {
            let Some(set) = inner.by_cell.get(&cell) else { return (inner.floor, Vec::new()) };
            let range = (after.map_or(Unbounded, Excluded), Unbounded);
            let found = set
                .instances
                .range(range)
                .take(limit)
                .filter_map(|(id, name)| Some((*id, inner.groups.get(name)?.clone(), name.clone())))
                .collect();
            (set.changed.max(inner.floor), found)
        })
    }

    /// Items of the routing table behind `after`, in order, at most `limit`.
    pub fn routing_items(&self, after: Option<&ItemKey>, limit: usize) -> Vec<(ItemKey, Arc<Item>)> {
        self.read(|inner| inner.routing.page(after, limit))
    }

    /// Replaces everything by what was listed; `revision` is that of the first page.
    pub fn load(&self, records: Vec<Record>, revision: Revision) -> CacheStep {
        let mut fresh = Inner { floor: revision, ..Inner::default() };
        let mut step = CacheStep { from: Revision(0), to: revision, ..CacheStep::default() };
        let mut touched = BTreeSet::new();
        for record in records {
            step.keys.push(record.key.clone());
            let key = record.key.clone();
            fresh.apply(&key, Some(Arc::new(record)), revision, &mut touched);
        }
        fresh.refresh_routing(&touched);
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            *inner = fresh;
        }
        self.revision.send_replace(revision);
        step
    }

    /// Applies changes in the order of the feed.
    pub fn apply(&self, changes: Vec<Change>) -> CacheStep {
        let from = self.revision();
        let mut step = CacheStep { from, to: from, ..CacheStep::default() };
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let mut touched = BTreeSet::new();
            for change in changes {
                step.to = step.to.max(change.revision);
                let record = change.record.map(Arc::new);
                if inner.apply(&change.key, record, change.revision, &mut touched) {
                    step.keys.push(change.key);
                }
            }
            step.items = inner.refresh_routing(&touched);
        }
        let to = step.to;
        self.revision.send_if_modified(|revision| {
            let newer = to > *revision;
            *revision = to.max(*revision);
            newer
        });
        step
    }
}

impl Inner {
    /// Applies one change; `false` if it is older than what is here. `touched` collects routing items to look at.
    fn apply(
        &mut self,
        key: &Key,
        record: Option<Arc<Record>>,
        revision: Revision,
        touched: &mut BTreeSet<ItemKey>,
    ) -> bool {
        let present = self.records.get(key).map(|record| record.revision);
        let incoming = record.as_ref().map_or(revision, |record| record.revision);
        if present.is_some_and(|present| present > incoming || (record.is_some() && present == incoming)) {
            return false;
        }
        if record.is_none() && present.is_none() {
            return false;
        }
        touched.extend(RoutingView::touched_by(key));
        match &record {
            Some(record) => self.records.insert(key.clone(), record.clone()),
            None => self.records.remove(key),
        };
        match key.kind {
            Kind::App => self.apply_app(key, record),
            Kind::Group => self.apply_group(key, record, revision),
            Kind::Release => match record.and_then(typed::<ReleaseSpec>) {
                Some(release) => drop(self.releases.insert(key.clone(), release)),
                None => drop(self.releases.remove(key)),
            },
            _ => {}
        }
        true
    }

    fn apply_app(&mut self, key: &Key, record: Option<Arc<Record>>) {
        let Some(app) = app_of(key) else { return };
        match record.and_then(typed::<AppSpec>) {
            Some(typed) => drop(self.apps.insert(app, typed)),
            None => drop(self.apps.remove(&app)),
        }
    }

    fn apply_group(&mut self, key: &Key, record: Option<Arc<Record>>, revision: Revision) {
        let Some(name) = GroupRef::of_key(key) else { return };
        self.unreadable.remove(&name);
        if let Some(old) = self.groups.remove(&name) {
            for assignment in &old.status.assignments {
                self.by_instance.remove(&assignment.instance);
                let set = self.by_cell.entry(assignment.cell).or_default();
                set.changed = revision.max(set.changed);
                if set.instances.remove(&assignment.instance).is_some() {
                    let memory = towpath_plan::rollout::memory_of(&old.status, &assignment.version);
                    set.memory = set.memory.saturating_sub(memory);
                }
            }
        }
        let Some(record) = record else { return };
        let revision = record.revision;
        let Some(new) = typed_with_status(record) else {
            self.unreadable.insert(name);
            return;
        };
        for assignment in &new.status.assignments {
            self.by_instance.insert(assignment.instance, name.clone());
            let set = self.by_cell.entry(assignment.cell).or_default();
            set.changed = revision.max(set.changed);
            set.instances.insert(assignment.instance, name.clone());
            set.memory += towpath_plan::rollout::memory_of(&new.status, &assignment.version);
        }
        self.groups.insert(name, new);
    }

    fn refresh_routing(&mut self, touched: &BTreeSet<ItemKey>) -> Vec<(ItemKey, Option<Arc<Item>>)> {
        let mut routing = std::mem::take(&mut self.routing);
        let changed = touched
            .iter()
            .filter_map(|key| {
                let item = super::routing_view::build_item(key, &self.records, &self.apps, &self.groups);
                routing.set(key, item).map(|item| (key.clone(), item))
            })
            .collect();
        self.routing = routing;
        changed
    }
}

/// The app that a key names.
fn app_of(key: &Key) -> Option<AppRef> {
    let (Some(org), Some(space)) = (&key.org, &key.space) else { return None };
    let app = key.name.parse().ok()?;
    Some(AppRef { org: org.clone(), space: space.clone(), app })
}

fn typed<S: serde::de::DeserializeOwned>(record: Arc<Record>) -> Option<Arc<Typed<S>>> {
    match record.spec() {
        Ok(spec) => Some(Arc::new(Typed { record, spec, status: () })),
        Err(error) => {
            tracing::error!(key = ?record.key, %error, "a stored spec is not readable; it is left out");
            None
        }
    }
}

fn typed_with_status(record: Arc<Record>) -> Option<CachedGroup> {
    match (record.spec(), record.status()) {
        (Ok(spec), Ok(status)) => Some(Arc::new(Typed { record, spec, status })),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(key = ?record.key, %error, "a stored group is not readable; it is left out");
            None
        }
    }
}
