//! The faults.

use super::Cluster;
use super::manager::SimManager;
use super::world::{Gate, Weather};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Weather in a storm, at its worst.
const STORM: Weather =
    Weather { lost: 0.1, doubled: 0.1, delay_ms: 300, failed: 0.05, uncertain: 0.05, store_ms: 100 };

/// Makes faults for so long; returns how many.
pub(super) async fn blow(cluster: &mut Cluster, how_long: Duration) -> u64 {
    let end = Instant::now() + how_long;
    let mut faults = 0;
    while Instant::now() < end {
        let pause = cluster.world.between(200, 4_000);
        tokio::time::sleep(Duration::from_millis(pause)).await;
        strike(cluster);
        faults += 1;
    }
    faults
}

fn strike(cluster: &mut Cluster) {
    match cluster.world.up_to(10) {
        0 => kill_manager(cluster),
        1 => for_a_while(cluster, 15_000, "is paused", any_manager, |gate, on| gate.set_running(!on)),
        2 => for_a_while(cluster, 12_000, "is cut off", any_manager, Gate::set_isolated),
        3 => for_a_while(cluster, 10_000, "has no store", any_manager, Gate::set_store_gone),
        4 => {
            let minutes = i64::try_from(cluster.world.up_to(20)).unwrap_or_default() - 10;
            for_a_while(cluster, 30_000, "has a wrong clock", any_manager, move |gate, on| {
                gate.set_skew(if on { minutes * 60_000 } else { 0 });
            });
        }
        5 => for_a_while(cluster, 40_000, "is cut off", any_cell, Gate::set_isolated),
        6 => for_a_while(cluster, 30_000, "is paused", any_cell, |gate, on| gate.set_running(!on)),
        7 => for_a_while(cluster, 10_000, "is cut off", any_gateway, Gate::set_isolated),
        8 => swap_cell(cluster),
        9 => {
            let nth = pick(cluster, cluster.cells.len());
            if let Some(cell) = cluster.cells.get(nth) {
                cell.crash_one();
            }
        }
        _ => change_weather(cluster),
    }
}

fn pick(cluster: &Cluster, of: usize) -> usize {
    usize::try_from(cluster.world.up_to(of.saturating_sub(1) as u64)).unwrap_or_default()
}

fn any_manager(cluster: &Cluster) -> Option<Arc<Gate>> {
    cluster.managers.get(pick(cluster, cluster.managers.len())).map(SimManager::gate)
}

fn any_cell(cluster: &Cluster) -> Option<Arc<Gate>> {
    cluster.cells.get(pick(cluster, cluster.cells.len())).map(|cell| cell.gate.clone())
}

fn any_gateway(cluster: &Cluster) -> Option<Arc<Gate>> {
    cluster.gateways.get(pick(cluster, cluster.gateways.len())).map(|gateway| gateway.gate.clone())
}

/// Does something to a process and undoes it later.
fn for_a_while(
    cluster: &Cluster,
    most_ms: u64,
    what: &str,
    whom: fn(&Cluster) -> Option<Arc<Gate>>,
    fault: impl Fn(&Gate, bool) + Send + 'static,
) {
    let Some(gate) = whom(cluster).filter(|gate| !gate.is_dead()) else { return };
    let pause = cluster.world.between(500, most_ms);
    cluster.world.note(format_args!("{} {what} for {pause} ms", gate.name));
    fault(&gate, true);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        if !gate.is_dead() {
            fault(&gate, false);
        }
    });
}

/// Kills a manager, or starts one that was killed. One of them lives at any time.
fn kill_manager(cluster: &Cluster) {
    let Some(manager) = cluster.managers.get(pick(cluster, cluster.managers.len())) else { return };
    let name = manager.gate().name.clone();
    let alive = cluster.managers.iter().filter(|manager| !manager.gate().is_dead()).count();
    if manager.gate().is_dead() {
        cluster.world.note(format_args!("{name} starts again"));
        manager.start();
    } else if alive > 1 {
        cluster.world.note(format_args!("{name} is killed"));
        manager.kill();
    }
}

/// Pulls the plug of a machine, or boots one that is dead. Half of them run at any time.
fn swap_cell(cluster: &mut Cluster) {
    let nth = pick(cluster, cluster.cells.len());
    let dead = cluster.cells.iter().filter(|cell| cell.gate.is_dead()).count();
    let Some(cell) = cluster.cells.get(nth) else { return };
    let name = cell.gate.name.clone();
    if cell.gate.is_dead() {
        cluster.world.note(format_args!("{name} boots"));
        cluster.boot_again(nth);
    } else if dead * 2 < cluster.cells.len() {
        cluster.world.note(format_args!("{name} loses its power"));
        cell.kill();
    }
}

fn change_weather(cluster: &Cluster) {
    let world = &cluster.world;
    let part = |most: f64| most * f64::from(u32::try_from(world.up_to(100)).unwrap_or_default()) / 100.0;
    let weather = Weather {
        lost: part(STORM.lost),
        doubled: part(STORM.doubled),
        delay_ms: world.between(1, STORM.delay_ms),
        failed: part(STORM.failed),
        uncertain: part(STORM.uncertain),
        store_ms: world.between(1, STORM.store_ms),
    };
    world.note(format_args!("the weather is {weather:?}"));
    world.set_weather(weather);
}
