//! What the tasks of one worker thread share. Nothing in here is shared between threads but what says so.

use crate::access_log::{AccessLine, LogBuffer};
use crate::cache::Cache;
use crate::client::open_connections::OpenConnections;
use crate::clock;
use crate::deadline::Deadlines;
use crate::metrics::series::WorkerSeries;
use crate::metrics::{APPS_MAX, AppMetrics, Registry, WorkerMetrics};
use crate::plugins::EntryForm;
use crate::plugins::merges::Merges;
use crate::settings::GatewaySettings;
use crate::sticky::StickyKey;
use crate::table::LocalTable;
use crate::tls::Turns;
use crate::upstream::pool::Pool;
use http::HeaderMap;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use towpath_route::RetryBudget;
use towpath_types::AppRef;

/// Header maps that are kept, and how large they may be.
const SPARE_MAPS: usize = 64;
const SPARE_CAPACITY: usize = 128;

/// The state of one worker.
pub(crate) struct Worker {
    pub(crate) settings: Arc<GatewaySettings>,
    pub(crate) table: LocalTable,
    pub(crate) pool: Rc<Pool>,
    pub(crate) deadlines: Rc<Deadlines>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) sticky: StickyKey,
    /// Heads are written in here before they are sent.
    pub(crate) scratch: RefCell<Vec<u8>>,
    /// Pieces of heads are put together in here.
    pub(crate) piece: RefCell<Vec<u8>>,
    /// Empty header maps whose memory is used again.
    spare_maps: RefCell<Vec<HeaderMap>>,
    /// Fields of the access log, where they are not the usual ones.
    pub(crate) access_form: Option<EntryForm>,
    /// Counters by route.
    pub(crate) series: RefCell<WorkerSeries>,
    /// Responses that plugins keep.
    pub(crate) cache: Arc<Cache>,
    /// Programs with consumers' plugins in them.
    pub(crate) merges: Merges,
    /// Client connections of the process.
    pub(crate) open_connections: OpenConnections,
    /// Pace of TLS handshakes.
    pub(crate) turns: Turns,
    /// Held once more by each task that turns a client away.
    pub(crate) turning_away: Rc<()>,
    /// Set once: no new requests on old connections.
    pub(crate) draining: Cell<bool>,
    /// While it drains: how long a client that says nothing is waited for, if longer than usual.
    pub(crate) quiet_ms: Cell<Option<u64>>,
    registry: Arc<Registry>,
    apps: RefCell<HashMap<*const RetryBudget, CountedApp>>,
    log: RefCell<LogBuffer>,
    random: RefCell<fastrand::Rng>,
    unix_minus_clock_ms: Cell<u64>,
    /// The last second that was written as text.
    second: RefCell<(u64, Vec<u8>)>,
}

/// An app's counters, found by its retry budget, which is the same object for as long as the app exists.
struct CountedApp {
    budget: Arc<RetryBudget>,
    metrics: Arc<AppMetrics>,
}

/// What all workers of the process have in common.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) sticky: StickyKey,
    pub(crate) open_connections: OpenConnections,
    pub(crate) cache: Arc<Cache>,
}

impl Worker {
    /// The state of the worker with this index.
    pub(crate) fn new(
        index: usize,
        settings: Arc<GatewaySettings>,
        table: LocalTable,
        registry: Arc<Registry>,
        log: LogBuffer,
        shared: Shared,
    ) -> Rc<Self> {
        let metrics = registry.worker(index);
        let worker = Self {
            pool: Pool::new(settings.upstream.clone(), metrics.clone()),
            table,
            deadlines: Rc::default(),
            metrics,
            sticky: shared.sticky,
            scratch: RefCell::default(),
            piece: RefCell::default(),
            spare_maps: RefCell::default(),
            access_form: settings
                .access_log
                .format
                .as_ref()
                .filter(|_| settings.access_log.enabled)
                .map(|format| EntryForm::of(Some(format), None)),
            series: RefCell::new(WorkerSeries::new(registry.series().clone())),
            cache: shared.cache,
            merges: Merges::default(),
            open_connections: shared.open_connections,
            turns: Turns::default(),
            turning_away: Rc::default(),
            draining: Cell::new(false),
            quiet_ms: Cell::new(None),
            registry,
            apps: RefCell::default(),
            log: RefCell::new(log),
            random: RefCell::new(fastrand::Rng::new()),
            settings,
            unix_minus_clock_ms: Cell::new(0),
            second: RefCell::default(),
        };
        worker.tick();
        Rc::new(worker)
    }

