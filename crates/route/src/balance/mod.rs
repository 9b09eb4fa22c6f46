//! The balancers: which of the available endpoints of one tier.

mod chash;
mod least;
mod random;
mod roundrobin;
mod scope;
mod two_choices;
mod weighted;

pub(crate) use chash::score as chash_score;
pub(crate) use least::score as least_score;
pub(crate) use scope::Scope;
pub(crate) use two_choices::{Rule, latency_score, load_score, second_is_better};
pub(crate) use weighted::capacity;

use crate::app::App;
use crate::hash::Rng;
use crate::pool::Node;
use towpath_types::upstream::Balancer;

/// One of the scope's endpoints; `None` only when it has none.
pub(crate) fn choose<'a>(
    balancer: &Balancer,
    scope: &Scope<'a, '_>,
    app: &App,
    rng: &mut Rng,
) -> Option<&'a Node> {
    if scope.len() <= 1 {
        return scope.nth(0);
    }
    match balancer {
        Balancer::Load => two_choices::choose(scope, rng, two_choices::Rule::Load),
        Balancer::Ewma => two_choices::choose(scope, rng, two_choices::Rule::Latency),
        Balancer::Weighted => weighted::choose(scope, app.load_max, rng),
        Balancer::LeastConn => least::choose(scope, rng),
        Balancer::Roundrobin => roundrobin::choose(scope),
        Balancer::Chash(_) => chash::choose(scope),
        Balancer::Random => random::choose(scope, rng),
    }
}
