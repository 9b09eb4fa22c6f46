//! Making the next version of a table out of one and some changes.

use crate::app::{About, App, AppSlot, Member, Settings, Stopped};
use crate::change::{Change, EndpointSpec, Refused, Source};
use crate::check;
use crate::endpoint::EndpointState;
use crate::hash::hash_bytes;
use crate::load::formula;
use crate::routes::{Route, Routes, route_key};
use crate::rule::RuleSpec;
use crate::rules::Rule;
use crate::source::{self, SourceEntry};
use crate::space::{self, Space, SpaceSlot};
use crate::table::{CHUNK, Inner, Table, app_hash};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use towpath_types::lane::LanePolicy;
use towpath_types::spec::RouteSpec;
use towpath_types::{AppRef, InstanceId, LaneName, SpaceRef};

/// Names of lanes of which one copy is kept to be shared; beyond that it begins anew, so that lanes of long ago are forgotten.
const LANES_KEPT: usize = 4096;

pub(crate) struct Edit<'t> {
    old: &'t Table,
    /// Copied from the old table at the first real change.
    new: Option<Inner>,
    refused: Vec<Refused>,
    now: u64,
}

impl<'t> Edit<'t> {
    pub(crate) fn new(old: &'t Table, now: u64) -> Self {
        Self { old, new: None, refused: Vec::new(), now }
    }

    pub(crate) fn finish(self) -> (Table, Vec<Refused>) {
        let table = self.new.map_or_else(|| self.old.clone(), |inner| Table(Arc::new(inner)));
        (table, self.refused)
    }

    fn inner(&self) -> &Inner {
        self.new.as_ref().unwrap_or(&self.old.0)
    }

    fn inner_mut(&mut self) -> &mut Inner {
        self.new.get_or_insert_with(|| Inner::clone(&self.old.0))
    }

