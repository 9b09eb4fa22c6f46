//! For tests: the shim, and a whole cell as a process of its own that can be killed.
//!
//! `cell-testbed __shim …` is the shim. `cell-testbed cell DIR API` runs a cell on `DIR/data` with a bus and a manager of its own: what
//! should run is read from `DIR/desired.json`, the last announcement is written to `DIR/announce.json`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use towpath_bus::{Bus, MemoryBus};
use towpath_cell::{Cell, CellSettings};
use towpath_wire::cell::{CellAnnounce, SyncPage};
use towpath_wire::subject;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next().unwrap_or_default();
    if first == towpath_cell::SHIM_COMMAND {
        return towpath_cell::shim_main(args.collect());
    }
    if first == towpath_cell::STATIC_COMMAND {
        return towpath_cell::static_main(args.collect());
    }
    let (Some(dir), Some(api)) = (args.next(), args.next()) else { return ExitCode::from(2) };
    let Ok(runtime) = tokio::runtime::Runtime::new() else { return ExitCode::from(3) };
    match runtime.block_on(run(&PathBuf::from(dir), &api.to_string_lossy())) {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::from(4),
    }
}

async fn run(dir: &Path, api: &str) -> Option<()> {
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let mut requests = bus.subscribe_queue(subject::CELL_SYNC, subject::MANAGERS).await.ok()?;
    let mut announcements = bus.subscribe(subject::CELL_ANNOUNCE_ALL).await.ok()?;
    let mut settings = CellSettings::new(dir.join("data"), api, "token");
    settings.sync_interval = std::time::Duration::from_millis(100);
    let _cell = Cell::start(settings, Arc::clone(&bus)).await.ok()?;
    loop {
        tokio::select! {
            request = requests.next() => {
                let page: Option<SyncPage> =
                    std::fs::read(dir.join("desired.json")).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
                if let (Some(page), Some(to)) = (page, request?.reply) {
                    bus.publish(&to, towpath_wire::encode(&page).into()).await.ok()?;
                }
            }
            announcement = announcements.next() => {
                let announce: CellAnnounce = towpath_wire::decode(&announcement?.payload).ok()?;
                let new = dir.join("announce.json.new");
                std::fs::write(&new, serde_json::to_vec(&announce).ok()?).ok()?;
                std::fs::rename(&new, dir.join("announce.json")).ok()?;
            }
        }
    }
}
