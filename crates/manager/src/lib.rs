//! The control plane: API, reconcilers, and the feeds of gateways and cells.
//!
//! Invariants: hard state changes only through fenced commits; one task at a time works on one resource, different ones
//! run concurrently; reconcilers are level-triggered, and message, change feed and timer activate them through one path
//! ([`mailbox`]); a store that is gone stops changes, never traffic.
//!
//! Must not: decide rollouts or placement itself (that is `plan`), talk to instances.

pub mod api;
pub mod blobs;
mod bootstrap;
pub mod cells;
pub mod core;
pub mod error;
mod feed;
mod gateways;
mod identity;
mod listen;
pub mod mailbox;
mod membership;
pub mod operations;
mod peers;
pub mod reconcile;
pub mod settings;
pub mod vault;
mod vitals;

pub use api::ApiLimits;
pub use error::{CommitError, ManagerError};
pub use settings::ManagerSettings;

use crate::core::Core;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{JoinHandle, JoinSet};
use towpath_bus::Bus;
use towpath_store::Store;

/// Longest wait for the store at the start; afterwards joining goes on in the background.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// Longest wait for tasks to end at a stop.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A running manager.
pub struct Manager {
    core: Arc<Core>,
    api: api::ApiServer,
    tasks: JoinHandle<()>,
}

impl Manager {
    /// Joins, loads the hard state, makes what a new installation needs, and serves. Returns once the API listens. A store
    /// that cannot be reached does not make it fail: the API answers 503 until it can.
    pub async fn start(
        settings: ManagerSettings,
        store: Arc<dyn Store>,
        bus: Arc<dyn Bus>,
    ) -> Result<Self, ManagerError> {
        settings.validate().map_err(ManagerError::Settings)?;
        let identity = identity::load(&settings.data_dir)?;
        let core = Core::new(settings, store, bus, identity.manager());
        let mut tasks = JoinSet::new();
        let mailboxes = Arc::new(reconcile::Mailboxes::default());
        listen::spawn(&core, &mailboxes, &mut tasks).await?;
        cells::sync::spawn(&core, &mut tasks).await?;
        gateways::spawn(&core, &mut tasks);
        reconcile::spawn(&core, &mailboxes, &mut tasks).await?;
        feed::spawn(&core, mailboxes.clone(), &mut tasks);
        let joined = membership::spawn(&core, identity, &mailboxes, &mut tasks).await?;
        if tokio::time::timeout(START_PATIENCE, joined).await.is_err() {
            tracing::warn!("the store does not answer; the manager goes on trying");
        }
        vault::begin(&core).await;
        vault::spawn(&core, &mut tasks);
        let api = match api::start(core.clone()).await {
            Ok(api) => api,
            Err(error) => {
                core.begin_stop();
                membership::leave(&core).await;
                return Err(error);
            }
        };
        core.set_api_address(api.address());
        if core.settings.advertise.is_none() && core.settings.listen.port() == 0 {
            membership::tell_address(&core).await;
        }
        let tasks = vitals::watch_over(&core, tasks);
        Ok(Self { core, api, tasks })
    }

    /// Where the API listens.
    pub fn api_address(&self) -> SocketAddr {
        self.api.address()
    }

    /// Resolves when one of the manager's background tasks broke, with what it said. The manager is to be stopped then, and
    /// started again.
    pub async fn failed(&self) -> String {
        self.core.vitals.failed().await
    }

    /// What all parts share.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Hands over to the other managers, ends the API, then all tasks, and leaves the managers' table.
    pub async fn stop(self) {
        let Self { core, api, mut tasks } = self;
        membership::begin_leave(&core).await;
        api.stop().await;
        core.begin_stop();
        if tokio::time::timeout(STOP_PATIENCE, &mut tasks).await.is_err() {
            tracing::warn!("some tasks did not end in time and are cut off");
            tasks.abort();
        }
        membership::leave(&core).await;
    }
}
