//! A real manager that can be killed and paused.

use super::audit::Audit;
use super::disk::Disk;
use super::link::Link;
use super::world::{Gate, World};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use towpath_bus::MemoryBus;
use towpath_manager::core::Core;
use towpath_manager::{Manager, ManagerSettings};
use towpath_types::ManagerId;

/// A place where a manager runs, and the process that does at the moment. Clones are the same place.
#[derive(Clone)]
pub(super) struct SimManager {
    world: Arc<World>,
    store: Arc<Audit>,
    bus: MemoryBus,
    directory: PathBuf,
    name: String,
    now: Arc<Mutex<Process>>,
}

/// One process.
struct Process {
    gate: Arc<Gate>,
    core: Option<Arc<Core>>,
}

impl SimManager {
    pub(super) fn new(
        world: &Arc<World>,
        store: &Arc<Audit>,
        bus: &MemoryBus,
        n: u64,
        directory: &Path,
    ) -> Self {
        let id = ManagerId::mint(1, world.bytes());
        let gate = Gate::new(format!("manager {n}"));
        // An id of its own making would come from the machine's clock.
        if let Err(error) = std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(directory.join("manager-id"), id.to_string()))
        {
            world.breaks(format!("{}: {error}", directory.display()));
        }
        Self {
            world: world.clone(),
            store: store.clone(),
            bus: bus.clone(),
            directory: directory.to_owned(),
            name: format!("manager {n}"),
            now: Arc::new(Mutex::new(Process { gate, core: None })),
        }
    }

    fn process(&self) -> std::sync::MutexGuard<'_, Process> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gate(&self) -> Arc<Gate> {
        self.process().gate.clone()
    }

    /// What clients talk to, once it has started.
    pub(super) fn core(&self) -> Option<Arc<Core>> {
        self.process().core.clone()
    }

    /// Starts a new process; the one before has to be dead.
    pub(super) fn start(&self) {
        let gate = Gate::new(&self.name);
        *self.process() = Process { gate: gate.clone(), core: None };
        let mut settings = ManagerSettings::new(&self.directory);
        settings.listen = (std::net::Ipv4Addr::LOCALHOST, 0).into();
        settings.file_threads = false;
        settings.advertise = Some(format!("http://{}.invalid", self.name.replace(' ', "-")));
        let store = Disk::new(self.world.clone(), gate.clone(), self.store.clone());
        let bus = Link::new(self.world.clone(), gate.clone(), self.bus.clone()).of_manager();
        let started = Manager::start(settings, Arc::new(store), Arc::new(bus));
        let (world, name, now) = (self.world.clone(), self.name.clone(), self.now.clone());
        tokio::spawn(async move {
            match started.await {
                Ok(manager) => {
                    arrive(&now, &gate, manager.core());
                    let why = manager.failed().await;
                    if !gate.is_dead() {
                        world.breaks(format!("{name} broke: {why}"));
                    }
                }
                Err(_) if gate.is_dead() => {}
                Err(error) => world.breaks(format!("{name} did not start: {error}")),
            }
        });
    }

    /// Kills the process. What it was about to do is not done.
    pub(super) fn kill(&self) {
        let mut process = self.process();
        process.gate.kill();
        process.core = None;
    }
}

/// Lets clients talk to a process that has started, unless it was killed and another one started meanwhile.
fn arrive(now: &Mutex<Process>, gate: &Arc<Gate>, core: &Arc<Core>) {
    let mut process = now.lock().unwrap_or_else(PoisonError::into_inner);
    if Arc::ptr_eq(&process.gate, gate) && !gate.is_dead() {
        process.core = Some(core.clone());
    }
}
