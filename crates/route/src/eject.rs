//! Passive ejection: an endpoint that fails is left alone for a while, longer each time.

use crate::MS;
use crate::endpoint::Endpoint;
use crate::pool::{Node, Pool, PoolState, Tier};
use crate::table::Table;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Frees the decision on a pool's ejections.
struct Deciding<'a>(&'a PoolState);

impl Drop for Deciding<'_> {
    fn drop(&mut self) {
        self.0.ejecting.store(false, Release);
    }
}

impl Table {
    /// Ejects an endpoint, unless too large a share of its tier is ejected already (of its pool, where another tier can take
    /// over: a zone whose last endpoint dies is left), or another worker is deciding on the same pool at this instant (then
    /// the next failure asks again). Call it when [`crate::Finished::eject`] says so.
    pub fn eject(&self, endpoint: &Endpoint, now: u64) -> bool {
        let Some(slot) = self.0.slot_of(endpoint.app()) else { return false };
        let pool = self.app_at(slot).and_then(|app| app.pool(endpoint.lane().as_str()));
        let Some(pool) = pool else { return false };
        let Some((tier, _, node)) = pool.find(endpoint.instance()) else { return false };
        if pool.state.ejecting.compare_exchange(false, true, Acquire, Relaxed).is_err() {
            return false;
        }
        let _deciding = Deciding(&pool.state);
        let rule = &node.endpoint.upstream.ejection;
        let state = &node.state;
        let fits = |ejected: usize, of: usize| (ejected + 1) as f64 <= f64::from(rule.max_share) * of as f64;
        let in_tier = fits(count_ejected(pool, tier, now), tier.usable());
        if state.ejected(now) || !(in_tier || has_other(pool, tier, now) && in_pool(pool, now, fits)) {
            return false;
        }
        let base = rule.base.0.saturating_mul(MS).max(1);
        let times = state.ejections() + 1 - forgiven(state.ejections(), now, state.ejected_until(), base);
        let length = base.saturating_mul(u64::from(times)).min(rule.max.0.saturating_mul(MS).max(base));
        let until = now.saturating_add(length);
        state.ejections.store(times, Relaxed);
        state.start_ramp(until);
        state.consecutive.store(0, Relaxed);
        state.window.clear();
        state.ejected_until.store(until, Relaxed);
        pool.state.ejected_until.fetch_max(until, Relaxed);
        let slow_start = node.endpoint.upstream.slow_start.0.saturating_mul(MS);
        let ramped = until.saturating_add(slow_start);
        pool.state.ramp_until.fetch_max(ramped, Relaxed);
        self.0.calm.disturb(slot, ramped);
        true
    }
}

/// How many of a tier are ejected.
fn count_ejected(pool: &Pool, tier: &Tier, now: u64) -> usize {
    pool.range(tier.start, tier.usable_end).iter().filter(|peer| peer.state.ejected(now)).count()
}

/// Whether another tier has an endpoint to which requests can go.
fn has_other(pool: &Pool, tier: &Tier, now: u64) -> bool {
    let is_ready = |node: &Node| !node.state.ejected(now);
    pool.tiers()
        .filter(|other| other.start != tier.start)
        .any(|other| pool.range(other.start, other.ready_end).iter().any(is_ready))
}

/// Whether one more fits, counted over all tiers.
fn in_pool(pool: &Pool, now: u64, fits: impl Fn(usize, usize) -> bool) -> bool {
    let ejected = pool.tiers().map(|tier| count_ejected(pool, tier, now)).sum();
    fits(ejected, pool.tiers().map(Tier::usable).sum())
}

/// Ejections are in a row while the endpoint fails again soon: one is forgiven for each base time since the last ended.
fn forgiven(ejections: u32, now: u64, until: u64, base: u64) -> u32 {
    let quiet = now.saturating_sub(until) / base;
    u32::try_from(quiet).unwrap_or(u32::MAX).min(ejections)
}
