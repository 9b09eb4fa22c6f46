//! What a consistent hash of requests goes by, read once.

use crate::entry::{hash_of, or_address};
use crate::hash::hash_bytes;
use crate::request::RequestView;
use crate::vars::{Name, RequestVars, Template, request_var};
use towpath_types::lane::HashBy;
use towpath_types::upstream::Balancer;

/// What is hashed of a request.
#[derive(Debug, Clone)]
pub(crate) enum Affinity {
    By(HashBy),
    Var(Name),
    Vars(Template),
}

impl Affinity {
    /// What a balancer hashes; the address where it does not hash at all.
    pub(crate) fn of(balancer: &Balancer) -> Self {
        match balancer {
            Balancer::Chash(by) => Self::new(by),
            _ => Self::By(HashBy::Address),
        }
    }

    pub(crate) fn new(by: &HashBy) -> Self {
        match by {
            HashBy::Var(name) => Self::Var(Name::new(name)),
            HashBy::Vars(text) => Self::Vars(Template::new(text)),
            by => Self::By(by.clone()),
        }
    }

    /// Hash of the named thing of a request; of the client's address when the request has no such thing.
    pub(crate) fn hash(&self, seed: u64, request: &impl RequestView) -> u64 {
        let named = match self {
            Self::By(by) => return hash_of(by, seed, request),
            Self::Var(name) => {
                request_var(request, name).and_then(|value| value.with_text(|text| hash_bytes(seed, text)))
            }
            Self::Vars(template) => {
                let mut sum = seed;
                let resolved = template.fill(&RequestVars(request), |piece| sum = hash_bytes(sum, piece));
                (resolved > 0).then_some(sum)
            }
        };
        or_address(named, seed, request)
    }
}
