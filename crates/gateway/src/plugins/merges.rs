//! Programs with consumers' plugins in them: made when a consumer first comes by a route, on each worker by itself.

use super::program::{Consumer, Plugins, Program};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// Most of them at the same time; beyond that all are forgotten.
const MOST: usize = 8192;

/// By the addresses of both, which are held so that no other can get them.
#[derive(Default)]
pub(crate) struct Merges(RefCell<HashMap<(usize, usize), Merged>>);

struct Merged {
    of: Arc<Program>,
    with: Arc<Consumer>,
    made: Arc<Program>,
}

impl Merges {
    /// The merged program; `None` = the consumer has no plugins.
    pub(crate) fn get(
        &self,
        program: &Arc<Program>,
        consumer: &Arc<Consumer>,
        plugins: &Plugins,
    ) -> Option<Arc<Program>> {
        if consumer.plugins.is_empty() {
            return None;
        }
        let key = (Arc::as_ptr(program) as usize, Arc::as_ptr(consumer) as usize);
        if let Some(known) = self.0.borrow().get(&key) {
            return Some(known.made.clone());
        }
        let made = Arc::new(program.merge(consumer, plugins));
        let merged = Merged { of: program.clone(), with: consumer.clone(), made: made.clone() };
        let mut all = self.0.borrow_mut();
        if all.len() >= MOST {
            all.clear();
        }
        all.insert(key, merged);
        Some(made)
    }

    /// Forgets those whose program or consumer nobody else holds any more.
    pub(crate) fn sweep(&self) {
        let used = |merged: &Merged| Arc::strong_count(&merged.of) > 1 && Arc::strong_count(&merged.with) > 1;
        self.0.borrow_mut().retain(|_, merged| used(merged));
    }
}
