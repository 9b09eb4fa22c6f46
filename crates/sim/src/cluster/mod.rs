//! Whole clusters in virtual time: the real managers on the real rules of store and bus, with cells and gateways that
//! only talk, under seeded faults. A seed decides everything that happens, so a run that fails can be looked at as often
//! as needed.
//!
//! A run has a storm (kills, pauses, partitions, lost, doubled and late messages, stores that fail or keep their answer,
//! clocks that are off, machines that die) while clients write, and a calm in which everything has to become as it is
//! wanted. The invariants are listed in [`check`](self).

mod audit;
mod cell;
mod check;
mod clients;
mod disk;
mod entropy;
mod gateway;
mod link;
mod manager;
mod sabotage;
mod storm;
mod trace;
mod world;
mod zone;

use audit::Audit;
use cell::{Registry, SimCell};
use gateway::SimGateway;
use manager::SimManager;
pub use sabotage::Sabotage;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use towpath_bus::MemoryBus;
use towpath_store::MemoryStore;
use towpath_types::{CellId, Place};
use world::{CALM, World};
pub use zone::Loss;

/// When the simulated store's clock begins, milliseconds since 1970.
const BEGIN_MS: u64 = 1_800_000_000_000;

/// How large and how long.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Managers.
    pub managers: u64,
    /// Cells, spread over three zones.
    pub cells: u64,
    /// Gateways.
    pub gateways: u64,
    /// Apps with one group each.
    pub apps: u64,
    /// Virtual seconds of storm.
    pub storm_s: u64,
    /// Most virtual seconds of calm after which everything has to be as wanted.
    pub calm_s: u64,
    /// A rule to break on purpose: for tests of the simulator itself.
    pub sabotage: Option<Sabotage>,
}

impl Default for Scale {
    fn default() -> Self {
        Self { managers: 3, cells: 6, gateways: 2, apps: 8, storm_s: 120, calm_s: 180, sabotage: None }
    }
}

/// What a run was like.
#[derive(Debug)]
pub struct Report {
    /// Hash and number of the noted events: equal for equal runs.
    pub digest: String,
    /// Writes that were acknowledged to clients.
    pub writes: u64,
    /// Faults that were made.
    pub faults: u64,
    /// Virtual seconds until all was as wanted after the storm.
    pub settled_s: f64,
    /// What happened last.
    pub tail: Vec<String>,
}

/// A run in which something was not as it has to be.
#[derive(Debug)]
pub struct Broken {
    /// The invariant, and what was seen.
    pub what: String,
    /// What happened last.
    pub tail: Vec<String>,
}

/// Runs one cluster. A process may call this once: see [`entropy`](self).
pub fn run(seed: u64, scale: &Scale, directory: &Path) -> Result<Report, Broken> {
    in_virtual_time(seed, || Cluster::play(seed, scale, directory))
}

/// Runs one cluster that loses a third of its cells at one moment. A process may call this once.
pub fn lose_zone(seed: u64, directory: &Path) -> Result<Loss, Broken> {
    in_virtual_time(seed, || zone::play(seed, directory))
}

fn in_virtual_time<T, F>(seed: u64, play: impl FnOnce() -> F + Send) -> Result<T, Broken>
where
    T: Send,
    F: Future<Output = Result<T, Broken>>,
{
    let alone = |error: std::io::Error| Broken { what: error.to_string(), tail: Vec::new() };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("simulation".into()).stack_size(16 << 20);
        let running = thread.spawn_scoped(scope, || {
            entropy::seed(seed);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .map_err(alone)?;
            let ended = runtime.block_on(play());
            runtime.shutdown_background();
            ended
        });
        running.map_err(alone)?.join().unwrap_or_else(|_| {
            Err(Broken { what: "the simulation panicked; see above".into(), tail: Vec::new() })
        })
    })
}

