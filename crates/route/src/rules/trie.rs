//! Lists of rules by the literal that paths have to begin with: a radix tree that versions of the table share.
//!
//! A change copies the nodes from the root to the one that it touches. A look-up reads one node for each branching of the
//! literals that the path follows, and gives the lists that it passed, the longest literal first.

use super::list::List;
use std::sync::Arc;

/// The tree of one host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trie {
    root: Arc<Node>,
}

/// Except for the root, a node has a list or at least two children.
#[derive(Debug, Clone, Default)]
struct Node {
    /// What follows the literal of the parent.
    label: Box<[u8]>,
    list: List,
    /// First bytes of the children's labels, sorted.
    firsts: Vec<u8>,
    children: Vec<Arc<Node>>,
}

/// Lists that are remembered in one walk down.
const SEEN: usize = 16;

impl Trie {
    pub(crate) fn is_empty(&self) -> bool {
        self.root.list.is_empty() && self.root.children.is_empty()
    }

    /// Offers the lists of all literals that `path` begins with and that are at least `least` long, the longest first, until
    /// `accept` (which is given the literal's length too) takes one.
    pub(crate) fn find<'t, T>(
        &'t self,
        path: &[u8],
        least: usize,
        mut accept: impl FnMut(&'t List, usize) -> Option<T>,
    ) -> Option<T> {
        let mut most = path.len();
        loop {
            let mut seen: [Option<(&List, usize)>; SEEN] = [None; SEEN];
            let mut count = 0;
            self.root.walk(path, most, |list, len| {
                if len >= least {
                    if let Some(place) = seen.get_mut(count % SEEN) {
                        *place = Some((list, len));
                    }
                    count += 1;
                }
            });
            let from = count.saturating_sub(SEEN);
            for n in (from..count).rev() {
                let (list, len) = seen.get(n % SEEN).copied().flatten()?;
                if let Some(taken) = accept(list, len) {
                    return Some(taken);
                }
                most = len;
            }
            if from == 0 {
                return None;
            }
            // more lists than were remembered: once more, above the last one
            most = most.checked_sub(1)?;
        }
    }

    /// Changes the list of a literal, which is made if need be and goes when it is empty.
    pub(crate) fn change(&mut self, literal: &[u8], change: impl FnOnce(&mut List)) {
        let Some(node) = Node::make(&mut self.root, literal) else { return };
        change(&mut node.list);
        if node.list.is_empty() {
            self.prune(literal);
        }
    }

    /// Restores what holds for nodes where the list of `literal` became empty.
    fn prune(&mut self, literal: &[u8]) {
        let Some(steps) = self.root.steps(literal) else { return };
        let Some((last, above)) = steps.split_last() else { return };
        let Some(node) = Node::down(&mut self.root, &steps) else { return };
        if node.children.len() == 1 {
            node.merge();
        } else if node.children.is_empty() {
            let Some(parent) = Node::down(&mut self.root, above) else { return };
            parent.children.remove(*last);
            parent.firsts.remove(*last);
            if !above.is_empty() && parent.list.is_empty() && parent.children.len() == 1 {
                parent.merge();
            }
        }
    }
}

impl Node {
    fn child(&self, path: &[u8]) -> Option<usize> {
        self.firsts.binary_search(path.first()?).ok()
    }

    /// Gives all lists on the way of `path`, up to literals of the length `most`.
    fn walk<'t>(&'t self, path: &[u8], most: usize, mut pass: impl FnMut(&'t List, usize)) {
        let (mut node, mut at) = (self, 0);
        loop {
            let Some(rest) = path.get(at..).and_then(|rest| rest.strip_prefix(&*node.label)) else { return };
            at += node.label.len();
            if at > most {
                return;
            }
            if !node.list.is_empty() {
                pass(&node.list, at);
            }
            let Some(child) = node.child(rest).and_then(|at| node.children.get(at)) else { return };
            node = child;
        }
    }

