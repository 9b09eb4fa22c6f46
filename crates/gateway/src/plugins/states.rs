//! What plugins remember beyond a configuration: counters of limiters, breakers. An edit of the route finds it again, and of a
//! consumer, whose plugins are made when it comes again.

use super::shares::Shares;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use towpath_route::limit::Limits;

/// How long something is remembered that no configuration holds any more.
const KEPT_NS: u64 = 10 * 60 * 1_000_000_000;
/// How often is looked for what can be forgotten.
const SWEEP_NS: u64 = 60 * 1_000_000_000;

type Anything = dyn Any + Send + Sync;

/// Keys that the limiters of a gateway count at a time: 8 MiB. Beyond that the least worthy are forgotten.
const KEYS: usize = 131_072;

/// By scope (which resource, which plugin).
#[derive(Default)]
pub(crate) struct States {
    all: Mutex<All>,
    /// What all limiters count in; made with the first of them.
    limits: OnceLock<Arc<Limits>>,
    /// Parts of limits that several gateways share.
    pub(crate) shares: Arc<Shares>,
}

#[derive(Default)]
struct All {
    held: HashMap<String, Held>,
    /// Those that end with the last configuration that holds them.
    shared: HashMap<String, Weak<Anything>>,
    swept_ns: u64,
}

struct Held {
    state: Arc<Anything>,
    /// Since when nobody else was seen to hold it.
    idle_ns: Option<u64>,
}

impl All {
    /// Forgets what nobody has held for a while.
    fn sweep(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.swept_ns) < SWEEP_NS {
            return;
        }
        self.swept_ns = now_ns;
        self.held.retain(|_, held| {
            held.idle_ns =
                if Arc::strong_count(&held.state) > 1 { None } else { held.idle_ns.or(Some(now_ns)) };
            held.idle_ns.is_none_or(|since| now_ns.saturating_sub(since) < KEPT_NS)
        });
    }
}

impl States {
    /// What limiters count in.
    pub(crate) fn limits(&self) -> &Arc<Limits> {
        self.limits.get_or_init(|| Limits::new(fastrand::u64(..), KEYS))
    }

    /// The state of this name, a new one if there is none of this type. It is remembered for some minutes after its last user.
    pub(crate) fn kept<T: Any + Send + Sync>(
        &self,
        name: &str,
        now_ns: u64,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = all.held.get_mut(name)
            && let Ok(known) = held.state.clone().downcast::<T>()
        {
            held.idle_ns = None;
            all.sweep(now_ns);
            return known;
        }
        let made = Arc::new(make());
        all.held.insert(name.to_owned(), Held { state: made.clone(), idle_ns: None });
        all.sweep(now_ns);
        made
    }

    /// The same of something that ends with its last user, as what has a thread or a connection does.
    pub(crate) fn get<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let all = &mut all.shared;
        if let Some(known) = all.get(name).and_then(Weak::upgrade)
            && let Ok(known) = known.downcast::<T>()
        {
            return known;
        }
        if all.len() % 256 == 255 {
            all.retain(|_, state| state.strong_count() > 0);
        }
        let made = Arc::new(make());
        let weak: Weak<T> = Arc::downgrade(&made);
        all.insert(name.to_owned(), weak);
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    #[test]
    fn a_shared_state_is_found_again_while_somebody_holds_it() {
        let states = States::default();
        let first = states.get("a", || AtomicU64::new(7));
        first.fetch_add(1, Relaxed);
        assert_eq!(states.get("a", AtomicU64::default).load(Relaxed), 8);
        assert_eq!(states.get("b", AtomicU64::default).load(Relaxed), 0);
        drop(first);
        assert_eq!(states.get("a", AtomicU64::default).load(Relaxed), 0);
    }

    #[test]
    fn a_kept_state_outlives_its_users_for_some_minutes_and_then_is_forgotten() {
        let (states, minute) = (States::default(), 60 * 1_000_000_000);
        let get = |name: &str, now: u64| states.kept(name, now * minute, AtomicU64::default);
        get("a", 0).fetch_add(1, Relaxed);
        assert_eq!(get("a", 1).load(Relaxed), 1);
        // Nobody asked for hours, but it was in use until now.
        let used = get("a", 2);
        drop(used);
        assert_eq!(get("b", 300).load(Relaxed), 0);
        assert_eq!(get("a", 309).load(Relaxed), 1);
        assert_eq!(get("b", 310).load(Relaxed), 0);
        assert_eq!(get("b", 321).load(Relaxed), 0);
        assert_eq!(states.all.lock().unwrap().held.len(), 1);
        assert_eq!(get("a", 322).load(Relaxed), 0);
    }
}