/// Plays until the end, or until an invariant does not hold.
async fn watched<T>(world: &World, played: impl Future<Output = Result<T, String>>) -> Result<T, Broken> {
    let mut broken = world.broken();
    let ended = tokio::select! {
        biased;
        _ = broken.wait_for(Option::is_some) => Err(String::new()),
        ended = played => ended,
    };
    let first = world.broken().borrow().clone();
    match (ended, first) {
        (Ok(played), None) => Ok(played),
        (Err(what), None) | (_, Some(what)) => Err(Broken { what, tail: world.tail() }),
    }
}

/// Everything that runs.
struct Cluster {
    world: Arc<World>,
    store: Arc<MemoryStore>,
    bus: MemoryBus,
    registry: Registry,
    managers: Vec<SimManager>,
    cells: Vec<SimCell>,
    gateways: Vec<SimGateway>,
    /// Starts of cells so far.
    incarnations: u64,
}

impl Cluster {
    async fn play(seed: u64, scale: &Scale, directory: &Path) -> Result<Report, Broken> {
        let world = World::new(seed, scale.sabotage);
        let played = async {
            let mut cluster = Self::start(&world, scale, directory);
            let clients = clients::Clients::start(&cluster, scale.apps).await;
            let faults = storm::blow(&mut cluster, Duration::from_secs(scale.storm_s)).await;
            let mut wanted = clients.stop().await;
            check::lose_nothing(&cluster, &wanted).await?;
            cluster.calm_down();
            wanted.restart_all(&cluster).await;
            let settled_s = check::settle(&cluster, &wanted, Duration::from_secs(scale.calm_s)).await?;
            Ok((faults, wanted.writes, settled_s))
        };
        let (faults, writes, settled_s) = watched(&world, played).await?;
        Ok(Report { digest: world.digest(), writes, faults, settled_s, tail: world.tail() })
    }

    fn start(world: &Arc<World>, scale: &Scale, directory: &Path) -> Self {
        let mut cluster = Self {
            world: world.clone(),
            store: Arc::new(MemoryStore::new(BEGIN_MS, 2_000)),
            bus: MemoryBus::new(),
            registry: Registry::default(),
            managers: Vec::new(),
            cells: Vec::new(),
            gateways: Vec::new(),
            incarnations: 0,
        };
        let audit = Audit::new(world, &cluster.store, scale.sabotage);
        for n in 0..scale.managers {
            let manager = SimManager::new(world, &audit, &cluster.bus, n, &directory.join(n.to_string()));
            manager.start();
            cluster.managers.push(manager);
        }
        for n in 0..scale.cells {
            let place = Place { zone: format!("zone-{}", n % 3), ..Place::default() };
            let cell = cluster.boot(CellId::mint(1, world.bytes()), place);
            cluster.cells.push(cell);
        }
        for _ in 0..scale.gateways {
            cluster.gateways.push(SimGateway::start(world, &cluster.bus));
        }
        cluster
    }

    /// Boots a machine with an empty cell on it.
    fn boot(&mut self, id: CellId, place: Place) -> SimCell {
        self.incarnations += 1;
        SimCell::start(&self.world, &self.bus, &self.registry, id, self.incarnations, place)
    }

    /// Ends all faults.
    fn calm_down(&mut self) {
        self.world.note(format_args!("calm"));
        self.world.set_weather(CALM);
        for gate in
            self.managers.iter().map(SimManager::gate).chain(self.cells.iter().map(|c| c.gate.clone()))
        {
            gate.set_running(true);
            gate.set_store_gone(false);
            gate.set_skew(0);
            if !gate.is_dead() {
                gate.set_isolated(false);
            }
        }
        for gateway in &self.gateways {
            gateway.gate.set_running(true);
            gateway.gate.set_isolated(false);
        }
        for manager in &self.managers {
            if manager.gate().is_dead() {
                manager.start();
            }
        }
        for at in 0..self.cells.len() {
            self.boot_again(at);
        }
    }

    /// Boots a dead machine again.
    fn boot_again(&mut self, at: usize) {
        let Some(cell) = self.cells.get(at).filter(|cell| cell.gate.is_dead()) else { return };
        let (id, place) = (cell.id, cell.place());
        let cell = self.boot(id, place);
        if let Some(slot) = self.cells.get_mut(at) {
            *slot = cell;
        }
    }
}
