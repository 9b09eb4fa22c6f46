//! Counters. Each worker writes its own, with plain loads and stores; a scrape reads all of them. So counting never
//! shares a cache line between workers, and a slow scrape touches no request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use towpath_types::{AppRef, ErrorCode};

mod exposition;
pub(crate) mod series;
mod sources;
mod streams;

pub(crate) use exposition::render;
pub(crate) use sources::Sources;
pub(crate) use streams::{StreamEnd, StreamKind, StreamMetrics};

/// A counter with one writing thread.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Adds; only ever called by the one thread that owns the counter.
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Subtracts; for gauges.
    pub(crate) fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// The present value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the latency buckets, microseconds; a last bucket holds the rest.
pub(crate) const BUCKETS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000,
];

/// How long requests took.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [Count; BUCKETS_US.len() + 1],
    sum_us: Count,
}

impl Histogram {
    pub(crate) fn add(&self, us: u64) {
        let at = BUCKETS_US.iter().position(|&bound| us <= bound).unwrap_or(BUCKETS_US.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.add(1);
        }
        self.sum_us.add(us);
    }
}

/// What is counted of finished requests: by class of status (1xx to 5xx), and by time.
#[derive(Debug, Default)]
pub(crate) struct RequestMetrics {
    classes: [Count; 6],
    duration: Histogram,
    bytes_in: Count,
    bytes_out: Count,
}

impl RequestMetrics {
    /// Counts one finished request.
    pub(crate) fn add(&self, status: u16, us: u64, bytes_in: u64, bytes_out: u64) {
        if let Some(class) = self.classes.get(usize::from(status / 100)) {
            class.add(1);
        }
        self.duration.add(us);
        self.bytes_in.add(bytes_in);
        self.bytes_out.add(bytes_out);
    }
}

/// What is counted of one app.
#[derive(Debug)]
pub(crate) struct AppMetrics {
    app: AppRef,
    /// Its requests.
    pub(crate) requests: RequestMetrics,
}

/// What one worker counts.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct WorkerMetrics {
    /// All requests.
    pub(crate) requests: RequestMetrics,
    /// Client connections accepted.
    pub(crate) accepted: Count,
    /// Client connections now.
    pub(crate) connections: Count,
    /// Of these, the ones that have nothing but their socket now.
    pub(crate) dozing: Count,
    /// Client connections turned away at the limit.
    pub(crate) turned_away: Count,
    /// Connections that ended because the PROXY protocol's header was malformed or late.
    pub(crate) proxy_headers_refused: Count,
    /// TLS handshakes that came to their end.
    pub(crate) handshakes: Count,
    /// Those that failed, or took too long.
    pub(crate) handshake_failures: Count,
    /// Those that were not begun because too many were under way.
    pub(crate) handshakes_refused: Count,
    /// Connections opened to instances.
    pub(crate) connects: Count,
    /// Connections to instances that failed or took too long.
    pub(crate) connect_failures: Count,
    /// Requests that used a kept connection.
    pub(crate) reuses: Count,
    /// Kept connections that were found closed before use.
    pub(crate) stale: Count,
    /// Attempts after the first.
    pub(crate) retries: Count,
    /// Retries that the budget denied.
    pub(crate) retries_denied: Count,
    /// Ejections of endpoints.
    pub(crate) ejections: Count,
    /// Clients that went away before the end.
    pub(crate) clients_gone: Count,
    /// Connections that became tunnels (WebSocket and the like).
    pub(crate) upgrades: Count,
    /// Lines of the access log that were dropped because the writer was behind.
    pub(crate) log_dropped: Count,
    /// Entries of loggers among plugins that were dropped because their server was behind.
    pub(crate) plugin_log_dropped: Count,
    /// Copies of requests that were not made because too many were under way.
    pub(crate) mirror_dropped: Count,
    /// Requests that `s3-admission` let wait.
    pub(crate) s3_waited: Count,
    /// Requests that it turned away.
    pub(crate) s3_turned_away: Count,
    /// Sessions of stream routes.
    pub(crate) streams: StreamMetrics,
    /// Requests that were answered from the cache.
    pub(crate) cache_hits: Count,
    /// Requests for which it had nothing.
    pub(crate) cache_misses: Count,
    /// Spans that were dropped because their collector was behind.
    pub(crate) spans_dropped: Count,
    /// Requests that have begun.
    pub(crate) begun: Count,
    /// Requests now.
    pub(crate) under_way: Count,
    /// Errors answered by the gateway itself, by code.
    errors: [Count; ERROR_CODES],
}

const ERROR_CODES: usize = 13;

/// Codes that a gateway answers by itself, in the order of the counters.
const OWN_CODES: [ErrorCode; ERROR_CODES] = [
    ErrorCode::BadRequest,
    ErrorCode::NoRoute,
    ErrorCode::AppStopped,
    ErrorCode::NoEndpoint,
    ErrorCode::UnknownLane,
    ErrorCode::ConnectFailed,
    ErrorCode::UpstreamFailed,
    ErrorCode::UpstreamTimeout,
    ErrorCode::ClientTimeout,
    ErrorCode::BodyTooLarge,
    ErrorCode::HeadTooLarge,
    ErrorCode::Overloaded,
    ErrorCode::Misdirected,
];

impl WorkerMetrics {
    /// Counts an error that the gateway answered by itself.
    pub(crate) fn error(&self, code: ErrorCode) {
        if let Some(at) = OWN_CODES.iter().position(|&own| own == code)
            && let Some(count) = self.errors.get(at)
        {
            count.add(1);
        }
    }
}

/// Most apps that one worker counts apart; the rest are counted in the totals only.
pub(crate) const APPS_MAX: usize = 2_000;

/// All counters of the process.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workers: Vec<Arc<WorkerMetrics>>,
    apps: Mutex<Vec<Arc<AppMetrics>>>,
    series: Arc<series::AllSeries>,
    /// `None` = there is no bus to hear anything by.
    sources: Mutex<Option<Sources>>,
}

impl Registry {
    /// Counters for so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            workers: (0..workers).map(|_| Arc::default()).collect(),
            apps: Mutex::default(),
            series: Arc::default(),
            sources: Mutex::default(),
        }
    }

    /// How fresh the gateway's knowledge is.
    pub(crate) fn sources(&self) -> Option<Sources> {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes how fresh the gateway's knowledge is.
    pub(crate) fn note_sources(&self, sources: Sources) {
        *self.sources.lock().unwrap_or_else(PoisonError::into_inner) = Some(sources);
    }

    /// The counters of one worker.
    pub(crate) fn worker(&self, index: usize) -> Arc<WorkerMetrics> {
        self.workers.get(index).cloned().unwrap_or_default()
    }

    /// New counters for an app on one worker; they are forgotten when the worker drops them.
    pub(crate) fn add_app(&self, app: AppRef) -> Arc<AppMetrics> {
        let metrics = Arc::new(AppMetrics { app, requests: RequestMetrics::default() });
        let mut apps = self.apps.lock().unwrap_or_else(PoisonError::into_inner);
        apps.retain(|known| Arc::strong_count(known) > 1);
        apps.push(metrics.clone());
        metrics
    }

    /// The counters by route.
    pub(crate) fn series(&self) -> &Arc<series::AllSeries> {
        &self.series
    }

    fn workers(&self) -> &[Arc<WorkerMetrics>] {
        &self.workers
    }

    fn apps(&self) -> Vec<Arc<AppMetrics>> {
        self.apps.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
