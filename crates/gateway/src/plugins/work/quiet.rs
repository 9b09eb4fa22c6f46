//! Plugins that change nothing of a request: what they ask for is so here anyway, or is told by the admin listener.

use crate::plugins::{Phases, Plugin};

/// `proxy-buffering`, `node-status`, `server-info`.
pub(in crate::plugins) struct Quiet;

impl Plugin for Quiet {
    fn phases(&self) -> Phases {
        Phases::default()
    }
}
