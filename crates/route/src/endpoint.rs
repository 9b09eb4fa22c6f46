//! An endpoint as the table holds it, and what is learned about it at run time.

use crate::MS;
use crate::change::{Address, EndpointSpec};
use crate::latency::Latency;
use crate::load::Reported;
use crate::window::Window;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use towpath_types::upstream::{Protocol, UpstreamSpec};
use towpath_types::{AppRef, InstanceId, LaneName, Place};

/// An endpoint of one version of the table.
#[derive(Debug)]
pub struct Endpoint {
    /// What its source says of it.
    pub(crate) spec: Arc<EndpointSpec>,
    /// How its app's endpoints are used.
    pub upstream: Arc<UpstreamSpec>,
    /// What was learned; outlives this version.
    pub state: Arc<EndpointState>,
    /// Its source is silent.
    pub stale: bool,
}

impl Endpoint {
    /// Which instance.
    pub fn instance(&self) -> InstanceId {
        self.spec.instance
    }

    /// Which start of it.
    pub fn start(&self) -> u32 {
        self.spec.start
    }

    /// Its app.
    pub fn app(&self) -> &AppRef {
        &self.spec.app
    }

    /// Its lane.
    pub fn lane(&self) -> &LaneName {
        &self.spec.lane
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.spec.address
    }

    /// Where it stands.
    pub fn place(&self) -> &Place {
        &self.spec.place
    }

    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        self.spec.protocol
    }

    /// Balancing weight, 100 is normal.
    pub fn weight(&self) -> u32 {
        self.spec.weight
    }

    /// Takes no new requests.
    pub fn draining(&self) -> bool {
        self.spec.draining
    }

    /// Passes its health check, or was not judged yet.
    pub fn healthy(&self) -> bool {
        self.spec.healthy
    }

    /// May get requests at all, if need be.
    pub(crate) fn usable(&self) -> bool {
        !self.spec.draining && self.spec.weight > 0
    }

    /// Available as far as the table knows; whether it is ejected is in the state.
    pub(crate) fn ready(&self) -> bool {
        self.usable() && self.spec.healthy && !self.stale
    }

    /// The share of its weight that it gets while it ramps up, 0.1..=1.
    pub(crate) fn ramp(&self, now: u64) -> f32 {
        let length = self.upstream.slow_start.0.saturating_mul(MS);
        let end = self.state.ramp_end(length);
        if end <= now { 1.0 } else { 1.0 - 0.9 * ((end - now) as f32 / length as f32).min(1.0) }
    }
}

/// What one gateway learns about one start of one instance. All atomics are relaxed: each stands for itself. On its
/// own cache lines, so that endpoints do not slow each other down; what choosing reads is on the first of them.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct EndpointState {
    pub(crate) in_flight: AtomicU32,
    pub(crate) consecutive: AtomicU32,
    pub(crate) latency: Latency,
    pub(crate) reported: Reported,
    pub(crate) ejected_until: AtomicU64,
    /// When it began to take requests; may lie before the clock's zero.
    ramp_start: AtomicI64,
    pub(crate) window: Window,
    /// Round robin: virtual time of its last turn, see `balance::roundrobin`.
    pub(crate) turn: AtomicU64,
    pub(crate) ejections: AtomicU32,
    total: AtomicU64,
    failed: AtomicU64,
}

impl EndpointState {
    /// A fresh one for an endpoint that has been ready for `ready_ms`.
    pub(crate) fn fresh(now: u64, ready_ms: u64) -> Self {
        let state = Self::default();
        let age = i64::try_from(ready_ms.saturating_mul(MS)).unwrap_or(i64::MAX);
        state.ramp_start.store((now as i64).saturating_sub(age), Relaxed);
        state
    }

    /// Requests in flight from this gateway.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Relaxed)
    }

    /// Latency average (time to the response head) in seconds, faded to `now`; `None` before the first response.
    pub fn latency_seconds(&self, now: u64) -> Option<f32> {
        self.latency.seconds(now)
    }

    /// Load after the formula as last reported; `None` if there is no report or it is older than three intervals.
    pub fn load(&self, now: u64) -> Option<f32> {
        self.reported.get(now)
    }

    /// Until when it is ejected; in the past = it is not.
    pub fn ejected_until(&self) -> u64 {
        self.ejected_until.load(Relaxed)
    }

    /// Whether it is ejected.
    pub fn ejected(&self, now: u64) -> bool {
        self.ejected_until() > now
    }

    /// Ejections in a row.
    pub fn ejections(&self) -> u32 {
        self.ejections.load(Relaxed)
    }

    /// Failures since the last success.
    pub fn consecutive_failures(&self) -> u32 {
        self.consecutive.load(Relaxed)
    }

    /// Requests that ended with a success or a failure, and how many of them were failures.
    pub fn totals(&self) -> (u64, u64) {
        (self.total.load(Relaxed), self.failed.load(Relaxed))
    }

    pub(crate) fn count(&self, failed: bool) {
        self.total.fetch_add(1, Relaxed);
        if failed {
            self.failed.fetch_add(1, Relaxed);
        }
    }

    /// Begins to ramp up at `now`.
    pub(crate) fn start_ramp(&self, now: u64) {
        self.ramp_start.store(now as i64, Relaxed);
    }

    /// When it has ramped up, if that takes `length`.
    pub(crate) fn ramp_end(&self, length: u64) -> u64 {
        self.ramp_start.load(Relaxed).saturating_add_unsigned(length).max(0) as u64
    }
}
