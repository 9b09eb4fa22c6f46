//! What the cache knows of cells: what is wanted of them, and what was promised there.

use super::Cache;
use crate::core::keys::GroupRef;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use towpath_plan::placement::find_overpromised;
use towpath_plan::rollout::{memory_of, stays};
use towpath_types::cell::CellSpec;
use towpath_types::{CellId, InstanceId};

impl Cache {
    /// What is wanted of a cell.
    pub fn cell(&self, cell: CellId) -> CellSpec {
        self.read(|inner| inner.cells.get(&cell).cloned().unwrap_or_default())
    }

    /// Cells of which something is wanted.
    pub fn cells(&self) -> BTreeMap<CellId, CellSpec> {
        self.read(|inner| inner.cells.clone())
    }

    /// Cells of which something else is wanted, or promised, since this was called last.
    pub(crate) fn take_changed_cells(&self) -> BTreeSet<CellId> {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut inner.changed_cells)
    }

    /// What is wanted of a cell, the memory that was promised to its instances, and how many these are.
    pub(crate) fn promises_on(&self, cell: CellId) -> (CellSpec, u64, u32) {
        self.read(|inner| {
            let spec = inner.cells.get(&cell).cloned().unwrap_or_default();
            let set = inner.by_cell.get(&cell);
            let count = set.map_or(0, |set| u32::try_from(set.instances.len()).unwrap_or(u32::MAX));
            (spec, set.map_or(0, |set| set.memory), count)
        })
    }

    /// Memory promised to a cell's instances, bytes.
    pub fn promised_memory_of(&self, cell: CellId) -> u64 {
        self.read(|inner| inner.by_cell.get(&cell).map_or(0, |set| set.memory))
    }

    /// Instances per cell of the other groups in the group's lane. What is in the base lane belongs to everybody.
    pub fn lane_mates(&self, group: &GroupRef) -> BTreeMap<CellId, u32> {
        if group.lane.is_base() {
            return BTreeMap::new();
        }
        self.read(|inner| {
            let lane = (group.app.space_ref(), group.lane.clone());
            let groups = inner.by_lane.get(&lane).into_iter().flatten().filter(|other| *other != group);
            let mut mates: BTreeMap<CellId, u32> = BTreeMap::new();
            for other in groups.filter_map(|name| inner.groups.get(name)) {
                for assignment in &other.status.assignments {
                    *mates.entry(assignment.cell).or_default() += 1;
                }
            }
            mates
        })
    }

    /// Of the instances that are to stay on a cell, those that it has no memory for; empty as long as all fit.
    pub fn overpromised(&self, cell: CellId, limit_bytes: u64) -> BTreeSet<InstanceId> {
        self.read(|inner| {
            let Some(set) = inner.by_cell.get(&cell).filter(|set| set.staying > limit_bytes) else {
                return BTreeSet::new();
            };
            let mut promised = BTreeMap::new();
            for group in set.groups().into_iter().filter_map(|name| inner.groups.get(name)) {
                let here = |a: &&towpath_types::spec::Assignment| a.cell == cell && stays(&group.status, a);
                for assignment in group.status.assignments.iter().filter(here) {
                    promised.insert(assignment.instance, memory_of(&group.status, &assignment.version));
                }
            }
            find_overpromised(&promised, limit_bytes).into_iter().collect()
        })
    }
}
