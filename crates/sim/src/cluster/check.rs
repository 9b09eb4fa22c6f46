//! What has to be true.
//!
//! Always (noticed where it happens): an instance runs on one cell at most; no cell obeys an older epoch or set than
//! before; no write, heartbeat or epoch of an evicted manager takes effect; of those who believe that they own a group,
//! one decides upon what is there; no request is done twice; each client finds what it was told is done; revisions rise by
//! one; no manager breaks; no write is refused that had to be possible. After the storm, within the calm: every group has exactly the wanted number of instances, of the
//! wanted release, ready, each on the cell that its status names; no cell runs anything else; every gateway has exactly
//! these endpoints and the newest table; one owner for each group, and all managers agree on it. And at the end the
//! store holds the last write that each client was told is done.

use super::Cluster;
use super::clients::Wanted;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;
use towpath_manager::core::keys::GroupRef;
use towpath_store::Store;
use towpath_types::InstanceId;
use towpath_types::spec::{GroupSpec, GroupStatus};
use towpath_wire::cell::InstanceState;

/// Waits until all is as wanted; seconds that it took.
pub(super) async fn settle(cluster: &Cluster, wanted: &Wanted, most: Duration) -> Result<f64, String> {
    let began = Instant::now();
    let mut before = String::new();
    loop {
        match is_settled(cluster, wanted).await {
            Ok(()) => return Ok(began.elapsed().as_secs_f64()),
            Err(why) if began.elapsed() >= most => {
                return Err(format!("after {} s of calm: {why}", most.as_secs()));
            }
            Err(why) => {
                if why != before {
                    cluster.world.note(format_args!("not yet: {why}"));
                    before = why;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

/// The store holds what clients were told.
pub(super) async fn lose_nothing(cluster: &Cluster, wanted: &Wanted) -> Result<(), String> {
    for (group, told) in &wanted.groups {
        let (stored, _) = read(cluster, group).await?;
        if stored != *told {
            return Err(format!("{group:?} was told {told:?} and has {stored:?}"));
        }
    }
    Ok(())
}

async fn read(cluster: &Cluster, group: &GroupRef) -> Result<(GroupSpec, GroupStatus), String> {
    let record = cluster.store.get(&group.key()).await.map_err(|error| error.to_string())?;
    let record = record.ok_or_else(|| format!("{group:?} is gone"))?;
    let spec = serde_json::from_value(record.spec).map_err(|error| error.to_string())?;
    let status = match record.status {
        serde_json::Value::Object(map) if map.is_empty() => GroupStatus::default(),
        status => serde_json::from_value(status).map_err(|error| error.to_string())?,
    };
    Ok((spec, status))
}

async fn is_settled(cluster: &Cluster, wanted: &Wanted) -> Result<(), String> {
    let runs: BTreeMap<_, BTreeMap<InstanceId, InstanceState>> =
        cluster.cells.iter().map(|cell| (cell.id, cell.lives())).collect();
    let mut assigned = BTreeSet::new();
    for (group, spec) in &wanted.groups {
        let (_, status) = read(cluster, group).await?;
        let count = if spec.stopped { 0 } else { spec.count };
        let name = &group.app.app;
        if status.assignments.len() != count as usize {
            return Err(format!(
                "{name} has {} instances instead of {count}: {:?} {:?}",
                status.assignments.len(),
                status.phase,
                status.message
            ));
        }
        for assignment in &status.assignments {
            assigned.insert(assignment.instance);
            if assignment.version.release != spec.release {
                return Err(format!("{name} still has an instance of {}", assignment.version.release));
            }
            let life = runs.get(&assignment.cell).and_then(|cell| cell.get(&assignment.instance));
            if life != Some(&InstanceState::Ready) {
                let (instance, cell) = (assignment.instance, assignment.cell);
                return Err(format!("{instance} of {name} is {life:?} on {cell}"));
            }
        }
    }
    let running: BTreeSet<InstanceId> = runs.values().flat_map(BTreeMap::keys).copied().collect();
    if let Some(orphan) = running.difference(&assigned).next() {
        return Err(format!("{orphan} runs and is nobody's"));
    }
    is_served(cluster, &assigned).await?;
    is_owned(cluster, wanted)
}

async fn is_served(cluster: &Cluster, assigned: &BTreeSet<InstanceId>) -> Result<(), String> {
    let newest = cluster.store.revision().await.map_err(|error| error.to_string())?;
    for gateway in &cluster.gateways {
        let name = &gateway.gate.name;
        let endpoints = gateway.endpoints();
        if !endpoints.iter().eq(assigned) {
            return Err(format!("{name} has {} endpoints instead of {}", endpoints.len(), assigned.len()));
        }
        if gateway.revision() < newest {
            return Err(format!("{name} is at {} instead of {newest}", gateway.revision()));
        }
    }
    let manager = cluster.managers.iter().find_map(|manager| manager.core());
    let table = manager.ok_or("no manager has started")?.cache.routing_items(None, usize::MAX);
    for gateway in &cluster.gateways {
        let items = gateway.items();
        let wrong = table.iter().find(|(key, item)| items.get(key) != Some(&**item));
        if let Some((key, _)) = wrong {
            return Err(format!("{} has another {key} than there is", gateway.gate.name));
        }
        if items.len() != table.len() {
            return Err(format!(
                "{} has {} items instead of {}",
                gateway.gate.name,
                items.len(),
                table.len()
            ));
        }
    }
    Ok(())
}

fn is_owned(cluster: &Cluster, wanted: &Wanted) -> Result<(), String> {
    let cores: Option<Vec<_>> = cluster.managers.iter().map(|manager| manager.core()).collect();
    let cores = cores.ok_or("a manager has not started")?;
    for group in wanted.groups.keys() {
        let resource = group.to_string();
        let owners = cores.iter().filter(|core| core.ownership.is_mine(&resource)).count();
        if owners != 1 {
            return Err(format!("{resource} has {owners} owners"));
        }
    }
    Ok(())
}
