//! One role of a cluster: over NATS, and PostgreSQL for managers.

use super::layout::Layout;
use super::ready::Ready;
use super::services::Succession;
use super::signals::Signals;
use super::successor::Successor;
use super::{Run, failures, services, supervisor};
use crate::exit::{Exit, Failure, Outcome};
use std::sync::Arc;
use towpath_cell::StopMode;
use towpath_store::{PostgresConfig, PostgresStore, Store};

/// `towpath manager`.
pub(super) async fn manager(run: Run, mut signals: Signals) -> Outcome {
    let layout = Layout::new(&run.settings.data_dir);
    let Some(manager) = run.start(&mut signals, start_manager(&run, &layout)).await? else { return Ok(()) };
    let api = services::local_url(manager.api_address());
    let ready = Ready {
        role: "manager",
        api: Some(api.clone()),
        token_file: Some(layout.token().display().to_string()),
        cell_token_file: Some(layout.cell_token().display().to_string()),
        ..ready(&layout)
    };
    announce(&run, &ready, &format!("Towpath manager: API at {api}, token in {}", layout.token().display()))?;
    let told = services::until_told(&mut signals, &manager).await;
    ending(&run, told.as_ref().copied().unwrap_or("a part of it broke"));
    signals.or_at_once(manager.stop()).await?;
    told.map(drop)
}

async fn start_manager(run: &Run, layout: &Layout) -> Outcome<towpath_manager::Manager> {
    let bus = services::nats(&run.settings, false).await?;
    let Some(url) = &run.settings.postgres else {
        return Err(Failure::new(Exit::Usage, "store.postgres: PostgreSQL is not configured"));
    };
    let store = PostgresStore::connect(PostgresConfig {
        tls_ca: run.settings.postgres_ca.clone(),
        ..PostgresConfig::new(url)
    })
    .await
    .map_err(|error| failures::store("PostgreSQL", &error))?;
    let store: Arc<dyn Store> = Arc::new(store);
    let gateway_url = services::configured_gateway_url(&run.settings);
    services::manager(&run.settings, layout, gateway_url, store, bus, ("--listen", false)).await
}

/// `towpath gateway`.
pub(super) async fn gateway(run: Run, mut signals: Signals) -> Outcome {
    let layout = Layout::new(&run.settings.data_dir);
    let mut successor = Successor::new()?;
    let lock = run.lock.copy().map_err(|error| Failure::io("the data directory", &error))?;
    let succession = Succession { take_over: run.take_over.clone(), lock: Some(lock) };
    let start = async {
        let bus = match run.settings.gateway.file {
            Some(_) => None,
            None => Some(services::nats(&run.settings, true).await?),
        };
        services::gateway(&run.settings, &layout, bus, succession).await
    };
    let Some(gateway) = run.start(&mut signals, start).await? else { return Ok(()) };
    if let Err(error) = run.lock.note_process() {
        tracing::warn!(%error, "this process could not be noted in the data directory");
    }
    let url = services::local_url(services::first_address(&gateway)?);
    let metrics = gateway.admin_address().map(|address| format!("{}/metrics", services::local_url(address)));
    let ready = Ready { role: "gateway", gateway: Some(url.clone()), metrics, ..ready(&layout) };
    announce(&run, &ready, &format!("Towpath gateway: {url}"))?;
    supervisor::ready();
    tokio::select! {
        signal = signals.next() => ending(&run, signal),
        part = gateway.failure() => return Err(failures::dead_part(part)),
        pid = gateway.handed_over() => {
            tracing::info!(pid, "the gateway is another process now; this one finishes what is under way");
            supervisor::succeeded_by(pid);
        }
        () = successor.run() => {}
    }
    signals.or_at_once(gateway.drain(run.settings.drain.duration())).await
}

/// `towpath cell`.
pub(super) async fn cell(run: Run, mut signals: Signals) -> Outcome {
    let layout = Layout::new(&run.settings.data_dir);
    let ours = &run.settings.cell;
    let (api, Some(token_file)) = (ours.api.clone(), ours.token_file.clone()) else {
        return Err(Failure::new(Exit::Usage, "cell.token_file is needed"));
    };
    let start = async {
        let bus = services::nats(&run.settings, true).await?;
        let gateway_url = services::configured_gateway_url(&run.settings);
        let dir = layout.cell(run.fresh)?;
        services::cell(&run.settings, dir, api, &token_file, gateway_url, bus).await
    };
    let Some(cell) = run.start(&mut signals, start).await? else { return Ok(()) };
    announce(&run, &Ready { role: "cell", ..ready(&layout) }, &format!("Towpath cell {}", cell.id()))?;
    tokio::select! {
        signal = signals.next() => ending(&run, signal),
        part = cell.failed() => {
            // The next process adopts what runs.
            signals.or_at_once(cell.stop(StopMode::LeaveRunning)).await?;
            return Err(failures::dead_part_of_cell(part));
        }
    }
    let mode = if ours.keep_instances {
        StopMode::LeaveRunning
    } else {
        StopMode::StopInstances(run.settings.drain.duration())
    };
    signals.or_at_once(cell.stop(mode)).await
}

fn ready(layout: &Layout) -> Ready {
    Ready { pid: std::process::id(), data_dir: layout.root.display().to_string(), ..Ready::default() }
}

fn announce(run: &Run, ready: &Ready, line: &str) -> Outcome {
    run.screen.line(line)?;
    run.log.release();
    run.ready_file.as_ref().map_or(Ok(()), |file| ready.write(file))
}

fn ending(run: &Run, signal: &str) {
    tracing::info!(signal, "ending; a second signal ends at once");
    if let Some(file) = &run.ready_file {
        let _ = std::fs::remove_file(file);
    }
}