    /// An empty header map.
    pub(crate) fn take_map(&self) -> HeaderMap {
        self.spare_maps.borrow_mut().pop().unwrap_or_default()
    }

    /// Gives back a header map that is not needed any more.
    pub(crate) fn put_map(&self, mut map: HeaderMap) {
        let mut spare = self.spare_maps.borrow_mut();
        if spare.len() < SPARE_MAPS && map.capacity() <= SPARE_CAPACITY {
            map.clear();
            spare.push(map);
        }
    }

    /// Whether this peer's forwarding headers are believed.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.settings.trusted.iter().any(|block| block.contains(peer))
    }

    /// How long, while the worker drains, a client that says nothing is waited for.
    pub(crate) fn quiet_ms(&self, usual: u64) -> u64 {
        self.quiet_ms.get().unwrap_or(usual)
    }

    /// A random number. Not for secrets.
    pub(crate) fn random(&self) -> u64 {
        self.random.borrow_mut().u64(..)
    }

    /// Calls with the wall-clock time of a moment of the process's clock: the second as text, and the milliseconds.
    pub(crate) fn at_wall_clock<R>(&self, clock_ns: u64, with: impl FnOnce(&[u8], u64) -> R) -> R {
        let unix_ms = self.unix_minus_clock_ms.get() + clock_ns / 1_000_000;
        let mut second = self.second.borrow_mut();
        if second.0 != unix_ms / 1000 {
            second.0 = unix_ms / 1000;
            second.1.clear();
            clock::write_second(&mut second.1, unix_ms / 1000);
        }
        with(&second.1, unix_ms % 1000)
    }

    /// Looks after deadlines; called every [`crate::deadline::TICK`].
    pub(crate) fn tick(&self) {
        self.deadlines.tick();
        self.unix_minus_clock_ms.set(clock::unix_ms().saturating_sub(clock::now_ms()));
    }

    /// Hands log lines over and closes what has been idle for too long; called about every second.
    pub(crate) fn sweep(&self) {
        self.flush_log();
        self.pool.sweep(self.deadlines.now_ms());
        self.merges.sweep();
        self.series.borrow_mut().sweep(self.deadlines.now_ms());
        self.apps.borrow_mut().retain(|_, app| Arc::strong_count(&app.budget) > 1);
    }

    /// Hands log lines over.
    pub(crate) fn flush_log(&self) {
        self.log.borrow_mut().flush();
    }

    /// Adds a line to the access log.
    pub(crate) fn log(&self, line: &AccessLine<'_>) {
        self.log.borrow_mut().add(line);
    }

    /// Adds a line of the access log that is written already.
    pub(crate) fn log_text(&self, line: &str) {
        self.log.borrow_mut().add_text(line);
    }

    /// Counts with the counters of an app, unless there are too many apps.
    pub(crate) fn count_for(&self, app: &AppRef, budget: &Arc<RetryBudget>, count: impl FnOnce(&AppMetrics)) {
        let mut apps = self.apps.borrow_mut();
        if let Some(known) = apps.get(&Arc::as_ptr(budget)) {
            return count(&known.metrics);
        }
        if apps.len() < APPS_MAX {
            let metrics = self.registry.add_app(app.clone());
            count(&metrics);
            apps.insert(Arc::as_ptr(budget), CountedApp { budget: budget.clone(), metrics });
        }
    }
}
