//! What plugins remember beyond a configuration: counters of limiters, breakers. An edit of the route finds it again.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// By scope (which resource, which plugin). Something that no configuration holds any more is forgotten.
#[derive(Default)]
pub(crate) struct States(Mutex<HashMap<String, Weak<dyn Any + Send + Sync>>>);

impl States {
    /// The state of this name, a new one if there is none of this type.
    pub(crate) fn get<T: Any + Send + Sync>(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
    fn a_state_is_found_again_while_somebody_holds_it() {
        let states = States::default();
        let first = states.get("route 1/limit-count", || AtomicU64::new(7));
        first.fetch_add(1, Relaxed);
        assert_eq!(states.get("route 1/limit-count", AtomicU64::default).load(Relaxed), 8);
        assert_eq!(states.get("route 2/limit-count", AtomicU64::default).load(Relaxed), 0);
        drop(first);
        assert_eq!(states.get("route 1/limit-count", AtomicU64::default).load(Relaxed), 0);
    }
}
