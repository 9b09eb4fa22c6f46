//! The listener, and what begins and ends with it.

use super::attempts::Attempts;
use super::{ApiState, accept, first_tokens, router};
use crate::blobs::Blobs;
use crate::core::Core;
use crate::error::ManagerError;
use crate::operations::{Operations, spawn_prune, spawn_supervise};
use crate::vitals;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Longest wait for requests under way at a stop.
const DRAIN: Duration = Duration::from_secs(3);

/// The running API.
pub struct ApiServer {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    background: [JoinHandle<()>; 7],
}

impl ApiServer {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no more requests, lets those under way end for a moment, and stops.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        self.background.iter().for_each(JoinHandle::abort);
        let mut serving = self.serving;
        if tokio::time::timeout(DRAIN, &mut serving).await.is_err() {
            serving.abort();
        }
    }
}

/// Binds, makes the first tokens, takes up what was left behind, and serves.
pub async fn start(core: Arc<Core>) -> Result<ApiServer, ManagerError> {
    let settings = core.settings.clone();
    let listen_error = |source| ManagerError::Listen { address: settings.listen, source };
    let listener = TcpListener::bind(settings.listen).await.map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    let (data_dir, limits) = (settings.data_dir.clone(), settings.limits.blobs.clone());
    let opened = settings.file_work(move || Blobs::open(&data_dir, limits)).await;
    let blobs = opened
        .unwrap_or_else(|_| Err(std::io::Error::other("opening broke off")))
        .map_err(|source| ManagerError::File { path: settings.data_dir.join("blobs"), source })?;
    let peers = crate::peers::Peers::new(core.clone());
    blobs.look_elsewhere(peers.clone());
    let operations = Operations::new(core.clone(), blobs.clone());
    let logins = Arc::new(super::logins::Logins::new(core.clone()));
    let (stop, stopping) = watch::channel(false);
    let state = ApiState {
        url: settings.advertise.clone().unwrap_or_else(|| format!("http://{address}")),
        core: core.clone(),
        blobs,
        operations: operations.clone(),
        peers,
        forwards: crate::core::shares::Shares::new(super::forward::MOST_FORWARDED),
        failures: Arc::new(Attempts::new(settings.limits.failed_auth_per_minute)),
        logins: logins.clone(),
        passwords: Arc::default(),
        lately: Arc::default(),
        turns: Arc::default(),
        probe: Arc::default(),
        documents: Arc::new(router::Documents::make()),
        ending: stopping.clone(),
    };
    // With a store that answers, tokens are there when this returns; else they come when it does.
    let prepared = if *core.cache_loaded().borrow() && core.fence().is_some() {
        first_tokens::ensure(&core).await.map_err(token_error)?;
        true
    } else {
        false
    };
    let router = router::router(state);
    let calls = super::calls::spawn(&core, router.clone()).await?;
    let pages = crate::operations::elsewhere::serve(&operations).await?;
    let counting = super::logins::serve(logins).await?;
    let background = [
        vitals::spawn(&core, prepare(core.clone(), prepared)),
        spawn_supervise(operations.clone()),
        spawn_prune(operations),
        super::retention::spawn(core.clone()),
        calls,
        pages,
        counting,
    ];
    let admission = accept::Admission {
        connections: settings.limits.connections.max(1),
        head: settings.limits.head,
        trusted: settings.limits.trusted_proxies.clone().into(),
    };
    let serving = vitals::spawn(&core, accept::serve(listener, router, admission, stopping));
    tracing::info!(%address, "the API listens");
    Ok(ApiServer { address, stop, serving, background })
}

/// The first tokens, if they are not made yet. Tried until it works.
async fn prepare(core: Arc<Core>, made: bool) {
    if made {
        return;
    }
    let mut loaded = core.cache_loaded();
    tokio::select! {
        ready = loaded.wait_for(|loaded| *loaded) => if ready.is_err() { return },
        () = core.stopped() => return,
    }
    let mut pause = Duration::from_millis(100);
    loop {
        match first_tokens::ensure(&core).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(%error, "the first tokens could not be made yet"),
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(5)),
            () = core.stopped() => return,
        }
    }
}

fn token_error(error: first_tokens::FirstTokenError) -> ManagerError {
    match error {
        first_tokens::FirstTokenError::File { path, source } => ManagerError::File { path, source },
        first_tokens::FirstTokenError::Commit(crate::CommitError::Store(error)) => ManagerError::Store(error),
        first_tokens::FirstTokenError::Commit(error) => {
            ManagerError::Store(towpath_store::StoreError::Unavailable {
                why: error.to_string(),
                uncertain: false,
            })
        }
    }
}