    fn refuse(&mut self, key: String, why: String) {
        self.refused.push(Refused { key, why });
    }

    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::PutRoute(spec) => self.put_route(spec),
            Change::DeleteRoute(key) => self.delete_route(key),
            Change::PutRule(spec) => self.put_rule(spec),
            Change::DeleteRule(id) => self.delete_rule(id),
            Change::PutApp { app, upstream, stopped, base_stopped, lanes } => {
                let stopped = Stopped { everywhere: *stopped, in_base: *base_stopped };
                match check::none("upstream", &check::upstream(upstream)) {
                    Ok(()) => self.set_app(app, Some((upstream.clone(), stopped, lanes.clone()))),
                    Err(why) => self.refuse(format!("app {app}"), why),
                }
            }
            Change::DeleteApp(app) => self.set_app(app, None),
            Change::PutSpace { space, policy, names, local } => {
                let policy = self.usable_policy(space, policy);
                self.set_space(space, Space::new(policy, names.clone(), local.clone()));
            }
            Change::DeleteSpace(space) => {
                if self.inner().space_slots.find(space::hash(space), |slot| slot.space == *space).is_some() {
                    self.set_space(space, Space::default());
                }
            }
            Change::Endpoints { source, endpoints } => self.put_source(source, endpoints),
            Change::Stale { source, stale } => self.mark_stale(source, *stale),
            Change::DropSource(source) => self.drop_source(source),
        }
    }

    fn put_route(&mut self, spec: &RouteSpec) {
        let key = route_key(&spec.host, &spec.path);
        if let Err(why) = Routes::check(spec) {
            return self.refuse(format!("route {key}"), why);
        }
        if self.inner().routes.find_key(&key).is_some_and(|route| route.spec == *spec) {
            return;
        }
        let slot = self.take_slot(&spec.app);
        let seed = hash_bytes(3, key.as_bytes());
        let route = Arc::new(Route { spec: spec.clone(), key, slot, seed });
        self.change_app(slot, |app| app.count_route(1));
        if let Some(old) = self.inner_mut().routes.put(route) {
            self.release_route(&old);
        }
    }

    fn delete_route(&mut self, key: &str) {
        if self.inner().routes.find_key(key).is_none() {
            return;
        }
        if let Some(old) = self.inner_mut().routes.delete(key) {
            self.release_route(&old);
        }
    }

    fn release_route(&mut self, route: &Route) {
        self.change_app(route.slot, |app| app.count_route(-1));
        self.release_slot(&route.spec.app, route.slot);
    }

    fn put_rule(&mut self, spec: &RuleSpec) {
        if let Err(why) = check::none("", &check::rule(spec)) {
            return self.refuse(format!("rule {}", spec.id), why);
        }
        let old = self.inner().routes.rules().find_id(&spec.id).cloned();
        if old.as_ref().is_some_and(|rule| rule.spec == *spec) {
            return;
        }
        let slot = self.take_slot(&spec.target);
        self.change_app(slot, |app| app.count_route(1));
        if let Some(old) = old {
            self.inner_mut().routes.delete_rule(&old);
            self.release_route(&old.route);
        }
        self.inner_mut().routes.put_rule(&Arc::new(Rule::new(spec.clone(), slot)));
    }

    fn delete_rule(&mut self, id: &str) {
        let Some(old) = self.inner().routes.rules().find_id(id).cloned() else { return };
        self.inner_mut().routes.delete_rule(&old);
        self.release_route(&old.route);
    }

    fn set_app(&mut self, app: &AppRef, settings: Option<Settings>) {
        if settings.is_none() && self.inner().slot_of(app).is_none() {
            return;
        }
        let slot = self.take_slot(app);
        self.compile_app(slot, |app, about| app.set(settings, about));
        self.release_slot(app, slot);
    }

    fn put_source(&mut self, source: &Source, endpoints: &[EndpointSpec]) {
        let hash = source::hash(source);
        let old = self.inner().sources.find(hash, |entry| *entry.source == *source).cloned();
        let known: BTreeMap<InstanceId, &Member> =
            old.iter().flat_map(|old| &old.members).map(|member| (member.spec.instance, member)).collect();
        let name = old.as_ref().map_or_else(|| Arc::new(source.clone()), |old| Arc::clone(&old.source));
        let mut seen = BTreeSet::new();
        let mut changed: BTreeSet<AppRef> = BTreeSet::new();
        let mut members = Vec::with_capacity(endpoints.len());
        for spec in endpoints {
            if !seen.insert(spec.instance) {
                self.refuse(
                    format!("endpoint {}", spec.instance),
                    "its source names it twice; once is right".into(),
                );
                continue;
            }
            let before = known.get(&spec.instance).copied();
            let member = match before {
                Some(member) if member.spec.same(spec) && !member.stale => member.clone(),
                _ => {
                    changed.insert(spec.app.clone());
                    changed.extend(before.map(|member| member.spec.app.clone()));
                    self.member(&name, spec, before)
                }
            };
            self.set_load(&member.state, spec);
            members.push(member);
        }
        let gone = known.values().filter(|member| !seen.contains(&member.spec.instance));
        changed.extend(gone.map(|member| member.spec.app.clone()));
        let reported: BTreeSet<AppRef> =
            members.iter().filter(|m| !changed.contains(&m.spec.app)).map(|m| m.spec.app.clone()).collect();
        if !changed.is_empty() || old.is_none() {
            self.set_source(SourceEntry { source: name, stale: false, members }, &changed);
        }
        self.refresh_means(&reported);
    }

    fn member(&mut self, source: &Arc<Source>, spec: &EndpointSpec, before: Option<&Member>) -> Member {
        let inner = self.inner();
        let app = inner.app(&spec.app);
        let state = before
            .filter(|member| member.spec.start == spec.start)
            .map(|member| &member.state)
            .or_else(|| app.and_then(|app| app.state_of(spec.instance, spec.start)));
        let state = match state {
            Some(state) => {
                if before.is_some_and(|member| spec.healthy && !member.spec.healthy) {
                    state.start_ramp(self.now);
                }
                Arc::clone(state)
            }
            None => Arc::new(EndpointState::fresh(self.now, spec.ready_ms)),
        };
        let mut spec = spec.clone();
        spec.lane = self.intern(spec.lane);
        Member { source: Arc::clone(source), spec: Arc::new(spec), state, stale: false }
    }

    /// The table's own copy of a lane's name.
    fn intern(&mut self, lane: LaneName) -> LaneName {
        if let Some(known) = self.inner().lanes.get(&lane) {
            return known.clone();
        }
        let lanes = Arc::make_mut(&mut self.inner_mut().lanes);
        if lanes.len() >= LANES_KEPT {
            lanes.clear();
        }
        lanes.insert(lane.clone());
        lane
    }

    fn set_load(&self, state: &EndpointState, spec: &EndpointSpec) {
        let Some(load) = &spec.load else { return };
        let inner = self.inner();
        let app = inner.app(&spec.app);
        let weights = app.map(|app| app.rare.upstream.load_weights).unwrap_or_default();
        state.reported.set(self.now, formula(&weights, load));
    }

    fn refresh_means(&self, apps: &BTreeSet<AppRef>) {
        let inner = self.inner();
        for app in apps {
            for pool in inner.app(app).iter().flat_map(|app| app.pools()) {
                pool.refresh_mean(self.now);
            }
        }
    }

    fn mark_stale(&mut self, source: &Source, stale: bool) {
        let hash = source::hash(source);
        let old = self.inner().sources.find(hash, |entry| *entry.source == *source).cloned();
        let Some(old) = old.filter(|old| old.stale != stale) else { return };
        let mut entry = SourceEntry::clone(&old);
        entry.stale = stale;
        for member in &mut entry.members {
            member.stale = stale;
        }
        let changed = entry.members.iter().map(|member| member.spec.app.clone()).collect();
        self.set_source(entry, &changed);
    }

    fn drop_source(&mut self, source: &Source) {
        let hash = source::hash(source);
        let Some(old) = self.inner().sources.find(hash, |entry| *entry.source == *source).cloned() else {
            return;
        };
        let changed = old.members.iter().map(|member| member.spec.app.clone()).collect();
        self.set_source(SourceEntry { members: Vec::new(), ..SourceEntry::clone(&old) }, &changed);
        self.inner_mut().sources.remove(hash, |entry| *entry.source == *source);
    }

    /// Puts what a source says, and gives the changed apps their new members.
    fn set_source(&mut self, entry: SourceEntry, changed: &BTreeSet<AppRef>) {
        let mut by_app: BTreeMap<&AppRef, Vec<Member>> =
            changed.iter().map(|app| (app, Vec::new())).collect();
        for member in &entry.members {
            if let Some(members) = by_app.get_mut(&member.spec.app) {
                members.push(member.clone());
            }
        }
        for (app, mut members) in by_app {
            let slot = self.take_slot(app);
            self.compile_app(slot, |app, about| {
                let others = app.rare.members.iter().filter(|member| *member.source != *entry.source);
                members.extend(others.cloned());
                app.set_members(members, about);
            });
            self.release_slot(app, slot);
        }
        let name = Arc::clone(&entry.source);
        self.inner_mut().sources.put(Arc::new(entry), |other| other.source == name);
    }

    /// The policy, or the one before it when it cannot be used: the space's lanes are known all the same.
    fn usable_policy(&mut self, space: &SpaceRef, policy: &LanePolicy) -> LanePolicy {
        let Err(why) = check::none("lanes", &check::policy(policy)) else { return policy.clone() };
        self.refuse(format!("space {space}"), why);
        let inner = self.inner();
        let slot = inner.space_slots.find(space::hash(space), |slot| slot.space == *space);
        let before = slot.and_then(|slot| inner.spaces.get(slot.slot as usize));
        before.map(|space| space.policy.clone()).unwrap_or_default()
    }

    fn set_space(&mut self, space: &SpaceRef, settings: Space) {
        let slot = self.space_slot(space);
        let spaces = Arc::make_mut(&mut self.inner_mut().spaces);
        if let Some(entry) = spaces.get_mut(slot as usize) {
            *entry = Arc::new(settings);
        }
    }

    /// The slot of a space, a new one if nothing spoke of it before.
    fn space_slot(&mut self, space: &SpaceRef) -> u32 {
        if let Some(slot) = self.inner().space_slots.find(space::hash(space), |slot| slot.space == *space) {
            return slot.slot;
        }
        let inner = self.inner_mut();
        let slot = inner.spaces.len() as u32;
        let fresh = if space.is_of_upstreams() { Space::without_lanes() } else { Space::default() };
        Arc::make_mut(&mut inner.spaces).push(Arc::new(fresh));
        inner.space_slots.put(SpaceSlot { space: space.clone(), slot }, |_| false);
        slot
    }

    /// The slot of an app, a new one if nothing spoke of it before.
    fn take_slot(&mut self, app: &AppRef) -> u32 {
        if let Some(slot) = self.inner().slot_of(app) {
            return slot;
        }
        let space = self.space_slot(&app.space_ref());
        let fresh = App::unknown(app.clone(), space);
        let inner = self.inner_mut();
        let slot = if inner.free.is_empty() { None } else { Arc::make_mut(&mut inner.free).pop() };
        let slot = slot.unwrap_or_else(|| inner.new_slot());
        inner.app_slots.put(AppSlot { hash: app_hash(app), app: app.clone(), slot }, |_| false);
        self.set_slot(slot, Some(fresh));
        slot
    }

    /// Frees a slot of which nothing speaks any more.
    fn release_slot(&mut self, app: &AppRef, slot: u32) {
        let used = self
            .inner()
            .app_at(slot)
            .is_none_or(|app| app.rare.routes > 0 || app.rare.known || !app.rare.members.is_empty());
        if used {
            return;
        }
        self.set_slot(slot, None);
        let inner = self.inner_mut();
        inner.app_slots.remove(app_hash(app), |entry| entry.app == *app);
        Arc::make_mut(&mut inner.free).push(slot);
    }

    fn set_slot(&mut self, slot: u32, app: Option<App>) {
        if let Some(entry) = self.inner_mut().slot_mut(slot) {
            *entry = app;
        }
    }

    fn compile_app(&mut self, slot: u32, change: impl FnOnce(&mut App, &About<'_>)) {
        let (now, place, calm) = (self.now, self.inner().place.clone(), Arc::clone(&self.inner().calm));
        self.change_app(slot, |app| change(app, &About { place: &place, calm: &calm, slot, now }));
    }

    fn change_app(&mut self, slot: u32, change: impl FnOnce(&mut App)) {
        if let Some(Some(app)) = self.inner_mut().slot_mut(slot) {
            change(app);
        }
    }
}

impl Inner {
    fn slot_mut(&mut self, slot: u32) -> Option<&mut Option<App>> {
        let chunk = Arc::make_mut(&mut self.apps).get_mut(slot as usize / CHUNK)?;
        Arc::make_mut(chunk).get_mut(slot as usize % CHUNK)
    }

    /// A slot at the end of the list.
    fn new_slot(&mut self) -> u32 {
        let chunks = Arc::make_mut(&mut self.apps);
        if chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        let before = (chunks.len() - 1) * CHUNK;
        let Some(chunk) = chunks.last_mut().map(Arc::make_mut) else { return 0 };
        chunk.push(None);
        (before + chunk.len() - 1) as u32
    }
}
