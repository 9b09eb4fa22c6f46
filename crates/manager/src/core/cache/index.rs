//! The maps behind the cache, and how one change goes into all of them.

use super::{CachedApp, CachedGroup, CachedRelease, Typed};
use crate::core::keys::GroupRef;
use crate::core::routing_view::{RoutingView, build_item};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use towpath_plan::rollout::{memory_of, stays};
use towpath_types::cell::CellSpec;
use towpath_types::identity::SessionSpec;
use towpath_types::resource::Key;
use towpath_types::spec::{GroupStatus, ReleaseSpec, TokenSpec};
use towpath_types::{AppRef, CellId, Digest, InstanceId, Kind, LaneName, Record, Revision, SpaceRef};
use towpath_wire::gateway::{Item, ItemKey};

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) records: BTreeMap<Key, Arc<Record>>,
    pub(super) apps: BTreeMap<AppRef, LazyApp>,
    pub(super) groups: BTreeMap<GroupRef, CachedGroup>,
    pub(super) releases: HashMap<Key, CachedRelease>,
    pub(super) by_cell: HashMap<CellId, CellSet>,
    pub(super) by_instance: HashMap<InstanceId, Arc<GroupRef>>,
    /// Groups per lane, base lanes left out.
    pub(super) by_lane: HashMap<(SpaceRef, LaneName), BTreeSet<GroupRef>>,
    /// Tokens by their hash.
    pub(super) tokens: HashMap<Digest, Key>,
    /// Memberships by the user's name.
    pub(super) members: HashMap<String, BTreeSet<Key>>,
    /// Sessions by the user's name.
    pub(super) sessions: HashMap<String, BTreeSet<Key>>,
    /// What is wanted of cells.
    pub(super) cells: BTreeMap<CellId, CellSpec>,
    pub(super) routing: RoutingView,
    /// Items that may have changed since the table was brought up to date.
    pub(super) stale: BTreeSet<ItemKey>,
    /// Groups whose record cannot be read, for example since a newer version wrote it.
    pub(super) unreadable: BTreeSet<GroupRef>,
    /// Revision at which the cache was loaded whole.
    pub(super) floor: Revision,
    /// Cells of which something else is wanted, or promised, since [`Cache::take_changed_cells`](super::Cache) was asked last.
    pub(super) changed_cells: BTreeSet<CellId>,
}

/// An app, read when it is asked for first: most of them are another manager's business.
#[derive(Debug)]
pub(in crate::core) struct LazyApp {
    record: Arc<Record>,
    typed: OnceLock<Option<CachedApp>>,
}

impl LazyApp {
    /// The app; `None` = it cannot be read.
    pub(in crate::core) fn read(&self) -> Option<&CachedApp> {
        self.typed.get_or_init(|| typed(self.record.clone())).as_ref()
    }
}

/// An instance's place in the cache.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    pub(super) group: Arc<GroupRef>,
    /// Where its assignment is in the group's status.
    pub(super) at: usize,
}

/// What one cell has.
#[derive(Debug, Default)]
pub(super) struct CellSet {
    pub(super) instances: BTreeMap<InstanceId, Placed>,
    /// Last revision that changed it.
    pub(super) changed: Revision,
    /// Memory promised to its instances, bytes.
    pub(super) memory: u64,
    /// The part of it that is promised to instances which are to stay.
    pub(super) staying: u64,
}

impl CellSet {
    /// The groups that are here.
    pub(super) fn groups(&self) -> BTreeSet<&GroupRef> {
        self.instances.values().map(|placed| &*placed.group).collect()
    }
}

impl Index {
    /// Applies one change; `false` if it is older than what is here. `touched` collects routing items to look at.
    pub(super) fn apply(
        &mut self,
        key: &Key,
        record: Option<Record>,
        revision: Revision,
        touched: &mut BTreeSet<ItemKey>,
    ) -> bool {
        if key.kind == Kind::Audit {
            return false;
        }
        let present = self.records.get(key).map(|record| record.revision);
        let incoming = record.as_ref().map_or(revision, |record| record.revision);
        if present.is_some_and(|present| present > incoming || (record.is_some() && present == incoming)) {
            return false;
        }
        if record.is_none() && present.is_none() {
            return false;
        }
        touched.extend(RoutingView::touched_by(key));
        let (record, group) = match record {
            Some(record) if key.kind == Kind::Group => take_group(record),
            record => (record.map(Arc::new), None),
        };
        let before = match &record {
            Some(record) => self.records.insert(key.clone(), record.clone()),
            None => self.records.remove(key),
        };
        match key.kind {
            Kind::App => self.apply_app(key, record),
            Kind::Group => self.apply_group(key, record.is_some(), group, revision),
            Kind::Release => match record.and_then(typed::<ReleaseSpec>) {
                Some(release) => drop(self.releases.insert(key.clone(), release)),
                None => drop(self.releases.remove(key)),
            },
            Kind::Cell => self.apply_cell(key, record),
            Kind::Member => file_under(&mut self.members, &key.name, key, record.is_some()),
            Kind::Session => self.apply_session(key, before.as_deref(), record.as_deref()),
            Kind::Token => self.apply_token(key, before.as_deref(), record.as_deref()),
            _ => {}
        }
        true
    }

    fn apply_app(&mut self, key: &Key, record: Option<Arc<Record>>) {
        let Some(app) = app_of(key) else { return };
        match record {
            Some(record) => drop(self.apps.insert(app, LazyApp { record, typed: OnceLock::new() })),
            None => drop(self.apps.remove(&app)),
        }
    }

