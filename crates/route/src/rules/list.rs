//! The rules of one path on one host, in the order in which they are tried.
//!
//! Kept in chunks that versions of the table share, so that a change copies one chunk however many rules there are.

use super::Rule;
use std::cmp::Reverse;
use std::sync::Arc;

/// Most candidates in a chunk.
const CHUNK: usize = 128;

/// A rule by one of its paths.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    pub(crate) rule: Arc<Rule>,
    pub(crate) priority: i64,
    /// Length of the path as written.
    len: u16,
    /// Which of the rule's paths.
    pub(crate) at: u16,
    /// Something has to be looked at beyond host and literal.
    pub(crate) conditional: bool,
}

impl Candidate {
    pub(crate) fn new(rule: &Arc<Rule>, at: u16) -> Self {
        let pattern = rule.pattern(at);
        Self {
            priority: rule.spec.priority,
            len: pattern.map_or(0, |pattern| pattern.text.len() as u16),
            at,
            conditional: rule.is_conditional(at),
            rule: Arc::clone(rule),
        }
    }

    /// Smaller ones are tried first: higher priority, longer path, smaller id.
    fn order(&self) -> (Reverse<i64>, Reverse<u16>, &str, u16) {
        (Reverse(self.priority), Reverse(self.len), &self.rule.spec.id, self.at)
    }
}

/// Sorted candidates.
#[derive(Debug, Clone, Default)]
pub(crate) struct List {
    /// The first of all, near at hand since it is usually the only one.
    first: Option<Candidate>,
    rest: Option<Arc<Vec<Arc<Vec<Candidate>>>>>,
}

impl List {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Candidate> {
        self.first.iter().chain(self.rest.iter().flat_map(|rest| rest.iter().flat_map(|chunk| chunk.iter())))
    }

    /// Puts one that is not in it yet.
    pub(crate) fn put(&mut self, candidate: Candidate) {
        match &mut self.first {
            None => self.first = Some(candidate),
            Some(first) if candidate.order() < first.order() => {
                let second = std::mem::replace(first, candidate);
                self.put_rest(second);
            }
            Some(_) => self.put_rest(candidate),
        }
    }

    fn put_rest(&mut self, candidate: Candidate) {
        let chunks = Arc::make_mut(self.rest.get_or_insert_default());
        let after = chunks
            .partition_point(|chunk| chunk.first().is_some_and(|first| first.order() <= candidate.order()))
            .saturating_sub(1);
        let Some(chunk) = chunks.get_mut(after).map(Arc::make_mut) else {
            chunks.push(Arc::new(vec![candidate]));
            return;
        };
        let place = chunk.partition_point(|other| other.order() < candidate.order());
        chunk.insert(place, candidate);
        if chunk.len() > CHUNK {
            let upper = chunk.split_off(CHUNK / 2);
            chunks.insert(after + 1, Arc::new(upper));
        }
    }

    /// Takes one out, if it is in it.
    pub(crate) fn remove(&mut self, candidate: &Candidate) {
        if self.first.as_ref().is_some_and(|first| first.order() == candidate.order()) {
            self.first = self.take_second();
            return;
        }
        let Some(rest) = &mut self.rest else { return };
        let chunks = Arc::make_mut(rest);
        let at = chunks
            .partition_point(|chunk| chunk.first().is_some_and(|first| first.order() <= candidate.order()))
            .saturating_sub(1);
        let Some(chunk) = chunks.get_mut(at).map(Arc::make_mut) else { return };
        if let Ok(place) = chunk.binary_search_by(|other| other.order().cmp(&candidate.order())) {
            chunk.remove(place);
        }
        if chunk.is_empty() {
            chunks.remove(at);
        }
        if chunks.is_empty() {
            self.rest = None;
        }
    }

    fn take_second(&mut self) -> Option<Candidate> {
        let chunks = Arc::make_mut(self.rest.as_mut()?);
        let chunk = Arc::make_mut(chunks.first_mut()?);
        let second = if chunk.is_empty() { None } else { Some(chunk.remove(0)) };
        if chunk.is_empty() {
            chunks.remove(0);
        }
        if chunks.is_empty() {
            self.rest = None;
        }
        second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::RuleSpec;
    use proptest::prelude::*;
    use towpath_types::AppRef;

    fn candidate(id: u16, priority: i64) -> Candidate {
        let mut spec = RuleSpec::new(format!("r{id}"), &["/a"], AppRef::of_upstream("1"));
        spec.priority = priority;
        Candidate::new(&Arc::new(Rule::new(spec, 0)), 0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_list_is_sorted_whatever_was_put_and_taken(steps in prop::collection::vec((any::<bool>(), 0..600_u16), 0..1200)) {
            let (mut list, mut model) = (List::default(), Vec::new());
            for (put, id) in steps {
                // the priority follows from the id, so that the same candidate can be taken
                let priority = i64::from(id % 7) - 3;
                let known = model.contains(&(Reverse(priority), format!("r{id}")));
                if put && !known {
                    list.put(candidate(id, priority));
                    model.push((Reverse(priority), format!("r{id}")));
                } else if !put {
                    list.remove(&candidate(id, priority));
                    model.retain(|(_, other)| *other != format!("r{id}"));
                }
            }
            model.sort();
            let order: Vec<_> = list.iter().map(|c| (Reverse(c.priority), c.rule.spec.id.clone())).collect();
            prop_assert_eq!(&order, &model);
            prop_assert_eq!(list.is_empty(), model.is_empty());
        }
    }
}