    /// The node of a literal, made if it is not there.
    fn make<'n>(root: &'n mut Arc<Node>, literal: &[u8]) -> Option<&'n mut Node> {
        let mut node = Arc::make_mut(root);
        let mut rest = literal;
        loop {
            let common = node.label.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if common < node.label.len() {
                node.split(common);
            }
            rest = rest.get(common..)?;
            let Some(first) = rest.first() else { return Some(node) };
            let at = match node.firsts.binary_search(first) {
                Ok(at) => at,
                Err(at) => {
                    node.firsts.insert(at, *first);
                    node.children.insert(at, Arc::new(Node { label: rest.into(), ..Node::default() }));
                    at
                }
            };
            node = Arc::make_mut(node.children.get_mut(at)?);
        }
    }

    /// Cuts the label; all else moves into a new child.
    fn split(&mut self, at: usize) {
        let (label, below) = self.label.split_at(at);
        let (label, below): (Box<[u8]>, Box<[u8]>) = (label.into(), below.into());
        let firsts: Vec<u8> = below.first().copied().into_iter().collect();
        let lower = Node { label: below, ..std::mem::take(self) };
        *self = Node { label, list: List::default(), firsts, children: vec![Arc::new(lower)] };
    }

    /// Becomes one with its only child.
    fn merge(&mut self) {
        let Some(child) = self.children.pop() else { return };
        let child = Arc::unwrap_or_clone(child);
        let label = [&*self.label, &*child.label].concat();
        *self = Node { label: label.into(), ..child };
    }

    /// Which child at each step down to the node of a literal.
    fn steps(&self, literal: &[u8]) -> Option<Vec<usize>> {
        let (mut node, mut rest, mut steps) = (self, literal, Vec::new());
        loop {
            rest = rest.strip_prefix(&*node.label)?;
            if rest.is_empty() {
                return Some(steps);
            }
            let at = node.child(rest)?;
            steps.push(at);
            node = node.children.get(at)?;
        }
    }

    fn down<'n>(root: &'n mut Arc<Node>, steps: &[usize]) -> Option<&'n mut Node> {
        let mut node = Arc::make_mut(root);
        for step in steps {
            node = Arc::make_mut(node.children.get_mut(*step)?);
        }
        Some(node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::RuleSpec;
    use crate::rules::Rule;
    use crate::rules::list::Candidate;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use towpath_types::AppRef;

    fn candidate(literal: &str) -> Candidate {
        let spec = RuleSpec::new(literal, &["/a"], AppRef::of_upstream("1"));
        Candidate::new(&Arc::new(Rule::new(spec, 0)), 0)
    }

    fn ids(trie: &Trie, path: &str, least: usize) -> Vec<(String, usize)> {
        let mut ids = Vec::new();
        trie.find(path.as_bytes(), least, |list, len| {
            ids.push((list.iter().next().unwrap().rule.spec.id.clone(), len));
            None::<()>
        });
        ids
    }

    /// Whether every node but the root has a list or two children, and how many there are.
    fn tidy(node: &Node) -> (bool, usize) {
        node.children.iter().fold((true, 1), |(good, count), child| {
            let (below, more) = tidy(child);
            let reason = !child.list.is_empty() || child.children.len() > 1;
            (good && below && reason && !child.label.is_empty(), count + more)
        })
    }

    proptest! {
        #[test]
        fn a_tree_gives_what_a_set_of_texts_gives(
            steps in prop::collection::vec((any::<bool>(), "[ab]{0,6}"), 0..60),
            path in "[abc]{0,8}",
            least in 0..4_usize,
        ) {
            let (mut trie, mut model) = (Trie::default(), BTreeSet::new());
            for (put, literal) in steps {
                if put && model.insert(literal.clone()) {
                    let before = trie.clone();
                    trie.change(literal.as_bytes(), |list| list.put(candidate(&literal)));
                    prop_assert!(!ids(&before, &literal, literal.len()).iter().any(|(id, _)| *id == literal));
                } else if !put && model.remove(&literal) {
                    trie.change(literal.as_bytes(), |list| list.remove(&candidate(&literal)));
                }
                prop_assert!(tidy(&trie.root).0);
            }
            let mut want: Vec<_> = model.iter().filter(|l| path.starts_with(l.as_str()) && l.len() >= least).collect();
            want.sort_by_key(|literal| std::cmp::Reverse(literal.len()));
            let want: Vec<_> = want.into_iter().map(|literal| (literal.clone(), literal.len())).collect();
            prop_assert_eq!(ids(&trie, &path, least), want);
            for literal in std::mem::take(&mut model) {
                trie.change(literal.as_bytes(), |list| list.remove(&candidate(&literal)));
            }
            prop_assert!(trie.is_empty());
        }
    }

    #[test]
    fn more_lists_than_are_remembered_are_all_given() {
        let mut trie = Trie::default();
        let literal = |len: usize| "x".repeat(len);
        (0..100)
            .for_each(|len| trie.change(literal(len).as_bytes(), |list| list.put(candidate(&literal(len)))));
        let want: Vec<_> = (0..100).rev().map(|len| (literal(len), len)).collect();
        assert_eq!(ids(&trie, &literal(200), 0), want);
        assert_eq!(ids(&trie, &literal(200), 90), want[..10]);
    }
}