    fn apply_session(&mut self, key: &Key, before: Option<&Record>, now: Option<&Record>) {
        for (record, there) in [(before, false), (now, true)] {
            if let Some(session) = record.and_then(|record| record.spec::<SessionSpec>().ok()) {
                file_under(&mut self.sessions, session.user.as_str(), key, there);
            }
        }
    }

    fn apply_token(&mut self, key: &Key, before: Option<&Record>, now: Option<&Record>) {
        let hash = |record: &Record| record.spec::<TokenSpec>().ok().map(|spec| spec.hash);
        if let Some(hash) = before.and_then(hash)
            && self.tokens.get(&hash) == Some(key)
        {
            self.tokens.remove(&hash);
        }
        if let Some(hash) = now.and_then(hash) {
            self.tokens.insert(hash, key.clone());
        }
    }

    fn apply_cell(&mut self, key: &Key, record: Option<Arc<Record>>) {
        let Ok(cell) = key.name.parse::<CellId>() else { return };
        self.changed_cells.insert(cell);
        match record.and_then(typed::<CellSpec>) {
            Some(typed) => drop(self.cells.insert(cell, typed.spec.clone())),
            None => drop(self.cells.remove(&cell)),
        }
    }

    /// Notes in which lane a group is, or no longer is.
    fn note_lane(&mut self, name: &GroupRef, there: bool) {
        if name.lane.is_base() {
            return;
        }
        let groups = self.by_lane.entry((name.app.space_ref(), name.lane.clone())).or_default();
        if there {
            groups.insert(name.clone());
        } else {
            groups.remove(name);
        }
    }

    fn apply_group(&mut self, key: &Key, there: bool, group: Option<CachedGroup>, revision: Revision) {
        let Some(name) = GroupRef::of_key(key) else { return };
        self.unreadable.remove(&name);
        if let Some(old) = self.groups.remove(&name) {
            for assignment in &old.status.assignments {
                self.by_instance.remove(&assignment.instance);
                self.changed_cells.insert(assignment.cell);
                let set = self.by_cell.entry(assignment.cell).or_default();
                set.changed = revision.max(set.changed);
                if set.instances.remove(&assignment.instance).is_some() {
                    let memory = memory_of(&old.status, &assignment.version);
                    set.memory = set.memory.saturating_sub(memory);
                    if stays(&old.status, assignment) {
                        set.staying = set.staying.saturating_sub(memory);
                    }
                }
            }
        }
        self.note_lane(&name, there);
        let Some(new) = group else {
            if there {
                self.unreadable.insert(name);
            }
            return;
        };
        let revision = new.record.revision;
        let shared = Arc::new(name.clone());
        for (at, assignment) in new.status.assignments.iter().enumerate() {
            self.by_instance.insert(assignment.instance, shared.clone());
            self.changed_cells.insert(assignment.cell);
            let set = self.by_cell.entry(assignment.cell).or_default();
            set.changed = revision.max(set.changed);
            set.instances.insert(assignment.instance, Placed { group: shared.clone(), at });
            let memory = memory_of(&new.status, &assignment.version);
            set.memory += memory;
            if stays(&new.status, assignment) {
                set.staying += memory;
            }
        }
        self.groups.insert(name, new);
    }

    /// Brings the table up to date, and says what has changed. Without `all`, what only gateways need waits until somebody asks.
    pub(super) fn refresh_routing(
        &mut self,
        touched: BTreeSet<ItemKey>,
        all: bool,
    ) -> Vec<(ItemKey, Option<Arc<Item>>)> {
        self.stale.extend(touched);
        let later = |key: &ItemKey| !all && matches!(key, ItemKey::App(_) | ItemKey::Resource { .. });
        let (stale, touched) = std::mem::take(&mut self.stale).into_iter().partition(later);
        self.stale = stale;
        self.refresh_items(&touched)
    }

    fn refresh_items(&mut self, touched: &BTreeSet<ItemKey>) -> Vec<(ItemKey, Option<Arc<Item>>)> {
        let mut routing = std::mem::take(&mut self.routing);
        let changed = touched
            .iter()
            .filter_map(|key| {
                let item = build_item(key, &self.records, &self.apps, &self.groups);
                routing.set(key, item).map(|item| (key.clone(), item))
            })
            .collect();
        self.routing = routing;
        changed
    }
}

/// Notes that something is of a user, or no longer is.
fn file_under(by_user: &mut HashMap<String, BTreeSet<Key>>, user: &str, key: &Key, there: bool) {
    if there {
        by_user.entry(user.to_owned()).or_default().insert(key.clone());
    } else if let Some(of_user) = by_user.get_mut(user) {
        of_user.remove(key);
        if of_user.is_empty() {
            by_user.remove(user);
        }
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

/// A group's record as it is kept, and the group that it holds; `None` = that cannot be read. The instances stand in the typed
/// status alone: as JSON each of them takes more than ten times as much.
fn take_group(mut record: Record) -> (Option<Arc<Record>>, Option<CachedGroup>) {
    let (spec, status) = match (record.spec(), record.status::<GroupStatus>()) {
        (Ok(spec), Ok(status)) => (spec, status),
        (Err(error), _) | (_, Err(error)) => {
            tracing::error!(key = ?record.key, %error, "a stored group is not readable; it is left out");
            return (Some(Arc::new(record)), None);
        }
    };
    if let Some(assignments) = record.status.get_mut("assignments") {
        *assignments = serde_json::Value::Array(Vec::new());
    }
    let record = Arc::new(record);
    (Some(record.clone()), Some(Arc::new(Typed { record, spec, status })))
}
