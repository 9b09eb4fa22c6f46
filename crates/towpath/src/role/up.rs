//! `towpath up`: bus in memory, SQLite, gateway, manager, cell; in this order, and back.

use super::banner::Banner;
use super::layout::Layout;
use super::ready::Ready;
use super::services::{self, Succession};
use super::signals::Signals;
use super::{Run, failures};
use crate::config::{Settings, paths};
use crate::exit::Outcome;
use std::sync::Arc;
use std::time::Duration;
use towpath_bus::{Bus, MemoryBus};
use towpath_cell::{Cell, StopMode};
use towpath_gateway::Gateway;
use towpath_manager::Manager;
use towpath_store::{SqliteStore, Store};

/// The platform in one process.
struct Platform {
    gateway: Gateway,
    manager: Manager,
    cell: Cell,
}

pub(super) async fn run(run: Run, mut signals: Signals) -> Outcome {
    let layout = Layout::new(&run.settings.data_dir);
    let Some(platform) = run.start(&mut signals, start(&run.settings, &layout, run.fresh)).await? else {
        return Ok(());
    };
    announce(&run, &layout, &platform)?;
    run.log.release();
    let told = tokio::select! {
        told = services::until_told(&mut signals, &platform.manager) => told,
        part = platform.gateway.failure() => Err(failures::dead_part(part)),
        part = platform.cell.failed() => Err(failures::dead_part_of_cell(part)),
    };
    match &told {
        Ok(name) => tracing::info!(signal = name, "ending; a second signal ends at once"),
        Err(_) => tracing::error!("ending, since a part of it broke; what runs is left running"),
    }
    if let Some(file) = &run.ready_file {
        let _ = std::fs::remove_file(file);
    }
    let (drain, keep) = (run.settings.drain.duration(), run.settings.cell.keep_instances || told.is_err());
    signals.or_at_once(stop(platform, drain, keep)).await?;
    told.map(drop)
}

async fn start(settings: &Settings, layout: &Layout, fresh: bool) -> Outcome<Platform> {
    let bus: Arc<dyn Bus> = Arc::new(MemoryBus::new());
    let file = layout.store()?;
    let store = SqliteStore::open(&file)
        .await
        .map_err(|error| failures::store(&format!("the store {}", file.display()), &error))?;
    let store: Arc<dyn Store> = Arc::new(store);
    // The gateway first: it serves from its snapshot at once, and its port is known to the rest.
    let gateway = services::gateway(settings, layout, Some(bus.clone()), Succession::default()).await?;
    let gateway_url = services::local_url(services::first_address(&gateway)?);
    let shown = settings.gateway.url.clone().unwrap_or_else(|| gateway_url.clone());
    let manager =
        services::manager(settings, layout, shown, store, bus.clone(), ("--api-listen", true)).await?;
    let api = services::local_url(manager.api_address());
    let for_instances = settings.cell.gateway_url.clone().unwrap_or(gateway_url);
    let cell_dir = layout.cell(fresh)?;
    let cell =
        services::cell(settings, cell_dir, vec![api], &layout.cell_token(), for_instances, bus).await?;
    Ok(Platform { gateway, manager, cell })
}

/// Lets requests finish, then ends the manager (so that it takes no ending instance for a lost one), then the instances,
/// unless they are to be left.
async fn stop(platform: Platform, drain: Duration, keep_instances: bool) {
    platform.gateway.drain(drain).await;
    platform.manager.stop().await;
    let mode = if keep_instances { StopMode::LeaveRunning } else { StopMode::StopInstances(drain) };
    platform.cell.stop(mode).await;
    tracing::info!("ended");
}

fn announce(run: &Run, layout: &Layout, platform: &Platform) -> Outcome {
    let settings = &run.settings;
    let listener = services::first_address(&platform.gateway)?;
    let api = services::local_url(platform.manager.api_address());
    let metrics =
        platform.gateway.admin_address().map(|address| format!("{}/metrics", services::local_url(address)));
    let ready = Ready {
        pid: std::process::id(),
        role: "up",
        gateway: Some(services::local_url(listener)),
        api: Some(api.clone()),
        metrics: metrics.clone(),
        token_file: Some(layout.token().display().to_string()),
        cell_token_file: Some(layout.cell_token().display().to_string()),
        data_dir: layout.root.display().to_string(),
    };
    let port = if listener.port() == 80 { String::new() } else { format!(":{}", listener.port()) };
    let mut exports = Vec::new();
    if api != "http://127.0.0.1:7700" {
        exports.push(format!("TOWPATH_API={api}"));
    }
    if paths::data_dir("up").is_none_or(|usual| usual != layout.root) {
        exports.push(format!("TOWPATH_TOKEN_FILE={}", layout.token().display()));
    }
    let banner = Banner {
        apps: format!("http://<app>.{}{port}", settings.domain),
        api: &api,
        metrics,
        token: &layout.token(),
        data: &layout.root,
        instances: Some(platform.cell.runtime_dir()).filter(|dir| !dir.starts_with(&layout.root)),
        exports,
    };
    run.screen.write(&banner.render(&run.screen))?;
    run.ready_file.as_ref().map_or(Ok(()), |file| ready.write(file))
}
