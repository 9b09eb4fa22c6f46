//! The hard state in memory, fed by the store's change feed: complete at a known revision, but for the audit log.

mod cells;
mod index;
mod reached;

use super::keys::GroupRef;
use index::Index;
pub(in crate::core) use index::LazyApp;
use reached::Reached;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;
use towpath_store::Change;
use towpath_types::resource::Key;
use towpath_types::spec::{AppSpec, GroupSpec, GroupStatus, ReleaseSpec};
use towpath_types::{
    AppRef, CellId, Digest, InstanceId, Kind, LaneName, OperationId, OrgName, Record, Revision, SpaceName,
    UserName,
};
use towpath_wire::gateway::{Item, ItemKey};

/// A resource with its spec and status typed.
#[derive(Debug, Clone, PartialEq)]
pub struct Typed<S, T = ()> {
    /// As stored; of a group's status all but the instances, which are in `status` alone.
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

/// An instance that a cell should run.
#[derive(Debug, Clone)]
pub struct CellInstance {
    /// Which.
    pub instance: InstanceId,
    /// Its group.
    pub group: CachedGroup,
    /// The group's name.
    pub name: Arc<GroupRef>,
    /// Where its assignment is in the group's status.
    pub at: usize,
}

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
    /// Not all of these were made, since another manager tells gateways.
    pub partial: bool,
}

/// The cache. All methods are short and take no await.
#[derive(Debug)]
pub struct Cache {
    inner: RwLock<Index>,
    revision: watch::Sender<Revision>,
    reached: Reached,
}

impl Default for Cache {
    fn default() -> Self {
        let revision = watch::Sender::new(Revision(0));
        Self { inner: RwLock::default(), revision, reached: Reached::default() }
    }
}

impl Cache {
    fn read<R>(&self, f: impl FnOnce(&Index) -> R) -> R {
        f(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Complete up to this revision (single records may be newer). 0 = not loaded yet.
    pub fn revision(&self) -> Revision {
        *self.revision.borrow()
    }

    /// Resolves when it is complete up to this revision.
    pub async fn wait(&self, revision: Revision) {
        self.reached.wait(revision).await;
    }

    /// Follows [`Cache::revision`].
    pub fn watch(&self) -> watch::Receiver<Revision> {
        self.revision.subscribe()
    }

    /// A record. Of a group's status it holds all but the instances.
    pub fn get(&self, key: &Key) -> Option<Arc<Record>> {
        self.read(|inner| inner.records.get(key).cloned())
    }

    /// The token with this hash.
    pub fn token(&self, hash: &Digest) -> Option<Arc<Record>> {
        self.read(|inner| inner.records.get(inner.tokens.get(hash)?).cloned())
    }

    /// The memberships of a user of this name.
    pub fn orgs_of(&self, user: &UserName) -> Vec<Arc<Record>> {
        self.read(|inner| {
            let keys = inner.members.get(user.as_str()).into_iter().flatten();
            keys.filter_map(|key| inner.records.get(key).cloned()).collect()
        })
    }

    /// The sessions of a user of this name.
    pub fn sessions_of(&self, user: &UserName) -> Vec<Arc<Record>> {
        self.read(|inner| {
            let keys = inner.sessions.get(user.as_str()).into_iter().flatten();
            keys.filter_map(|key| inner.records.get(key).cloned()).collect()
        })
    }

    /// The groups of an org.
    pub fn groups_in(&self, org: &OrgName) -> Vec<(GroupRef, CachedGroup)> {
        self.read(|inner| {
            let groups = inner.groups.iter().filter(|(name, _)| name.app.org == *org);
            groups.map(|(name, group)| (name.clone(), group.clone())).collect()
        })
    }

    /// Records of a kind, in the order of their keys, optionally of one org or space. Of groups' statuses they hold all but the
    /// instances.
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

    /// Operations with higher ids, oldest first.
    pub fn operations_after(&self, operation: OperationId) -> Vec<Arc<Record>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = super::keys::operation_key(operation);
        self.read(|inner| {
            let behind = inner.records.range((Excluded(start), Unbounded));
            behind
                .take_while(|(key, _)| key.kind == Kind::Operation)
                .map(|(_, record)| record.clone())
                .collect()
        })
    }

    /// An app.
    pub fn app(&self, app: &AppRef) -> Option<CachedApp> {
        self.read(|inner| inner.apps.get(app).and_then(|app| app.read().cloned()))
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
        self.read(|inner| inner.by_instance.get(&instance).map(|name| GroupRef::clone(name)))
    }

    /// Cells with instances, and the memory promised to these, bytes.
    pub fn promised_memory(&self) -> HashMap<CellId, u64> {
        self.read(|inner| inner.by_cell.iter().map(|(cell, set)| (*cell, set.memory)).collect())
    }

    /// Groups with an instance on the cell.
    pub fn groups_on(&self, cell: CellId) -> BTreeSet<GroupRef> {
        self.read(|inner| {
            let names = inner.by_cell.get(&cell).map(index::CellSet::groups).unwrap_or_default();
            names.into_iter().cloned().collect()
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
    ) -> (Revision, Vec<CellInstance>) {
        use std::ops::Bound::{Excluded, Unbounded};
        self.read(|inner| {
            let Some(set) = inner.by_cell.get(&cell) else { return (inner.floor, Vec::new()) };
            let range = (after.map_or(Unbounded, Excluded), Unbounded);
            let found = set.instances.range(range).take(limit).filter_map(|(instance, placed)| {
                let group = inner.groups.get(&*placed.group)?.clone();
                let (instance, name) = (*instance, placed.group.clone());
                Some(CellInstance { instance, group, name, at: placed.at })
            });
            (set.changed.max(inner.floor), found.collect())
        })
    }

    /// Items of the routing table behind `after`, in order, at most `limit`.
    pub fn routing_items(&self, after: Option<&ItemKey>, limit: usize) -> Vec<(ItemKey, Arc<Item>)> {
        if self.read(|inner| inner.stale.is_empty()) {
            return self.read(|inner| inner.routing.page(after, limit));
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        inner.refresh_routing(BTreeSet::new(), true);
        inner.routing.page(after, limit)
    }

    /// The routes of an app.
    pub fn routes_of(&self, app: &AppRef) -> Vec<Arc<Item>> {
        self.read(|inner| inner.routing.routes_of(app))
    }

    /// Replaces everything by what was listed; `revision` is that of the first page.
    pub fn load(&self, records: Vec<Record>, revision: Revision) -> CacheStep {
        let mut fresh = Index { floor: revision, ..Index::default() };
        let mut step = CacheStep { from: Revision(0), to: revision, ..CacheStep::default() };
        let mut touched = BTreeSet::new();
        for record in records {
            step.keys.push(record.key.clone());
            let key = record.key.clone();
            fresh.apply(&key, Some(record), revision, &mut touched);
        }
        fresh.refresh_routing(touched, true);
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            fresh.changed_cells.extend(inner.by_cell.keys().chain(inner.cells.keys()));
            *inner = fresh;
        }
        self.revision.send_replace(revision);
        self.reached.set(revision);
        step
    }

    /// Applies changes in the order of the feed.
    pub fn apply(&self, changes: Vec<Change>) -> CacheStep {
        self.apply_for(changes, true)
    }

    /// Applies changes in the order of the feed. Who does not tell gateways needs no items of theirs in the step.
    pub fn apply_for(&self, changes: Vec<Change>, tells: bool) -> CacheStep {
        let from = self.revision();
        let mut step = CacheStep { from, to: from, partial: !tells, ..CacheStep::default() };
        {
            let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
            let mut touched = BTreeSet::new();
            for change in changes {
                step.to = step.to.max(change.revision);
                if inner.apply(&change.key, change.record, change.revision, &mut touched) {
                    step.keys.push(change.key);
                }
            }
            step.items = inner.refresh_routing(touched, tells);
        }
        let to = step.to;
        self.revision.send_if_modified(|revision| {
            let newer = to > *revision;
            *revision = to.max(*revision);
            newer
        });
        self.reached.set(self.revision());
        step
    }
}

#[cfg(test)]
mod tests;
